/* SPDX-License-Identifier: MIT */
/* test_superslab_index.c: region/superslab_index: searches against a walk over all superslabs, at
 * every height of the tree; runs against the first fit by definition.
 *
 * ctest: no-qemu
 */
#include "unit.h"

/* Three levels of maxima, the highest of four bytes. */
enum { SUPERSLABS = 3 * 64 * 64 + 70, STEPS = SUPPORT_SLOW ? 4000 : 20000, VALUE_MAX = 65 };

static unsigned char expected[INDEX_KINDS][SUPERSLABS];

static size_t expected_find(enum superslab_index kind, uint32_t least, size_t from)
{
    for (size_t index = from; index < hak__superslabs.count; index++) {
        if (expected[kind][index] >= least) {
            return index;
        }
    }
    return INDEX_NONE;
}

static void reach(size_t count)
{
    lock_acquire(&hak__growth_lock);
    assert_int_equal(hak__window_grow_tables(count * SUPERSLAB_SLICES), 0);
    hak__superslab_index_reach(count - 1);
    lock_release(&hak__growth_lock);
}

/* Mostly few superslabs have anything, so that searches go far. */
static void random_step(uint64_t *random)
{
    enum superslab_index kind = (enum superslab_index)random_below(random, INDEX_KINDS);
    size_t index = random_below(random, hak__superslabs.count);
    uint32_t value = (uint32_t)random_below(random, VALUE_MAX + 1);
    value = random_below(random, 4) != 0 ? 0 : value;
    hak__superslab_index_set(kind, index, value);
    expected[kind][index] = (unsigned char)value;
    uint32_t least = 1 + (uint32_t)random_below(random, VALUE_MAX);
    size_t from = random_below(random, hak__superslabs.count + 3);
    assert_int_equal(hak__superslab_index_find(&hak__superslab_first, kind, least, from),
                     expected_find(kind, least, from));
    assert_int_equal(hak__superslab_index_find(&hak__superslab_first, kind, least, 0),
                     expected_find(kind, least, 0));
}

static void clear(uint64_t *random)
{
    for (uint32_t kind = 0; kind < INDEX_KINDS; kind++) {
        for (size_t index = 0; index < hak__superslabs.count; index++) {
            size_t at = random_below(random, 2) != 0 ? index : hak__superslabs.count - 1 - index;
            hak__superslab_index_set(kind, at, 0);
            expected[kind][at] = 0;
        }
        for (size_t index = 0; index < hak__superslabs.count; index++) {
            hak__superslab_index_set(kind, index, 0);
            expected[kind][index] = 0;
        }
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, kind, 1, 0), INDEX_NONE);
    }
}

/* First, while nothing has been claimed. */
TEST(searches_at_every_height)
{
    static const size_t counts[] = {1, 63, 64, 65, 1000, 4095, 4096, 4097, 8192, SUPERSLABS};
    uint64_t random = 3;
    assert_int_equal(hak__superslabs.count, 0);
    assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, 1, 0),
                     INDEX_NONE);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        reach(counts[i]);
        for (size_t step = 0; step < STEPS / COUNT_OF(counts); step++) {
            random_step(&random);
        }
        if (i % 2 != 0) {
            clear(&random);
        }
    }
    for (size_t index = 0; index < SUPERSLABS; index++) { /* each by itself */
        hak__superslab_index_set(INDEX_FREE, index, VALUE_MAX);
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, VALUE_MAX, 0),
                         index);
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, 1, index),
                         index);
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, 1, index + 1),
                         INDEX_NONE);
        hak__superslab_index_set(INDEX_FREE, index, 0);
    }
    assert_true(hak__superslab_index_is_right(&hak__superslab_first)); /* nothing is claimed */
}

static uint64_t map_of(size_t index, bool dirty_only)
{
    const struct superslab *superslab = superslab_at(index);
    return dirty_only ? superslab->free & superslab->dirty : superslab->free;
}

static size_t first_fit(uint32_t count, uint32_t alignment, bool dirty_only)
{
    for (size_t index = 0; index < hak__superslabs.count; index++) {
        uint64_t map = map_of(index, dirty_only);
        for (uint32_t first = 0; first + count <= SUPERSLAB_SLICES; first += alignment) {
            if ((map & bits_mask(first, count)) == bits_mask(first, count)) {
                return index * SUPERSLAB_SLICES + first;
            }
        }
    }
    return SLICE_NONE;
}

