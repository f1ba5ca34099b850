/* SPDX-License-Identifier: MIT */
/* test_fork_memory.c: a fork's child uses what it frees of its parent's memory.
 *
 * ctest: lock=memory no-qemu
 */
#include "../child.h"
#include "../report.h"

enum { BLOCKS_MAX = 1000000 };

static void **blocks;
static size_t blocks_count, blocks_bytes;
static uint64_t random_state = 9;

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

static void free_blocks(void)
{
    for (size_t i = 0; i < blocks_count; i++) {
        hak_free(blocks[i]);
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
    free_blocks();
    hak_trim(0);
    REQUIRE_SIZE(taken_bytes(), <=, 4 * MIB);
}

TEST(a_child_that_lives_long)
{
    fill((SUPPORT_SLOW ? 2 : 16) * MIB, 50, 549);
    REQUIRE_LIFE(live_long, NULL, "");
    free_blocks();
    hak_trim(0);
}

static int map_blocks(void **state)
{
    blocks = support_map(BLOCKS_MAX * sizeof *blocks);
    return 0;
}

TESTS(map_blocks)
