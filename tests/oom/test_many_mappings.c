/* SPDX-License-Identifier: MIT */
/* test_many_mappings.c: very many large blocks leave a tenth of the mappings that the kernel allows
 * to the program, whichever are freed first: threads start, memory goes back, and blocks of any
 * size can be had. So they can in a process that has all the mappings that the kernel allows, past
 * a step of the tables, too.
 *
 * ctest: no-qemu lock=memory
 */
#include "../child.h"

/* More blocks than hakmem has mappings for: assertion level 2 allows itself 256. */
enum { ALLOWED = HAK_LEVEL >= 2 ? 256 : 58977, BLOCKS = ALLOWED + ALLOWED / 4, OTHERS = 300 };

static void *use_a_little(void *argument)
{
    void *block = hak_malloc(100);
    REQUIRE(block != NULL);
    hak_free(block);
    return argument;
}

/* Blocks of all kinds can be had, and a thread starts. */
static void check_all_goes_on(void)
{
    static const size_t sizes[] = {100, 40000, 700000, 2 * MIB, 2200000, 5 * MIB, 33 * MIB};
    pthread_t thread;
    REQUIRE_SIZE(mappings_count(), <=, ALLOWED + OTHERS);
    REQUIRE(pthread_create(&thread, NULL, use_a_little, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *blocks[20];
        for (size_t k = 0; k < COUNT_OF(blocks); k++) {
            blocks[k] = k % 2 == 0 ? hak_malloc(sizes[i]) : hak_calloc(1, sizes[i]);
            REQUIRE(blocks[k] != NULL);
            pattern_fill(blocks[k], 64, k);
        }
        for (size_t k = 0; k < COUNT_OF(blocks); k++) {
            size_t size = k % 3 == 0 ? sizes[i] / 2 : sizes[i] + sizes[i] / 3;
            blocks[k] = hak_realloc(blocks[k], size);
            REQUIRE(blocks[k] != NULL && pattern_mismatch(blocks[k], 32, k) == SIZE_MAX);
        }
        FREE_ALL(blocks, COUNT_OF(blocks));
    }
    REQUIRE_SIZE(mappings_count(), <=, ALLOWED + OTHERS);
}

static void hold_many_blocks(void *argument)
{
    size_t size = *(size_t *)argument;
    char **blocks = support_map(BLOCKS * sizeof *blocks);
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(size);
        REQUIRE(blocks[i] != NULL);
        blocks[i][size / 2] = (char)i;
    }
    check_all_goes_on();
    for (size_t i = 0; i < BLOCKS; i += 2) {
        hak_free(blocks[i]);
    }
    check_all_goes_on();
    hak_trim(0);
    check_all_goes_on();
    for (size_t i = 1; i < BLOCKS; i += 2) {
        REQUIRE(blocks[i][size / 2] == (char)i);
        hak_free(blocks[i]);
    }
    hak_trim(0);
    REQUIRE_SIZE(mappings_count(), <=, OTHERS + ALLOWED / 8);
    check_all_goes_on();
}

static void run(size_t size)
{
    SKIP_IF(SUPPORT_SANITIZED); /* their own mappings come from the same limit */
    REQUIRE_LIFE(hold_many_blocks, &size, NULL);
}

/* The kernel joins them, and each hole between two is a mapping more. */
TEST(blocks_side_by_side)
{
    run(2200000);
}

/* They begin at huge pages' boundaries, so each is a mapping of its own. */
TEST(blocks_apart)
{
    run(5 * MIB);
}

/* --- no mapping is left: superslabs lie side by side, and are one --- */

enum { MIXED_BLOCKS = 100 };

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
    ALLOCATE_ALL(blocks, count, size);
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
    char *blocks[MIXED_BLOCKS];
    size_t sizes[MIXED_BLOCKS];
    for (size_t i = 0; i < MIXED_BLOCKS; i++) {
        sizes[i] = (3 + i % 18) * MIB + i;
        blocks[i] = block_make(sizes[i], i);
    }
    for (size_t i = 0; i < MIXED_BLOCKS; i += 4) { /* the freed ones' superslabs serve again */
        hak_free(blocks[i]);
        blocks[i] = block_make(sizes[i], i);
    }
    for (size_t i = 0; i < MIXED_BLOCKS; i++) {
        size_t next = i % 2 == 0 ? sizes[i] + MIB : i % 3 == 0 ? sizes[i] / 3 : sizes[i] - MIB / 2;
        blocks[i] = hak_realloc(blocks[i], next);
        REQUIRE(blocks[i] != NULL && pattern_mismatch(blocks[i], EDGE, i) == SIZE_MAX);
        REQUIRE(next < sizes[i] || blocks[i][sizes[i] - 1] == (char)i);
    }
    FREE_ALL(blocks, MIXED_BLOCKS);
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