enum { RUNS = 2000, RUN_STEPS = SUPPORT_SLOW ? 4000 : 30000 };
static struct {
    size_t slice;
    uint32_t count; /* 0: none */
} runs[RUNS];

static void take_or_give(uint64_t *random, size_t i)
{
    if (runs[i].count != 0) {
        hak__superslab_give(runs[i].slice, runs[i].count);
        runs[i].count = 0;
        return;
    }
    uint32_t count = 1 + (uint32_t)random_size(random, 6) % SUPERSLAB_SLICES;
    size_t best = first_fit(count, 1, true);
    best = best != SLICE_NONE ? best : first_fit(count, 1, false);
    size_t frontier = hak__superslab_first.frontier;
    runs[i].slice = hak__superslab_take(0, count, 1).slice;
    runs[i].count = count;
    REQUIRE(runs[i].slice != SLICE_NONE);
    if (best != SLICE_NONE) {
        assert_int_equal(runs[i].slice, best);
        assert_int_equal(hak__superslab_first.frontier, frontier);
    }
}

/* Far above one group of superslabs, with passes and unmapped superslabs in between. */
TEST(first_fit)
{
    uint64_t random = 9;
    hak__knobs.huge_threshold = 0; /* pages change, and whole superslabs are dirty */
    hak__huge_page_us_max = UINT64_MAX;
    for (size_t step = 0; step < RUN_STEPS; step++) {
        take_or_give(&random, random_below(&random, step % 10000 < 6000 ? RUNS : RUNS / 20));
        if (step % 400 == 0) {
            unit_set_evidence(HUGE_SLABS, true); /* the next, although nothing is touched */
            unit_set_evidence(HUGE_SPANS, step % 800 == 0);
            hak__superslab_purge(step % 1200 == 0);
            assert_true(hak__superslab_index_is_right(&hak__superslab_first));
        }
        if (step % 5000 == 0) {
            hak__superslab_release(8 * SUPERSLAB_SIZE);
        }
    }
    for (size_t i = 0; i < RUNS; i++) {
        if (runs[i].count != 0) {
            take_or_give(&random, i);
        }
    }
    assert_true(hak__superslab_index_is_right(&hak__superslab_first));
    hak__superslab_release(SIZE_MAX);
    assert_true(hak__superslab_index_is_right(&hak__superslab_first));
    assert_int_equal(
        hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, SUPERSLAB_SLICES, 0),
        INDEX_NONE);
}

/* Whole superslabs in which two slices are free, at an odd slice or an even one. */
static void make_holes(size_t *slices, size_t count, size_t odd)
{
    for (size_t i = 0; i < count; i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1).slice;
        REQUIRE(slices[i] != SLICE_NONE);
    }
    for (size_t i = 0; i < count; i++) {
        hak__superslab_give(slices[i] + 10 + odd, 2);
    }
}

/* A long run may lie wrongly: a bounded number of superslabs is looked at, and each in its turn. */
TEST(aligned_runs)
{
    enum { WRONG = 3 * ALIGNED_LOOKS, RIGHT = 5 };
    static size_t wrong[WRONG], right[RIGHT];
    while (hak__superslab_bytes_free() != 0) {
        hak__superslab_take(0, 1, 1);
    }
    make_holes(wrong, WRONG, 1);
    make_holes(right, RIGHT, 0);
    size_t frontier = hak__superslab_first.frontier, found = 0;
    while (found < RIGHT) { /* at most a search more for each ALIGNED_LOOKS that lie wrongly */
        size_t slice = hak__superslab_take(0, 2, 2).slice;
        assert_int_equal(slice % 2, 0);
        found += slice == right[found] + 10;
        assert_true(hak__superslab_first.frontier - frontier <= 8 * SUPERSLAB_SLICES);
    }
    for (size_t i = 0; i < WRONG; i++) {
        assert_int_equal(hak__superslab_take(0, 2, 1).slice, wrong[i] + 11);
    }
}

TESTS(unit_start)
