/* SPDX-License-Identifier: MIT */
/* test_page_size.c: the size of the OS's page is asked for at start, not baked in (jemalloc #2639:
 * aarch64 has 4, 16 and 64 KiB). This program plays a kernel of larger pages: its own getauxval
 * says so, and its own mmap and family hold the library to whole pages of that size, as such a
 * kernel would.
 *
 * ctest: not-again no-tsan no-asan no-qemu
 */
#include "../child.h"

#include <elf.h>
#include <sys/auxv.h>

#define PAGE_NAME "TEST_PAGE_SIZE"

static size_t page; /* 0: not read yet */

/* From the kernel's own table, by system calls: asked for before the C library is ready. */
static unsigned long real_auxval(unsigned long type)
{
    static unsigned long table[512];
    if (table[0] == 0) {
        long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/auxv", O_RDONLY);
        REQUIRE(file >= 0);
        REQUIRE(syscall(SYS_read, file, table, sizeof table - 16) > 0);
        syscall(SYS_close, file);
    }
    for (size_t i = 0; table[i] != AT_NULL; i += 2) {
        if (table[i] == type) {
            return table[i + 1];
        }
    }
    return 0;
}

static size_t page_now(void)
{
    if (page == 0) {
        const char *text = getenv(PAGE_NAME);
        page = text != NULL ? strtoul(text, NULL, 10) : 4096;
    }
    return page;
}

unsigned long getauxval(unsigned long type)
{
    return type == AT_PAGESZ ? page_now() : real_auxval(type);
}

static bool is_whole(const void *address, size_t size)
{
    return (((uintptr_t)address | size) & (page_now() - 1)) == 0;
}

static void *raw_map(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    REQUIRE(address == NULL || is_whole(address, 0));
    size = (size + page_now() - 1) & ~(page_now() - 1);
    if (address != NULL) {
        return raw_map(address, size, protection, flags, file, offset);
    }
    char *start = raw_map(NULL, size + page_now(), protection, flags, file, offset);
    if (start == MAP_FAILED) {
        return MAP_FAILED;
    }
    size_t before = -(uintptr_t)start & (page_now() - 1);
    if (before != 0) {
        REQUIRE(syscall(SYS_munmap, start, before) == 0);
    }
    REQUIRE(syscall(SYS_munmap, start + before + size, page_now() - before) == 0);
    return start + before;
}

int munmap(void *address, size_t size)
{
    REQUIRE(is_whole(address, 0));
    size = (size + page_now() - 1) & ~(page_now() - 1);
    return (int)syscall(SYS_munmap, address, size);
}

/* Moved to a whole page: a place of that kind first. */
void *mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *place = va_arg(arguments, void *);
    va_end(arguments);
    REQUIRE(is_whole(address, old_size) && is_whole(NULL, new_size));
    if (new_size <= old_size || (flags & MREMAP_MAYMOVE) == 0 || (flags & MREMAP_FIXED) != 0) {
        return (void *)syscall(SYS_mremap, address, old_size, new_size, flags, place);
    }
    place = mmap(NULL, new_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return place == MAP_FAILED ? place
                               : (void *)syscall(SYS_mremap, address, old_size, new_size,
                                                 flags | MREMAP_FIXED, place);
}

int madvise(void *address, size_t size, int advice)
{
    REQUIRE(is_whole(address, size));
    return (int)syscall(SYS_madvise, address, size, advice);
}

/* A byte for each large page: resident if any of it is. */
int mincore(void *address, size_t size, unsigned char *pages)
{
    unsigned char small[16];
    REQUIRE(is_whole(address, 0) && page_now() / 4096 <= sizeof small);
    for (size_t at = 0; at < size; at += page_now()) {
        if (syscall(SYS_mincore, (char *)address + at, page_now(), small) != 0) {
            return -1;
        }
        pages[at / page_now()] = memchr(small, 1, page_now() / 4096) != NULL;
    }
    return 0;
}

static void check_sizes(void)
{
    REQUIRE(is_aligned(hak_valloc(1), page_now()));
    REQUIRE(hak_usable_size(hak_pvalloc(1)) >= page_now());
    REQUIRE_SIZE(hak_good_size(3 * MIB + 1) % page_now(), ==, 0);
}

CHILD(use)
{
    enum { BLOCKS = 3, ROUNDS = 3 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
            char *blocks[BLOCKS];
            size_t size = tier_sizes[i];
            for (size_t j = 0; j < BLOCKS; j++) {
                blocks[j] = round % 2 == 0 ? hak_calloc(1, size)
                                           : hak_memalign((size_t)4096 << 3 * j, size);
                REQUIRE(blocks[j] != NULL);
                REQUIRE(round % 2 != 0 || nonzero_offset(blocks[j], size) == SIZE_MAX);
                pattern_fill(blocks[j], size, i + j);
            }
            for (size_t j = 0; j < BLOCKS; j++) {
                blocks[j] = hak_realloc(blocks[j], size * 2 + 1);
                REQUIRE(blocks[j] != NULL);
                REQUIRE(pattern_mismatch(blocks[j], size / 8 * 8, i + j) == SIZE_MAX);
                memset(blocks[j], 0xff, hak_usable_size(blocks[j]));
            }
            FREE_ALL(blocks, BLOCKS);
        }
        hak_trim(0);
    }
    check_sizes();
}

/* What is free goes back, in whole pages: one block of 1,000 bytes in 4,000 stays. */
CHILD(give)
{
    enum { BLOCKS = 32000 };
    static char *blocks[BLOCKS];
    memset(blocks, 1, sizeof blocks);
    hak_free(hak_malloc(100));
    size_t before = rss_bytes();
    ALLOCATE_WRITTEN(blocks, BLOCKS, 1000);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % 4000 != 0) {
            hak_free(blocks[i]);
        }
    }
    hak_trim(0);
    REQUIRE_SIZE(rss_bytes(), <=, before + 8 * 2 * page_now() + MIB);
    for (size_t i = 0; i < BLOCKS; i += 4000) {
        REQUIRE(blocks[i][999] == 1);
    }
}

static void run_with_pages(const char *name)
{
    static const char *const sizes[] = {PAGE_NAME "=4096", PAGE_NAME "=16384", PAGE_NAME "=65536"};
    SKIP_IF(SUPPORT_SANITIZED || sysconf(_SC_PAGESIZE) != 4096);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_CHILD(name, sizes[i], NULL);
    }
}

TEST(all_tiers)
{
    run_with_pages("use");
}

TEST(memory_goes_back)
{
    run_with_pages("give");
}

TESTS(NULL)
