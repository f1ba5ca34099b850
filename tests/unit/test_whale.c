/* test_whale.c: large/whale: mappings of their own, the cache of freed ones, resizing.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "whales.h"

static void test_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 4097, 2 * MIB + 1, 5 * MIB - 1, 33 * MIB + 77};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct whale_result result = hak__whale_allocate(sizes[i], 16, true);
        char *whale = result.pointer;
        assert_non_null(whale);
        size_t bytes = bits_align_up(sizes[i] == 0 ? 1 : sizes[i], page);
        assert_int_equal(hak__whale_bytes(whale), bytes);
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

static void test_impossible_sizes(void **state)
{
    (void)state;
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

static void test_alignments(void **state)
{
    (void)state;
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

static void test_free_and_bytes_know_only_whales(void **state)
{
    (void)state;
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

static void test_containing(void **state)
{
    (void)state;
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

static void test_a_cached_whale_is_not_zeroed(void **state)
{
    (void)state;
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

static void test_large_zeroed_whales_are_new(void **state)
{
    (void)state;
    hak__knobs.whale_cache_bytes = 256 * MIB;
    size_t size = 40 * MIB;
    char *whale = allocate(size);
    whale[size - 100] = 'x';
    assert_true(hak__whale_free(whale));
    assert_int_equal(hak__whale_totals().cached_bytes, size);
    struct whale_result result = hak__whale_allocate(size, page, true);
    assert_true(result.zeroed);
    assert_ptr_not_equal(result.pointer, whale);
    assert_int_equal(((char *)result.pointer)[size - 100], 0);
    assert_ptr_equal(allocate(size), whale); /* without zeroes the cached one will do */
    assert_true(hak__whale_free(whale));
    assert_true(hak__whale_free(result.pointer));
}

static void test_best_fit(void **state)
{
    (void)state;
    char *large = allocate(small_whale + 300 * KIB), *close = allocate(small_whale + 100 * KIB);
    hak__whale_free(close);
    hak__whale_free(large);
    assert_ptr_equal(allocate(small_whale), close);
    assert_ptr_equal(allocate(small_whale), large);
    hak__whale_free(large);
    hak__whale_free(close);
    assert_ptr_equal(allocate(small_whale), close); /* whichever is older */
    hak__whale_free(close);
}

static void test_larger_ones_are_cut(void **state)
{
    (void)state;
    char *whale = allocate(2 * small_whale);
    pattern_fill(whale, small_whale, 5);
    hak__whale_free(whale);
    struct whale_result result = hak__whale_allocate(small_whale, page, false);
    assert_ptr_equal(result.pointer, whale);
    assert_false(result.zeroed);
    assert_int_equal(hak__whale_bytes(whale), small_whale);
    assert_int_equal(pattern_mismatch(whale, small_whale, 5), SIZE_MAX); /* its warm pages */
    assert_false(unit_is_mapped((uintptr_t)whale + small_whale));
    hak__whale_free(whale);
    hak__whale_cache_trim(0);
    whale = allocate(2 * small_whale + page);
    hak__whale_free(whale);
    char *fresh = allocate(small_whale); /* more than twice too large */
    assert_ptr_not_equal(fresh, whale);
    assert_true(unit_is_mapped((uintptr_t)whale));
    hak__whale_free(fresh);
}

static void test_smaller_ones_are_stretched(void **state)
{
    (void)state;
    char *whale = hak__whale_resize(allocate(2 * small_whale), small_whale);
    pattern_fill(whale, small_whale, 7);
    void *neighbour = unit_block((uintptr_t)whale + small_whale); /* so that it moves */
    hak__whale_free(whale);
    struct whale_result result = hak__whale_allocate(2 * small_whale, page, false);
    char *longer = result.pointer;
    assert_non_null(longer);
    assert_false(result.zeroed);
    assert_int_equal(hak__whale_bytes(longer), 2 * small_whale);
    assert_int_equal(pattern_mismatch(longer, small_whale, 7), SIZE_MAX);
    assert_false(unit_is_mapped((uintptr_t)whale));
    unit_unblock(neighbour);
    hak__whale_free(longer);
    char *fresh = allocate(4 * small_whale + page); /* not half of it is there */
    assert_true(unit_is_mapped((uintptr_t)longer));
    hak__whale_free(fresh);
}

