/* SPDX-License-Identifier: MIT */
/* test_huge.c: large/huge: mappings of their own, resizing; large/huge_join: huge blocks of the
 * pages of several; large/huge_cache: what is kept of freed ones, and for how long.
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include "large/huge_cache.h"
#include "region/mappings.h"

static size_t page;
static const size_t small_huge = 3 * MIB;

/* Each test starts with an empty cache that holds what was in use since, however long ago, at most
 * 64 MiB; and no huge block has huge pages. */
static inline int huge_setup(void **state)
{
    page = hak__os_page_size();
    unit_save_knobs(state);
    hak__superslab_purge(); /* free slices that are dirty count as well */
    hak__huge_cache_trim(0);
    hak__knobs.huge_cache_bytes = 64 * MIB;
    hak__knobs.purge_delay_ms = UINT32_MAX;
    hak__knobs.huge_threshold = UINT64_MAX;
    return 0;
}

static inline int huge_teardown(void **state)
{
    hak__huge_cache_trim(0);
    unit_restore_knobs(state);
    struct huge_totals totals = hak__huge_totals();
    return totals.live_count + totals.live_bytes + totals.cached_bytes == 0 ? 0 : -1;
}

#define HUGE_TEST(name) TEST_WITH(name, huge_setup, huge_teardown)

static inline char *allocate(size_t size)
{
    struct huge_result result = hak__huge_allocate(size, page, false, true);
    REQUIRE(result.pointer != NULL);
    return result.pointer;
}

static size_t cached_bytes(void)
{
    return hak__huge_totals().cached_bytes;
}

/* What was cut off is there again when the huge block grows, unless somebody else has it. */
HUGE_TEST(growth_takes_the_end_back)
{
    char *block = allocate(9 * MIB);
    pattern_fill(block, 9 * MIB, 3);
    assert_ptr_equal(hak__huge_resize(block, 3 * MIB, false).pointer, block);
    assert_int_equal(cached_bytes(), 6 * MIB);
    assert_ptr_equal(hak__huge_resize(block, 7 * MIB, false).pointer, block);
    assert_int_equal(cached_bytes(), 2 * MIB);
    assert_int_equal(hak__huge_totals().live_bytes, 7 * MIB);
    assert_int_equal(pattern_mismatch(block, 7 * MIB, 3), SIZE_MAX);
    char *larger = hak__huge_resize(block, 12 * MIB, false).pointer;
    assert_non_null(larger);
    assert_int_equal(pattern_mismatch(larger, 9 * MIB, 3), SIZE_MAX);
    assert_int_equal(nonzero_offset(larger + 9 * MIB, 3 * MIB), SIZE_MAX);
    assert_int_equal(cached_bytes(), 0);
    assert_true(hak__huge_free(larger));
}

enum { COUNT = 3 };

/* Three freed huge blocks of 6 MiB, none of which is half of what is asked for then; the first word
 * of each page is its number. */
static void free_three(void)
{
    uint64_t *huge[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        huge[i] = (uint64_t *)(void *)allocate(6 * MIB);
    }
    for (size_t i = 0, number = 1; i < COUNT; i++) {
        for (size_t at = 0; at < 6 * MIB; at += page) {
            huge[i][at / 8] = number++;
        }
        REQUIRE(hak__huge_free(huge[i]));
    }
}

/* Pages of [start, start + size) that had numbers, each of them once. */
static size_t pages_from_before(const char *start, size_t size)
{
    static bool seen[COUNT * 6 * MIB / 4096 + 1];
    size_t count = 0;
    memset(seen, 0, sizeof seen);
    for (size_t at = 0; at < size; at += page) {
        uint64_t number = *(const uint64_t *)(const void *)(start + at);
        REQUIRE(number < COUNT_OF(seen) && (number == 0 || !seen[number]));
        seen[number] = true;
        count += number != 0;
    }
    return count;
}

