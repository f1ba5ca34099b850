/* SPDX-License-Identifier: MIT */
/* test_span.c: large/span: where allocations start, the cache of freed ones, growing in place. */
#include "unit.h"

#include "large/span.h"

static struct span_cache cache;
static struct counters counters;

static int setup(void **state)
{
    int failed = unit_start(state);
    hak__window.mark -=
        hak__window.mark % SUPERSLAB_SLICES; /* superslabs fill from the first slice */
    hak__knobs.huge_threshold = UINT64_MAX;
    return failed;
}

static size_t region_taken;

static int fresh_cache(void **state)
{
    memset(&cache, 0, sizeof cache);
    memset(&counters, 0, sizeof counters);
    region_taken = unit_region_bytes_taken();
    return 0;
}

/* Each test gives everything back. */
static int nothing_is_left(void **state)
{
    hak__span_cache_trim(&cache, true);
    return cache.slices == 0 && unit_region_bytes_taken() == region_taken ? 0 : -1;
}

#define SPAN_TEST(name) TEST_WITH(name, fresh_cache, nothing_is_left)

/* A span that must exist, as its first slice. */
static size_t allocate(size_t size)
{
    struct span span = hak__span_allocate(&cache, &counters, size, SLICE_SIZE);
    REQUIRE(span.pointer != NULL);
    return window_slice_of(span.pointer);
}

/* The lines that 64 allocations of `size` bytes start at, of 64. */
static size_t lines_of_starts(size_t size, size_t alignment)
{
    size_t slices[64], count = 0;
    bool seen[64] = {false};
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        struct span span = hak__span_allocate(&cache, &counters, size, alignment);
        uintptr_t line = (uintptr_t)span.pointer / HAK_CACHE_LINE % COUNT_OF(seen);
        count += !seen[line];
        seen[line] = true;
        slices[i] = window_slice_of(span.pointer);
    }
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        hak__span_free(NULL, &counters, slices[i]);
    }
    return count;
}

SPAN_TEST(allocations_start_at_other_lines)
{
    for (size_t size = 70000; size < 300000; size += size / 5) {
        size_t lines = lines_of_starts(size, OBJECT_ALIGNMENT);
        assert_in_range(lines, 16, 64);
        assert_int_equal(lines_of_starts(size, HAK_CACHE_LINE), lines);
        assert_int_equal(lines_of_starts(size, (size_t)2 * HAK_CACHE_LINE), 1);
    }
}

/* docs/guarantees.md: 8 MiB for each arena, and less if the heap would grow. */
SPAN_TEST(what_is_kept)
{
    static const size_t sizes[] = {100000, 400000, 700000, SPAN_SIZE_MAX};
    size_t most = HAK_TINY_LIMITS ? 2 * MIB : 8 * MIB;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t slices[128], whole = bits_align_up(sizes[i], SLICE_SIZE);
        for (size_t j = 0; j < COUNT_OF(slices); j++) {
            slices[j] = allocate(sizes[i]);
        }
        for (size_t j = 0; j < COUNT_OF(slices); j++) {
            hak__span_free(&cache, &counters, slices[j]);
        }
        size_t kept = unit_region_bytes_taken() - region_taken;
        assert_int_equal(kept, cache.slices * SLICE_SIZE);
        assert_in_range(kept, most - whole + 1, most);
        hak__superslab_purge(); /* so the next one needs new memory */
        size_t slice = allocate(sizes[i] < MIB ? MIB : 100000); /* none of that length is kept */
        assert_int_equal(cache.slices, 0);
        hak__span_free(NULL, &counters, slice);
    }
}

/* Spans stay for two ticks at least, and for three at most. */
SPAN_TEST(what_ticks_leave)
{
    size_t first = allocate(100000), second = allocate(100000), other = allocate(300000);
    hak__span_free(&cache, &counters, first);
    hak__span_free(&cache, &counters, other);
    assert_int_equal(hak__span_cache_trim(&cache, false), 0);
    hak__span_free(&cache, &counters, second);
    assert_int_equal(hak__span_cache_trim(&cache, false), 0);
    assert_int_equal(hak__span_cache_trim(&cache, false), 4 + 10);
    assert_int_equal(allocate(100000), second);
    hak__span_free(&cache, &counters, second);
}

/* A superslab of our own with only [first, first + 4) taken, as a span. */
static size_t span_alone(size_t *superslab)
{
    *superslab = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB).slice;
    assert_int_not_equal(*superslab, SLICE_NONE);
    hak__superslab_give(*superslab + 40, 4);
    hak__superslab_purge();
    hak__superslab_take_exact(*superslab + 40, 4); /* dirty */
    hak__superslab_give(*superslab + 40, 4);
    size_t slice = allocate(4 * SLICE_SIZE);
    while (slice != *superslab + 40) { /* lower dirty ones were free */
        slice = allocate(4 * SLICE_SIZE);
    }
    return slice;
}

SPAN_TEST(resize_in_place)
{
    size_t superslab;
    hak__superslab_purge();
    size_t slice = span_alone(&superslab);
    char *bytes = window_slice_address(slice);
    pattern_fill(bytes, 4 * SLICE_SIZE, 1);
    assert_null(hak__span_resize(slice, 4 * SLICE_SIZE + 1, false)); /* the neighbour is taken */
    assert_int_equal(hak__span_bytes(slice), 4 * SLICE_SIZE);
    hak__superslab_give(slice + 4, 4);
    assert_null(hak__span_resize(slice, 9 * SLICE_SIZE, false)); /* one too many */
    assert_int_equal(hak__span_bytes(slice), 4 * SLICE_SIZE);
    size_t free_bytes = hak__superslab_bytes_free();
    assert_non_null(hak__span_resize(slice, 7 * SLICE_SIZE + 1, false));
    assert_int_equal(hak__span_bytes(slice), 8 * SLICE_SIZE);
    assert_int_equal(hak__superslab_bytes_free(), free_bytes - 4 * SLICE_SIZE);
    assert_int_equal(pattern_mismatch(bytes, 4 * SLICE_SIZE, 1), SIZE_MAX);
    assert_int_equal(window_owner(slice), OWNER_SPAN);
    assert_int_equal(window_owner(slice + 7), OWNER_NOBODY);
    assert_non_null(hak__span_resize(slice, 8 * SLICE_SIZE, false)); /* as it is */
    assert_int_equal(hak__superslab_bytes_free(), free_bytes - 4 * SLICE_SIZE);
    assert_non_null(hak__span_resize(slice, 2 * SLICE_SIZE - 5, false));
    assert_int_equal(hak__span_bytes(slice), 2 * SLICE_SIZE);
    assert_int_equal(hak__superslab_bytes_free(), free_bytes + 2 * SLICE_SIZE);
    assert_int_equal(pattern_mismatch(bytes, 2 * SLICE_SIZE, 1), SIZE_MAX);
    hak__span_free(&cache, &counters, slice);
    hak__span_cache_trim(&cache, true);
    hak__superslab_give(superslab, 40);
    hak__superslab_give(superslab + 48, 16);
}

TESTS(setup)
