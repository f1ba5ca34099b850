/* SPDX-License-Identifier: MIT */
/* test_whale.c: large/whale: mappings of their own, resizing.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "whales.h"

WHALE_TEST(sizes)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 2 * MIB + 1, 5 * MIB - 1, 33 * MIB + 77};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct whale_result result = hak__whale_allocate(sizes[i], 16, true);
        char *whale = result.pointer;
        assert_non_null(whale);
        size_t least = bits_align_up(sizes[i] == 0 ? 1 : sizes[i], page);
        size_t bytes = hak__whale_bytes(whale);
        assert_in_range(bytes, least, least + least / 16);
        assert_true(is_aligned(whale, bytes >= 2 * HUGE_PAGE_SIZE ? HUGE_PAGE_SIZE : page));
        assert_true(result.zeroed);
        assert_int_equal(nonzero_offset(whale, bytes), SIZE_MAX);
        whale[0] = whale[bytes - 1] = 'x';
        struct whale_totals totals = hak__whale_totals();
        assert_int_equal(totals.live_count, 1);
        assert_int_equal(totals.live_bytes, bytes);
        assert_true(hak__whale_free(whale));
        hak__whale_cache_trim(0);
        assert_false(unit_is_mapped((uintptr_t)whale));
        assert_false(unit_is_mapped((uintptr_t)whale + bytes - 1));
    }
}

WHALE_TEST(free_and_bytes_know_only_whales)
{
    char *whale = allocate(small_whale), on_stack;
    void *const strangers[] = {NULL,         &on_stack,           whale + 1,
                               whale + page, whale + small_whale, window_slice_address(0)};
    for (size_t i = 0; i < COUNT_OF(strangers); i++) {
        assert_int_equal(hak__whale_bytes(strangers[i]), 0);
        assert_false(hak__whale_free(strangers[i]));
        assert_null(hak__whale_resize(strangers[i], 2 * small_whale));
    }
    assert_true(hak__whale_free(whale));
    assert_false(hak__whale_free(whale));
    assert_int_equal(hak__whale_bytes(whale), 0);
    assert_true(hak__whale_was_freed(whale));
    assert_false(hak__whale_was_freed(whale + page));
}

WHALE_TEST(resize)
{
    char *whale = allocate(small_whale);
    pattern_fill(whale, small_whale, 3);
    assert_ptr_equal(hak__whale_resize(whale, small_whale - page + 1), whale); /* as it is */
    char *smaller = hak__whale_resize(whale, 2 * MIB + 1);
    assert_ptr_equal(smaller, whale);
    assert_int_equal(hak__whale_bytes(whale), 2 * MIB + page);
    assert_int_equal(hak__whale_totals().cached_bytes, MIB - page); /* its end */
    assert_int_equal(hak__whale_cache_trim(0), MIB - page);
    assert_false(unit_is_mapped((uintptr_t)whale + 2 * MIB + page));
    void *neighbour = unit_block((uintptr_t)whale + 2 * MIB + page); /* so that it moves */
    char *larger = hak__whale_resize(whale, 9 * MIB);
    assert_non_null(larger);
    assert_ptr_not_equal(larger, whale);
    assert_true(is_aligned(larger, HUGE_PAGE_SIZE)); /* from 4 MiB on, wherever it goes */
    assert_int_equal(hak__whale_bytes(larger), 9 * MIB);
    assert_int_equal(hak__whale_bytes(whale), 0);
    assert_false(unit_is_mapped((uintptr_t)whale));
    assert_int_equal(pattern_mismatch(larger, 2 * MIB + page, 3), SIZE_MAX);
    assert_int_equal(nonzero_offset(larger + 2 * MIB + page, 7 * MIB - page), SIZE_MAX);
    struct whale_totals totals = hak__whale_totals();
    assert_int_equal(totals.live_count, 1);
    assert_int_equal(totals.live_bytes, 9 * MIB);
    unit_unblock(neighbour);
    assert_true(hak__whale_free(larger));
    assert_null(hak__whale_resize(larger, MIB)); /* no whale any more */
}

/* What was cut off is there again when the whale grows, unless somebody else has it. */
WHALE_TEST(growth_takes_the_end_back)
{
    char *whale = allocate(9 * MIB);
    pattern_fill(whale, 9 * MIB, 3);
    assert_ptr_equal(hak__whale_resize(whale, 3 * MIB), whale);
    assert_int_equal(hak__whale_totals().cached_bytes, 6 * MIB);
    assert_ptr_equal(hak__whale_resize(whale, 7 * MIB), whale);
    assert_int_equal(hak__whale_totals().cached_bytes, 2 * MIB);
    assert_int_equal(hak__whale_totals().live_bytes, 7 * MIB);
    assert_int_equal(pattern_mismatch(whale, 7 * MIB, 3), SIZE_MAX);
    char *larger = hak__whale_resize(whale, 12 * MIB);
    assert_non_null(larger);
    assert_int_equal(pattern_mismatch(larger, 9 * MIB, 3), SIZE_MAX);
    assert_int_equal(nonzero_offset(larger + 9 * MIB, 3 * MIB), SIZE_MAX);
    assert_int_equal(hak__whale_totals().cached_bytes, 0);
    assert_true(hak__whale_free(larger));
}