static void test_aligned_requests_move_nothing(void **state)
{
    (void)state;
    char *whale = allocate(2 * small_whale); /* at a huge page */
    hak__whale_free(whale);
    struct whale_result result = hak__whale_allocate(small_whale, HUGE_PAGE_SIZE, false);
    assert_ptr_not_equal(result.pointer, whale);
    assert_true(is_aligned(result.pointer, HUGE_PAGE_SIZE));
    hak__whale_free(result.pointer);
    result = hak__whale_allocate(2 * small_whale - page, HUGE_PAGE_SIZE, false);
    assert_ptr_equal(result.pointer, whale); /* a fit may be used */
    hak__whale_free(result.pointer);
}

static void test_the_youngest_of_equals(void **state)
{
    (void)state;
    char *first = allocate(small_whale), *second = allocate(small_whale);
    hak__whale_free(first);
    hak__whale_free(second);
    assert_ptr_equal(allocate(small_whale), second);
    assert_ptr_equal(allocate(small_whale), first);
    hak__whale_free(second);
    hak__whale_free(first);
    assert_ptr_equal(allocate(small_whale), first);
    hak__whale_free(first);
}

static void test_entries_are_bounded(void **state)
{
    enum { COUNT = WHALE_CACHE_ENTRIES + 3 };
    char *whales[COUNT];
    (void)state;
    hak__knobs.whale_cache_bytes = GIB;
    for (size_t i = 0; i < COUNT; i++) {
        whales[i] = allocate(small_whale);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(hak__whale_free(whales[i]));
        size_t expected = i + 1 < WHALE_CACHE_ENTRIES ? i + 1 : WHALE_CACHE_ENTRIES;
        assert_int_equal(hak__whale_totals().cached_bytes, expected * small_whale);
    }
    for (size_t i = 0; i < COUNT; i++) { /* the oldest are gone */
        assert_int_equal(unit_is_mapped((uintptr_t)whales[i]), i >= COUNT - WHALE_CACHE_ENTRIES);
    }
}

static void test_bytes_are_bounded(void **state)
{
    char *whales[3];
    (void)state;
    hak__knobs.whale_cache_bytes = 2 * small_whale + MIB;
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        whales[i] = allocate(small_whale);
    }
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        hak__whale_free(whales[i]);
    }
    assert_int_equal(hak__whale_totals().cached_bytes, 2 * small_whale);
    assert_false(unit_is_mapped((uintptr_t)whales[0]));
    assert_true(unit_is_mapped((uintptr_t)whales[1]));
    hak__knobs.whale_cache_bytes = 2 * small_whale - page; /* now one is over half of it */
    char *whale = allocate(2 * small_whale + 2 * page);    /* the cached ones are less than half */
    memset(whale, 'x', 2 * small_whale);
    hak__whale_free(whale);
    assert_false(unit_is_mapped((uintptr_t)whale));
    assert_true(unit_is_mapped((uintptr_t)whales[2])); /* and displaced nothing */
    hak__knobs.whale_cache_bytes = 0;
    whale = allocate(8 * MIB);
    hak__whale_free(whale);
    assert_false(unit_is_mapped((uintptr_t)whale));
}

