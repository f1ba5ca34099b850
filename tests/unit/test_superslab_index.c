/* SPDX-License-Identifier: MIT */
/* test_superslab_index.c: region/superslab_index: searches against a walk over all superslabs, at
 * every height of the tree; aligned runs.
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
    return SLICE_NONE;
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

/* First, while nothing has been claimed. */
TEST(searches_at_every_height)
{
    static const size_t counts[] = {1, 63, 64, 65, 1000, 4095, 4096, 4097, 8192, SUPERSLABS};
    uint64_t random = 3;
    assert_int_equal(hak__superslabs.count, 0);
    assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, 1, 0),
                     SLICE_NONE);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        reach(counts[i]);
        for (size_t step = 0; step < STEPS / COUNT_OF(counts); step++) {
            random_step(&random);
        }
    }
    for (size_t index = 0; index < INDEX_KINDS * SUPERSLABS; index++) {
        hak__superslab_index_set((enum superslab_index)(index % INDEX_KINDS), index / INDEX_KINDS,
                                 0);
    }
    for (size_t index = 0; index < SUPERSLABS; index++) { /* each by itself */
        hak__superslab_index_set(INDEX_FREE, index, VALUE_MAX);
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, VALUE_MAX, 0),
                         index);
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, 1, index),
                         index);
        assert_int_equal(hak__superslab_index_find(&hak__superslab_first, INDEX_FREE, 1, index + 1),
                         SLICE_NONE);
        hak__superslab_index_set(INDEX_FREE, index, 0);
    }
    assert_true(hak__superslab_index_is_right(&hak__superslab_first)); /* nothing is claimed */
}

/* Whole superslabs in which two slices are free, at an odd slice or an even one. */
static void make_holes(size_t *slices, size_t count, size_t odd)
{
    for (size_t i = 0; i < count; i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB).slice;
        REQUIRE(slices[i] != SLICE_NONE);
    }
    for (size_t i = 0; i < count; i++) {
        hak__superslab_give(slices[i] + 10 + odd, 2);
    }
}

/* A long run may lie wrongly: a bounded number of superslabs is looked at, and each in its turn. */
TEST(aligned_runs)
{
    enum { WRONG = 3 * LOOKS_MAX, RIGHT = 5 };
    static size_t wrong[WRONG], right[RIGHT];
    while (hak__superslab_bytes_free() != 0) {
        hak__superslab_take(0, 1, 1, FOR_SLAB);
    }
    make_holes(wrong, WRONG, 1);
    make_holes(right, RIGHT, 0);
    size_t frontier = hak__superslab_first.frontier, found = 0;
    while (found < RIGHT) { /* at most a search more for each LOOKS_MAX that lie wrongly */
        size_t slice = hak__superslab_take(0, 2, 2, FOR_SLAB).slice;
        assert_int_equal(slice % 2, 0);
        found += slice == right[found] + 10;
        assert_true(hak__superslab_first.frontier - frontier <= 8 * SUPERSLAB_SLICES);
    }
    for (size_t i = 0; i < WRONG; i++) {
        assert_int_equal(hak__superslab_take(0, 2, 1, FOR_SLAB).slice, wrong[i] + 11);
    }
}

TESTS(unit_start)