HUGE_TEST(joined_of_several)
{
    free_three();
    size_t size = 14 * MIB + 300 * KIB;
    struct huge_result result = hak__huge_allocate(size, page, false, true);
    char *block = result.pointer;
    assert_true(block != NULL && is_aligned(block, HUGE_PAGE_SIZE));
    assert_false(result.zeroed);
    assert_int_equal(hak__huge_bytes(block), size);
    size_t parts = HAK_TINY_LIMITS ? 3 : 4; /* at level 2 the end has no part of its own */
    size_t old = pages_from_before(block, size);
    assert_true(old == size / page || (parts == 3 && old >= 14 * MIB / page));
    assert_true(hak__huge_joined_bytes == size);
    memset(block, 'x', size); /* all of it can be written */
    assert_true(hak__huge_free(block));
    hak__huge_cache_trim(0);
    assert_int_equal(hak__huge_joined_bytes, 0);
    free_three(); /* what the cache has not is new and zero */
    block = allocate(size = 40 * MIB);
    assert_int_equal(pages_from_before(block, size), 18 * MIB / page);
    assert_int_equal(nonzero_offset(block + 18 * MIB, size - 18 * MIB), SIZE_MAX);
    assert_int_equal(cached_bytes(), 0);
    assert_true(hak__huge_free(block));
}

HUGE_TEST(joined_huge_are_resized)
{
    free_three();
    size_t size = 14 * MIB + page;
    char *block = allocate(size);
    pattern_fill(block, size, 9);
    hak__huge_cache_trim(0);
    void *neighbour = unit_block((uintptr_t)block + size); /* so that it moves */
    char *larger = hak__huge_resize(block, 20 * MIB, false).pointer;
    assert_non_null(larger);
    assert_ptr_not_equal(larger, block);
    assert_int_equal(hak__huge_bytes(larger), 20 * MIB);
    assert_int_equal(hak__huge_joined_bytes, 20 * MIB);
    assert_int_equal(pattern_mismatch(larger, size, 9), SIZE_MAX);
    assert_int_equal(nonzero_offset(larger + size, 20 * MIB - size), SIZE_MAX);
    assert_false(unit_is_mapped((uintptr_t)block));
    block = larger;
    unit_unblock(neighbour);
    assert_ptr_equal(hak__huge_resize(block, 5 * MIB, false).pointer, block);
    assert_int_equal(pattern_mismatch(block, 5 * MIB, 9), SIZE_MAX);
    assert_ptr_equal(hak__huge_resize(block, 5 * MIB + 16 * page, false).pointer,
                     block); /* or its slack */
    assert_true(hak__huge_free(block));
    hak__huge_cache_trim(0);
    assert_int_equal(hak__huge_joined_bytes, 0);
}

/* --- what is kept --- */

/* A huge block without a multiple of 1 GiB in it: what is asked for at such a multiple gets a new
 * mapping, and no part of this huge block when it is freed. */
static char *allocate_inside_a_gib(size_t size)
{
    for (;;) {
        char *block = allocate(size);
        if (bits_align_up((uintptr_t)block, GIB) >= (uintptr_t)block + size) {
            return block;
        }
        hak__huge_free(block);
        hak__huge_cache_trim(0);
        support_map(256 * MIB); /* the next one lies elsewhere */
    }
}

/* What is kept and what is in use are together never more than the most that was in use, of
 * superslabs, too. */
HUGE_TEST(no_peak_is_raised)
{
    hak__knobs.huge_cache_bytes = UINT64_MAX;
    char *first = allocate_inside_a_gib(8 * MIB), *second = allocate_inside_a_gib(12 * MIB);
    hak__huge_free(first);
    hak__huge_free(second);
    assert_int_equal(cached_bytes(), 20 * MIB);
    char *aligned = hak__huge_allocate(small_huge, GIB, false, true).pointer; /* a new mapping */
    assert_non_null(aligned);
    assert_in_range(cached_bytes(), 15 * MIB, 17 * MIB);
    assert_false(unit_is_mapped((uintptr_t)first + 6 * MIB)); /* of the oldest the end */
    assert_true(unit_is_mapped((uintptr_t)first));
    size_t slices[8];
    size_t before = hak__superslab_bytes_claimed() - hak__superslab_bytes_free();
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB).slice;
        REQUIRE(slices[i] != SLICE_NONE);
    }
    size_t grown = hak__superslab_bytes_claimed() - hak__superslab_bytes_free() - before;
    assert_int_equal(grown, 16 * MIB);
    hak__huge_cache_trim(UINT32_MAX);
    assert_in_range(cached_bytes(), 0, 2 * MIB);
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
    hak__huge_free(aligned);
}

