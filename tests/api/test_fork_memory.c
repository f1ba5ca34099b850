/* SPDX-License-Identifier: MIT */
/* test_fork_memory.c: a fork's child does not copy the memory of its parent to free it (redis
 * #15260), and in the long run uses what it frees.
 *
 * ctest: lock=memory no-qemu
 */
#include "../child.h"
#include "../report.h"

/* In the secure form free clears the block. At level 2 and under sanitizers free looks at pages. */
static bool is_measured(void)
{
    bool is_secure = hak_good_size(17) == 17; /* behind a request is a canary */
    return !is_secure && !SUPPORT_SLOW && sysconf(_SC_PAGESIZE) == 4096;
}

enum { BLOCKS_MAX = 1000000, PAIRS = 2000, ROUNDS = 20 };

static void **blocks;
static size_t blocks_count, blocks_bytes;
static uint64_t random_state = 9;

/* Kibibytes that the process shares with no other. Without malloc. */
static size_t private_kib(void)
{
    return support_proc_bytes("/proc/self/smaps_rollup", "\nPrivate_Dirty:") / KIB;
}

static void *filled(size_t size)
{
    unsigned char *block = hak_malloc(size);
    REQUIRE(block != NULL);
    memset(block, (int)size, size);
    return block;
}

/* Fills `bytes` with blocks of `least` to `most` bytes, and frees every ninth. */
static void fill(size_t bytes, size_t least, size_t most)
{
    blocks_count = blocks_bytes = 0;
    while (blocks_bytes < bytes) {
        size_t size = least + random_below(&random_state, most - least + 1);
        REQUIRE(blocks_count < BLOCKS_MAX);
        blocks[blocks_count++] = filled(size);
        blocks_bytes += size;
    }
    for (size_t i = 0; i < blocks_count; i += 9) {
        hak_free(blocks[i]);
        blocks[i] = NULL;
    }
}

static void free_blocks(size_t of)
{
    for (size_t i = 0; i < blocks_count; i++) {
        if (blocks[i] != NULL && random_below(&random_state, of) == 0) {
            hak_free(blocks[i]); /* the table stays as it is: a write would copy its page */
        }
    }
}

struct range {
    size_t least, most;
    size_t free_of; /* one in so many */
};

static void measure_child(void *argument)
{
    const struct range *range = argument;
    static void *own[PAIRS];
    size_t start = private_kib();
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < PAIRS; i++) {
            own[i] = filled(50 + random_below(&random_state, 500));
        }
        FREE_ALL(own, PAIRS);
    }
    size_t churned = private_kib() - start;
    start += churned;
    free_blocks(range->free_of);
    size_t freed = private_kib() - start;
    if (is_measured() && start != 0) {
        REQUIRE_SIZE(churned, <=, 2 * KIB);
        REQUIRE_SIZE(freed, <=, blocks_bytes / KIB * 8 / 100);
    }
}

/* The bounds of docs/guarantees.md. */
TEST(a_child_copies_little)
{
    static struct range ranges[] = {{50, 549, 1},    {50, 549, 100},   {16, 100, 1},
                                    {1100, 5000, 1}, {9000, 60000, 1}, {1, 200000, 1}};
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        fill((SUPPORT_SLOW ? 4 : 40) * MIB, ranges[i].least, ranges[i].most);
        REQUIRE_LIFE(measure_child, &ranges[i], "");
        free_blocks(1);
        hak_trim(0);
    }
}

static size_t taken_bytes(void)
{
    struct hak_stats stats = stats_now();
    return stats.bytes_in_use + stats.bytes_free_in_slabs + stats.bytes_cached;
}

/* Replaces each block by one of its size, in random order, again and again. */
static void live_long(void *argument)
{
    size_t start = taken_bytes(), most = 0;
    for (size_t i = 0; i < 4 * blocks_count; i++) {
        size_t at = random_below(&random_state, blocks_count);
        size_t size = blocks[at] == NULL ? 300 : hak_usable_size(blocks[at]);
        hak_free(blocks[at]);
        blocks[at] = filled(size);
        if (i % 4096 == 0) {
            size_t now = taken_bytes();
            most = now > most ? now : most;
        }
    }
    if (HAK_LEVEL < 2) {
        REQUIRE_SIZE(most, <=, start * 17 / 10 + 4 * MIB);
        REQUIRE_SIZE(taken_bytes(), <=, start * 13 / 10 + 4 * MIB);
    }
    free_blocks(1);
    hak_trim(0);
    REQUIRE_SIZE(taken_bytes(), <=, 4 * MIB);
}

TEST(a_child_that_lives_long)
{
    fill((SUPPORT_SLOW ? 2 : 16) * MIB, 50, 549);
    REQUIRE_LIFE(live_long, NULL, "");
    free_blocks(1);
    hak_trim(0);
}

static int map_blocks(void **state)
{
    blocks = support_map(BLOCKS_MAX * sizeof *blocks);
    return 0;
}

TESTS(map_blocks)