/* A whale with one byte written in each `step` pages. */
static char *allocate_sparse(size_t size, size_t step)
{
    char *whale = allocate(size);
    REQUIRE(madvise(whale, size, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    for (size_t offset = 0; offset < size; offset += step * page) {
        whale[offset] = 'x';
    }
    return whale;
}

/* Of those that are too large for the cache otherwise it counts what is resident, in all of it. */
static void test_sparse_bytes_are_bounded(void **state)
{
    (void)state;
    hak__knobs.whale_cache_bytes = 16 * MIB;        /* 8 MiB of one */
    char *tables[] = {allocate_sparse(10 * MIB, 1), /* dense */
                      allocate_sparse(10 * MIB, 2), /* 5 MiB */
                      allocate_sparse(100 * MIB, 16),
                      allocate_sparse(100 * MIB, 32),
                      allocate_sparse(100 * MIB, 1000),
                      allocate_sparse(129 * MIB, 1000),
                      allocate(40 * MIB)};
    memset(tables[6], 'x', 9 * MIB); /* its middle is empty */
    static const bool cached[COUNT_OF(tables)][COUNT_OF(tables)] = {
        {0, 1, 1, 1, 1, 1, 1}, {0, 1, 1, 1, 1, 1, 1},
        {0, 1, 1, 1, 1, 1, 1}, /* a sixteenth of each of 100 MiB, no matter how empty: 11.25 MiB */
        {0, 0, 1, 1, 1, 1, 1}, /* 17.5 were too many */
        {0, 0, 0, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 0, 1},
        {0, 0, 0, 1, 1, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(tables); i++) {
        hak__whale_free(tables[i]);
        for (size_t j = 0; j < COUNT_OF(tables); j++) {
            assert_int_equal(unit_is_mapped((uintptr_t)tables[j]), cached[i][j]);
        }
    }
    assert_int_equal(hak__whale_totals().cached_bytes, 200 * MIB);
    struct whale_result result = hak__whale_allocate(100 * MIB, page, true); /* to be cleared */
    assert_ptr_equal(result.pointer, tables[4]);
    assert_false(result.zeroed);
    assert_true(hak__whale_free(result.pointer));
    assert_int_equal(hak__whale_cache_trim(0), 200 * MIB);
}

static void test_age(void **state)
{
    (void)state;
    char *old = allocate(small_whale), *young = allocate(small_whale);
    hak__whale_free(old);
    assert_int_equal(hak__whale_cache_trim(60000), 0);
    usleep(120000);
    hak__whale_free(young);
    assert_int_equal(hak__whale_cache_trim(60), small_whale); /* a coarse clock, a busy machine */
    assert_false(unit_is_mapped((uintptr_t)old));
    assert_true(unit_is_mapped((uintptr_t)young));
    assert_int_equal(hak__whale_cache_trim(0), small_whale);
    assert_false(unit_is_mapped((uintptr_t)young));
    assert_int_equal(hak__whale_cache_trim(0), 0);
}

static void test_resize(void **state)
{
    (void)state;
    char *whale = allocate(small_whale);
    pattern_fill(whale, small_whale, 3);
    assert_ptr_equal(hak__whale_resize(whale, small_whale - page + 1), whale); /* as it is */
    char *smaller = hak__whale_resize(whale, 2 * MIB + 1);
    assert_ptr_equal(smaller, whale);
    assert_int_equal(hak__whale_bytes(whale), 2 * MIB + page);
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

/* Each thread keeps some whales with patterns; frees, resizes, allocates. */
static void *use_whales(void *argument)
{
    enum { HELD = 4 };
    struct whale held[HELD] = {{0, 0}};
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
        *whale = (struct whale){(uintptr_t)words, size};
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

static void test_threads(void **state)
{
    pthread_t threads[4];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(use_whales, (void *)(uintptr_t)(i + 1));
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        thread_join(threads[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WHALE_TEST(test_sizes),
        WHALE_TEST(test_impossible_sizes),
        WHALE_TEST(test_alignments),
        WHALE_TEST(test_free_and_bytes_know_only_whales),
        WHALE_TEST(test_containing),
        WHALE_TEST(test_a_cached_whale_is_not_zeroed),
        WHALE_TEST(test_large_zeroed_whales_are_new),
        WHALE_TEST(test_best_fit),
        WHALE_TEST(test_larger_ones_are_cut),
        WHALE_TEST(test_smaller_ones_are_stretched),
        WHALE_TEST(test_aligned_requests_move_nothing),
        WHALE_TEST(test_the_youngest_of_equals),
        WHALE_TEST(test_entries_are_bounded),
        WHALE_TEST(test_bytes_are_bounded),
        WHALE_TEST(test_sparse_bytes_are_bounded),
        WHALE_TEST(test_age),
        WHALE_TEST(test_resize),
        WHALE_TEST(test_threads),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
