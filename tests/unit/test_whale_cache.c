/* SPDX-License-Identifier: MIT */
/* test_whale_cache.c: large/whale_cache: what is kept of freed whales, for how long, and who gets
 * which part of it.
 *
 * ctest: no-qemu
 */
#include "whales.h"

#include "large/whale_cache.h"

static size_t cached_bytes(void)
{
    return hak__whale_totals().cached_bytes;
}

/* A whale without a multiple of 1 GiB in it: what is asked for at such a multiple gets a new
 * mapping, and no part of this whale when it is freed. */
static char *allocate_inside_a_gib(size_t size)
{
    for (;;) {
        char *whale = allocate(size);
        if (bits_align_up((uintptr_t)whale, GIB) >= (uintptr_t)whale + size) {
            return whale;
        }
        hak__whale_free(whale);
        hak__whale_cache_trim(0);
        support_map(256 * MIB); /* the next one lies elsewhere */
    }
}

/* What is kept and what is in use are together never more than the most that was in use, of
 * superslabs, too. */
WHALE_TEST(no_peak_is_raised)
{
    hak__knobs.whale_cache_bytes = UINT64_MAX;
    char *first = allocate_inside_a_gib(8 * MIB), *second = allocate_inside_a_gib(12 * MIB);
    hak__whale_free(first);
    hak__whale_free(second);
    assert_int_equal(cached_bytes(), 20 * MIB);
    char *aligned = hak__whale_allocate(small_whale, GIB, false).pointer; /* a new mapping */
    assert_non_null(aligned);
    assert_in_range(cached_bytes(), 15 * MIB, 17 * MIB);
    assert_false(unit_is_mapped((uintptr_t)first + 6 * MIB)); /* of the oldest the end */
    assert_true(unit_is_mapped((uintptr_t)first));
    size_t slices[8];
    size_t before = hak__superslab_bytes_claimed() - hak__superslab_bytes_free();
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1).slice;
        REQUIRE(slices[i] != SLICE_NONE);
    }
    size_t grown = hak__superslab_bytes_claimed() - hak__superslab_bytes_free() - before;
    assert_int_equal(grown, 16 * MIB);
    hak__whale_cache_trim(UINT32_MAX);
    assert_in_range(cached_bytes(), 0, 2 * MIB);
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
    hak__whale_free(aligned);
}

WHALE_TEST(the_peak_is_forgotten)
{
    hak__knobs.purge_delay_ms = 50;
    assert_true(hak__whale_free(allocate(small_whale)));
    usleep(150000); /* longer than the delay */
    hak__whale_cache_trim(UINT32_MAX);
    assert_int_equal(cached_bytes(), 0);
    hak__knobs.purge_delay_ms = 0; /* nothing is kept then */
    assert_true(hak__whale_free(allocate(small_whale)));
    assert_int_equal(cached_bytes(), 0);
    hak__knobs.purge_delay_ms = UINT32_MAX;
    char *whale = allocate(20 * MIB);
    hak__whale_cache_trim(0); /* as the program asked for it: what was counts no more */
    hak__whale_free(allocate(small_whale));
    hak__whale_free(whale);
    assert_int_equal(cached_bytes(), 20 * MIB + small_whale);
}

WHALE_TEST(the_soft_limit)
{
    char *whale = allocate(10 * MIB), *other = allocate(10 * MIB);
    hak__whale_free(whale);
    assert_int_equal(cached_bytes(), 10 * MIB);
    hak__knobs.limit = MIB;
    hak__whale_cache_trim(UINT32_MAX);
    assert_int_equal(cached_bytes(), 0);
    hak__whale_free(other);
    assert_int_equal(cached_bytes(), 0);
}

/* The cache grows its table several times, merges, carves and finds among many ranges: each whale
 * keeps its contents, and nothing is lost. */
WHALE_TEST(many_ranges)
{
    enum { SLOTS = HAK_TINY_LIMITS ? 48 : 400, STEPS = 20 * SLOTS };
    static struct {
        uint64_t *block;
        size_t size;
    } slots[SLOTS];
    uint64_t random = 1;
    hak__knobs.whale_cache_bytes = 16 * GIB;
    for (size_t i = 0; i < STEPS + SLOTS; i++) {
        size_t slot = i < STEPS ? random_below(&random, SLOTS) : i - STEPS;
        uint64_t *block = slots[slot].block;
        if (block != NULL) {
            assert_int_equal(block[0], slot);
            assert_int_equal(block[slots[slot].size / sizeof *block - 1], slot);
            assert_true(hak__whale_free(block));
            slots[slot].block = NULL;
        } else if (i < STEPS) {
            size_t size = 2 * MIB + page + random_below(&random, 512) * page;
            slots[slot].block = block = (uint64_t *)(void *)allocate(size);
            slots[slot].size = size;
            block[0] = block[size / sizeof *block - 1] = slot;
        }
    }
    size_t kept = hak__whale_totals().cached_bytes;
    assert_true(kept != 0);
    assert_int_equal(hak__whale_cache_trim(0), kept);
}

TESTS(unit_start)
