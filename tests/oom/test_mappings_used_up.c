/* SPDX-License-Identifier: MIT */
/* test_mappings_used_up.c: a process with all the mappings that the kernel allows still gets blocks
 * of all sizes, past a step of the tables, too: superslabs lie side by side, and are one mapping.
 *
 * ctest: no-qemu
 */
#include "../child.h"

#include <sys/mman.h>

enum { BLOCKS = 100 };

/* Protects every other page of a mapping, which is one mapping more each time, until the kernel
 * refuses; then maps pages, since mmap allows one more than mprotect does. False: the limit is too
 * high to reach. */
static bool use_up_mappings(void)
{
    enum { PAGES = 150000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *area = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(area != MAP_FAILED);
    size_t at = 0;
    while (at < PAGES && mprotect(area + at * page, page, PROT_READ) == 0) {
        at += 2;
    }
    int kind = PROT_READ;
    while (at < PAGES && mmap(NULL, page, kind, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
        kind = kind == PROT_READ ? PROT_NONE : PROT_READ;
    }
    return at < PAGES;
}

/* 300 MiB: the tables' first step is 128. */
static void use_small_blocks(size_t size)
{
    size_t count = 300 * MIB / size;
    void **blocks = hak_malloc(count * sizeof *blocks);
    REQUIRE(blocks != NULL);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = hak_malloc(size);
        REQUIRE(blocks[i] != NULL);
    }
    FREE_ALL(blocks, count);
    hak_free(blocks);
}

/* Of each block a few pages are written: its start and its end. */
enum { EDGE = 64 * KIB };

static char *block_make(size_t size, size_t seed)
{
    char *block = seed % 3 == 0 ? hak_calloc(1, size) : hak_malloc(size);
    REQUIRE(block != NULL && hak_owns(block) && hak_owns(block + size - 1));
    REQUIRE(seed % 3 != 0 || nonzero_offset(block, size) == SIZE_MAX);
    pattern_fill(block, EDGE, seed);
    block[size - 1] = (char)seed;
    return block;
}

static void use_large_blocks(void)
{
    char *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        sizes[i] = (3 + i % 18) * MIB + i;
        blocks[i] = block_make(sizes[i], i);
    }
    for (size_t i = 0; i < BLOCKS; i += 4) { /* the freed ones' superslabs serve again */
        hak_free(blocks[i]);
        blocks[i] = block_make(sizes[i], i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t next = i % 2 == 0 ? sizes[i] + MIB : i % 3 == 0 ? sizes[i] / 3 : sizes[i] - MIB / 2;
        blocks[i] = hak_realloc(blocks[i], next);
        REQUIRE(blocks[i] != NULL && pattern_mismatch(blocks[i], EDGE, i) == SIZE_MAX);
        REQUIRE(next < sizes[i] || blocks[i][sizes[i] - 1] == (char)i);
    }
    FREE_ALL(blocks, BLOCKS);
}

static void work_without_mappings(void *argument)
{
    hak_free(hak_malloc(100)); /* the library has begun */
    if (use_up_mappings()) {
        use_small_blocks(12000);
        use_small_blocks(300000);
        use_large_blocks();
        use_large_blocks();
    }
}

TEST(used_up)
{
    SKIP_IF(SUPPORT_SANITIZED); /* their own mappings come from the same limit */
    REQUIRE_LIFE(work_without_mappings, NULL, NULL);
}

TESTS(NULL)
