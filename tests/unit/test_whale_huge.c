/* SPDX-License-Identifier: MIT */
/* test_whale_huge.c: large/whale: whales that have huge pages grow, end and are looked into.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "whales.h"

#include "region/huge.h"

WHALE_TEST(resize_with_huge_pages)
{
    hak__knobs.huge_threshold = 0;
    size_t size = 5 * MIB + page; /* the last page is in no huge page */
    char *whale = allocate(size);
    pattern_fill(whale, size, 9);
    char *larger = hak__whale_resize(whale, 9 * MIB + page);
    assert_non_null(larger);
    assert_int_equal(pattern_mismatch(larger, size, 9), SIZE_MAX);
    char *smaller = hak__whale_resize(larger, 3 * MIB + page);
    assert_ptr_equal(smaller, larger);
    assert_true(hak__whale_free(smaller));
}

/* Evidence: two whales that were filled. From now on whales earn huge pages. */
static void earn_huge(void)
{
    char *whales[2];
    hak__huge_page_us_max = UINT64_MAX; /* however long this machine takes */
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        whales[i] = allocate(24 * MIB);
        memset(whales[i], 'x', 24 * MIB);
    }
    for (size_t i = 0; i < COUNT_OF(whales); i++) {
        hak__whale_free(whales[i]);
    }
    hak__whale_cache_trim(0);
    hak__knobs.huge_threshold = 0;
}

/* Filled ones are followed by some with huge pages, which whales of the other kind do not get. */
WHALE_TEST(filled_whales_lead_to_huge_ones)
{
    enum { WHALES = 8, SIZE = 5 * MIB };
    void *whales[WHALES];
    char *sparse = support_map(SIZE);
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        for (size_t i = 0; i < 4; i++) {
            struct huge_sample block = {
                .address = sparse, .size = SIZE, .dense_percent = HUGE_DENSE_PERCENT};
            hak__huge_watch(&hak__whale_evidence[i % 2], block);
        }
        hak__knobs.huge_threshold = 4 * MIB;
        assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, !zeroed));
        uint64_t asked = hak__os_calls[OS_CALL_HUGE];
        for (size_t i = 0; i < WHALES; i++) {
            whales[i] = hak__whale_allocate(SIZE, 1, zeroed).pointer;
            assert_non_null(whales[i]);
            memset(whales[i], 'x', SIZE);
            assert_true(i > 1 || hak__os_calls[OS_CALL_HUGE] == asked);
        }
        assert_in_range(hak__os_calls[OS_CALL_HUGE] - asked, 1, WHALES - 2);
        for (size_t i = 0; i < WHALES; i++) {
            assert_true(hak__whale_free(whales[i]));
        }
        hak__whale_cache_trim(0);
        assert_true(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, zeroed));
        assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE - 1, zeroed)); /* too small */
        assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, !zeroed));
        assert_false(hak__whale_earns_huge(GIB, zeroed)); /* much larger than all were */
        hak__knobs.huge_threshold = GIB;                  /* all memory is too little */
        assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, zeroed));
    }
    munmap(sparse, SIZE);
}