HUGE_TEST(the_peak_is_forgotten)
{
    assert_true(hak__huge_free(allocate(small_huge)));
    hak__superslab_turn_use(false);
    hak__huge_cache_trim(UINT32_MAX);
    assert_int_equal(cached_bytes(), small_huge);
    hak__superslab_turn_use(false);
    hak__huge_cache_trim(UINT32_MAX);
    assert_int_equal(cached_bytes(), 0);
    assert_true(hak__huge_free(allocate(64 * MIB))); /* of which nothing was touched */
    assert_int_equal(hak__superslab_wanted(), 4 * MIB);
    hak__knobs.purge_delay_ms = 0; /* nothing is kept then */
    assert_true(hak__huge_free(allocate(small_huge)));
    assert_int_equal(cached_bytes(), 0);
}

/* A block that was unmapped to stay within the peak is kept once it was missed, for two periods. */
HUGE_TEST(what_was_missed_is_kept)
{
    assert_true(hak__huge_free(allocate_inside_a_gib(small_huge)));
    char *aligned = hak__huge_allocate(small_huge, GIB, false, true).pointer;
    assert_non_null(aligned);
    assert_int_equal(cached_bytes(), 0); /* both would be more than the peak */
    assert_int_equal(hak__superslab_wanted(), 0);
    assert_true(hak__huge_free(allocate(small_huge)));
    assert_int_equal(hak__superslab_wanted(), 2 * small_huge);
    assert_true(hak__huge_free(aligned));
    assert_int_equal(cached_bytes(), 2 * small_huge);
    assert_int_equal(hak__superslab_wanted(), 3 * small_huge);
    hak__huge_cache_trim(0);
    hak__superslab_turn_use(false);
    hak__superslab_turn_use(false);
    assert_int_equal(hak__superslab_wanted(), 0);
}

/* --- no mappings, and no addresses --- */

static bool is_in_window(const void *block)
{
    return (uintptr_t)block - hak__window.base < hak__window.size;
}

/* Many huge blocks side by side are one mapping, but count as many. When hakmem's own
 * addresses are used up, too, more of them can be had all the same: a program with 1,000,000 blocks
 * of 2.1 MB got NULL at the 321,121st. */
TEST(mappings_count_as_short_and_no_address_is_left)
{
    size_t size = hak__window.size;
    REQUIRE(hak_malloc(100) != NULL);
    mappings_add_huge(MAPPINGS_MAX);
    char *spans[64];
    size_t count = 0;
    hak__window.size = bits_align_up(hak__superslab_first.frontier, SUPERSLAB_SLICES) * SLICE_SIZE;
    while (count < COUNT_OF(spans) && is_in_window(spans[count] = hak_malloc(3 * MIB))) {
        count++; /* what was free in the window */
    }
    char *last = count == COUNT_OF(spans) ? NULL : spans[count];
    assert_non_null(last);
    memset(last, 'x', 3 * MIB);
    char *cleared = hak_calloc(3, MIB);
    assert_non_null(cleared);
    for (size_t i = 0; i < 3 * MIB; i += 512) {
        assert_int_equal(cleared[i], 0);
    }
    last = hak_realloc(last, 5 * MIB);
    assert_non_null(last);
    assert_int_equal(last[3 * MIB - 1], 'x');
    mappings_remove_huge(MAPPINGS_MAX);
    hak__window.size = size;
    hak_free(cleared);
    hak_free(last);
    while (count != 0) {
        hak_free(spans[--count]);
    }
}

TESTS(unit_start)