/* Each thread keeps some whales with patterns; frees, resizes, allocates. */
static void *use_whales(void *argument)
{
    enum { HELD = 4 };
    struct whale held[HELD] = {{0}};
    uint64_t random = (uintptr_t)argument;
    for (size_t round = 0; round < (SUPPORT_SLOW ? 300 : 1500) + HELD; round++) {
        struct whale *whale = &held[round % HELD];
        size_t size = bits_align_up(2 * MIB + random_below(&random, 2 * MIB), 4096);
        uint64_t *words = (uint64_t *)whale->address;
        if (whale->address != 0) {
            REQUIRE(hak__whale_bytes(words) >= whale->size);
            REQUIRE(words[0] == whale->address && words[whale->size / 16] == whale->size);
        }
        if (whale->address != 0 && random_below(&random, 2) == 0) {
            words[0] = 1;
            words = hak__whale_resize(words, size);
            REQUIRE(words != NULL && words[0] == 1);
        } else {
            REQUIRE(whale->address == 0 || hak__whale_free(words));
            words = hak__whale_allocate(size, 4096, false).pointer;
            REQUIRE(words != NULL);
        }
        *whale = (struct whale)WHALE_OF((uintptr_t)words, size, 1);
        words[0] = whale->address;
        words[size / 16] = size;
        if (round % 50 == 0) {
            hak__whale_cache_trim(0);
        }
    }
    for (size_t i = 0; i < HELD; i++) {
        REQUIRE(hak__whale_free((void *)held[i].address));
    }
    return NULL;
}

WHALE_TEST(threads)
{
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(use_whales, (void *)(uintptr_t)(i + 1));
    }
    JOIN_ALL(threads, COUNT_OF(threads));
}

WHALE_TEST(impossible_sizes)
{
    char *whale = allocate(small_whale);
    errno = ERRNO_UNTOUCHED;
    static const size_t sizes[] = {SIZE_MAX,         SIZE_MAX - 4096,
                                   REQUEST_SIZE_MAX, REQUEST_SIZE_MAX - 4096,
                                   (size_t)1 << 62,  (size_t)1 << 48};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_null(hak__whale_allocate(sizes[i], page, false).pointer);
        assert_null(hak__whale_allocate(sizes[i], GIB, true).pointer);
        assert_null(hak__whale_resize(whale, sizes[i]));
    }
    assert_null(hak__whale_allocate(page, (size_t)1 << 62, false).pointer);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(hak__whale_bytes(whale), small_whale);
    assert_int_equal(hak__whale_totals().live_count, 1);
    assert_true(hak__whale_free(whale));
}

WHALE_TEST(alignments)
{
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        for (int again = 0; again < 3; again++) { /* also from the cache */
            struct whale_result result = hak__whale_allocate(small_whale, alignment, false);
            char *whale = result.pointer;
            assert_true(whale != NULL && is_aligned(whale, alignment));
            whale[0] = whale[small_whale - 1] = 'x';
            assert_true(hak__whale_free(whale));
        }
    }
}

WHALE_TEST(containing)
{
    char *whale = allocate(small_whale);
    assert_int_equal(hak__whale_containing(whale).address, whale);
    assert_int_equal(hak__whale_containing(whale + 12345).address, whale);
    assert_int_equal(hak__whale_containing(whale + small_whale - 1).size, small_whale);
    assert_int_equal(hak__whale_containing(whale + small_whale).address, 0);
    assert_int_equal(hak__whale_containing(whale - 1).address, 0);
    assert_int_equal(hak__whale_containing(NULL).address, 0);
    hak__whale_free(whale);
    assert_int_equal(hak__whale_containing(whale).address, 0);
}

WHALE_TEST(a_cached_whale_is_not_zeroed)
{
    char *whale = allocate(small_whale);
    whale[100] = 'x';
    assert_true(hak__whale_free(whale));
    assert_int_equal(hak__whale_totals().cached_bytes, small_whale);
    struct whale_result result = hak__whale_allocate(small_whale, page, true);
    assert_ptr_equal(result.pointer, whale);
    assert_false(result.zeroed); /* the caller clears: its size is moderate */
    assert_int_equal(whale[100], 'x');
    assert_int_equal(hak__whale_totals().cached_bytes, 0);
    assert_true(hak__whale_free(whale));
}

TESTS(unit_start)