/* Wherever it goes its pages lie as they did in their huge pages, and what is new is asked for. */
WHALE_TEST(huge_whales_grow)
{
    earn_huge();
    size_t size = 16 * MIB;
    char *whale = allocate(size);
    pattern_fill(whale, size, 4);
    for (int i = 0; i < 8; i++) { /* a whole huge page more each time, and there is no room */
        void *neighbour = unit_block((uintptr_t)whale + size);
        uint64_t asked = hak__os_calls[OS_CALL_HUGE];
        whale = hak__whale_resize(whale, size + 2 * MIB - 64 * KIB);
        assert_non_null(whale);
        assert_true(is_aligned(whale, HUGE_PAGE_SIZE));
        assert_int_equal(hak__whale_bytes(whale), size + 2 * MIB);
        assert_int_equal(hak__os_calls[OS_CALL_HUGE] - asked, 1);
        unit_unblock(neighbour);
        size += 2 * MIB;
    }
    assert_int_equal(pattern_mismatch(whale, 16 * MIB, 4), SIZE_MAX);
    assert_ptr_equal(hak__whale_resize(whale, size - 3 * MIB), whale); /* at most an eighth less */
    assert_int_equal(hak__whale_bytes(whale), size);
    void *neighbour = unit_block((uintptr_t)whale + size);
    hak__whale_free(whale);
    whale = allocate(size + 3 * MIB); /* stretched */
    assert_true(is_aligned(whale, HUGE_PAGE_SIZE));
    assert_int_equal(hak__whale_bytes(whale), size + 4 * MIB);
    assert_int_equal(pattern_mismatch(whale, 16 * MIB, 4), SIZE_MAX);
    unit_unblock(neighbour);
    size = hak__whale_bytes(whale);
    usleep(20000); /* none has been timed in this tick of the clock */
    hak__huge_page_us_max = UINT64_MAX - 1;
    whale = hak__whale_resize(whale, size + 4 * MIB);
    assert_int_equal(hak__os_resident(whale + size, HUGE_PAGE_SIZE), HUGE_PAGE_SIZE);
    assert_int_equal(hak__os_resident(whale + size + HUGE_PAGE_SIZE, HUGE_PAGE_SIZE), 0);
    hak__whale_free(whale);
}

/* A whale with huge pages that becomes much larger than anything known has small ones from there.
 */
WHALE_TEST(huge_whales_grow_sparse)
{
    earn_huge();
    char *whale = allocate(16 * MIB);
    pattern_fill(whale, 16 * MIB, 5);
    uint64_t asked = hak__os_calls[OS_CALL_HUGE];
    whale = hak__whale_resize(whale, 512 * MIB);
    assert_non_null(whale);
    assert_int_equal(hak__os_calls[OS_CALL_HUGE], asked);
    for (size_t at = 16 * MIB; at < 512 * MIB; at += HUGE_PAGE_SIZE) {
        whale[at + 5 * page] = 'x';
    }
    for (size_t at = 16 * MIB; at < 512 * MIB; at += 2 * HUGE_PAGE_SIZE) {
        assert_int_equal(hak__os_resident(whale + at, HUGE_PAGE_SIZE), page);
    }
    assert_int_equal(pattern_mismatch(whale, 16 * MIB, 5), SIZE_MAX);
    hak__whale_free(whale);
}

/* Alignment to huge pages is a wish: it costs no memory that is there. */
static void allocate_near_limit(void *argument)
{
    size_t size = 8 * MIB - 512 * KIB;
    earn_huge();
    hak__knobs.huge_threshold = UINT64_MAX;
    struct rlimit limit = {address_space_bytes() + size + MIB, RLIM_INFINITY};
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    char *whale = allocate(size);
    whale[size - 1] = 'x';
    REQUIRE(hak__whale_allocate(size, HUGE_PAGE_SIZE, false).pointer == NULL);
    /* The end of the huge page it earns is too much: it grows all the same. */
    hak__knobs.huge_threshold = 0;
    REQUIRE(hak__whale_earns_huge(size, false));
    whale = hak__whale_resize(whale, size + MIB - page);
    REQUIRE(whale != NULL && hak__whale_bytes(whale) == size + MIB - page);
    REQUIRE(hak__whale_free(whale));
    hak__whale_cache_trim(0);
    whale = allocate(size + MIB - page); /* so it is with a new one */
    REQUIRE(hak__whale_bytes(whale) == size + MIB - page);
    REQUIRE(hak__whale_free(whale));
}

WHALE_TEST(near_a_limit)
{
    hak__whale_free(allocate(small_whale)); /* the registry has its table */
    REQUIRE_LIFE(allocate_near_limit, NULL, NULL);
}

int main(void)
{
    hak__huge_page_us_max = UINT64_MAX; /* however long this machine takes */
    return tests_run(unit_start, NULL);
}
