/* test_whale_pages.c: large/whale_pages: which whales get huge pages, by what became of others. */
#include "unit.h"

#include "large/whale_pages.h"
#include "large/whale_registry.h"
#include "region/huge.h"

enum { KINDS = 2, WATCHED = 2 };
static const size_t watched_size = 6 * MIB;

static struct whale map_whale(void)
{
    void *address;
    REQUIRE(hak__os_map(watched_size, hak__os_page_size(), &address) == 0);
    return (struct whale){(uintptr_t)address, watched_size};
}

static void unmap_whale(struct whale whale)
{
    REQUIRE(hak__os_unmap((void *)whale.address, whale.size) == 0);
}

/* One byte in each `step` bytes. */
static void touch(struct whale whale, size_t step)
{
    for (size_t offset = 0; offset < whale.size; offset += step) {
        ((volatile char *)whale.address)[offset] = 1;
    }
}

/* Watches a whale that is touched so, then another, so that the first is the one looked at. */
static struct whale watch_touched(bool zeroed, size_t step, struct whale *other)
{
    struct whale whale = map_whale();
    *other = map_whale();
    touch(whale, step);
    hak__whale_watch(whale, zeroed);
    hak__whale_watch(*other, zeroed);
    return whale;
}

/* Must be the first: nothing has been watched yet. */
static void test_without_evidence(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    size_t claimed = hak__superslab_bytes_claimed();
    assert_true(claimed < 8 * MIB);
    assert_false(hak__whale_earns_huge(32 * MIB - claimed - 1, false));
    assert_true(hak__whale_earns_huge(32 * MIB, false));
    assert_false(hak__whale_earns_huge(1024 * MIB, true));
    hak__knobs.huge_threshold = UINT64_MAX;
    assert_false(hak__whale_earns_huge(1024 * MIB, false));
    hak__knobs.huge_threshold = 0;
    assert_true(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, false));
    assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE - 1, false));
}

/* Must be the second. While there is one it decides, or much memory does. */
static void test_the_first_is_evidence(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    for (int zeroed = 0; zeroed < KINDS; zeroed++) {
        struct whale first = map_whale();
        hak__whale_watch(first, zeroed);
        assert_false(hak__whale_earns_huge(16 * MIB, zeroed));
        assert_int_equal(hak__whale_earns_huge(32 * MIB, zeroed), !zeroed);
        touch(first, hak__os_page_size());
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed));
        hak__whale_watch_end(first);
        unmap_whale(first);
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed));
    }
}

static void test_what_is_seen_decides(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    size_t page = hak__os_page_size();
    for (int zeroed = 0; zeroed < KINDS; zeroed++) {
        struct whale others[3];
        struct whale dense = watch_touched(zeroed, page, &others[0]);
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed));
        assert_false(hak__whale_earns_huge(MIB, zeroed)); /* too small for one */
        hak__knobs.huge_threshold = 1024 * MIB;           /* all memory is too little */
        assert_false(hak__whale_earns_huge(16 * MIB, zeroed));
        hak__knobs.huge_threshold = 8 * MIB;
        struct whale half = watch_touched(zeroed, 2 * page, &others[1]);
        assert_false(hak__whale_earns_huge(16 * MIB, zeroed));
        struct whale sparse = watch_touched(zeroed, 16 * page, &others[2]);
        assert_false(hak__whale_earns_huge(1024 * MIB, zeroed));
        assert_int_equal(hak__whale_earns_huge(16 * MIB, !zeroed), true); /* kinds are apart */
        touch(sparse, page);
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed)); /* it is looked at anew each time */
        const struct whale all[] = {dense, half, sparse, others[0], others[1], others[2]};
        for (size_t i = 0; i < COUNT_OF(all); i++) {
            hak__whale_watch_end(all[i]);
            unmap_whale(all[i]);
        }
    }
}

/* What was seen at the end counts, not what lies at that address later. */
static void test_freed_whales_are_remembered(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    struct whale other;
    struct whale whale = watch_touched(false, hak__os_page_size(), &other);
    hak__whale_watch_end(whale);
    unmap_whale(whale);
    assert_true(hak__whale_earns_huge(16 * MIB, false));
    hak__whale_watch_end(whale); /* once only */
    assert_true(hak__whale_earns_huge(16 * MIB, false));
    hak__whale_watch_end(other);
    unmap_whale(other);
    struct whale last = watch_touched(false, hak__os_page_size(), &other);
    unmap_whale(last); /* without a word, as a reshaping that fails does */
    assert_false(hak__whale_earns_huge(16 * MIB, false));
    unmap_whale(other);
}

static void test_moved_whales_are_followed(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    struct whale other;
    struct whale whale = watch_touched(false, hak__os_page_size(), &other);
    struct whale to = map_whale();
    touch(to, hak__os_page_size());
    hak__whale_watch_moved(whale.address, to);
    unmap_whale(whale);
    assert_true(hak__whale_earns_huge(16 * MIB, false));
    hak__whale_watch_moved(whale.address, other); /* nobody watches that address any more */
    assert_true(hak__whale_earns_huge(16 * MIB, false));
    unmap_whale(to);
    assert_false(hak__whale_earns_huge(16 * MIB, false));
    unmap_whale(other);
}

/* By way of the whales themselves: the third of a row of filled ones has huge pages. */
static void test_whales_earn_them(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 4 * MIB;
    hak__huge_page_us_max = UINT64_MAX; /* however long this machine takes */
    for (int zeroed = 0; zeroed < KINDS; zeroed++) {
        struct whale untouched;
        struct whale sparse = watch_touched(zeroed, watched_size, &untouched);
        hak__whale_watch_end(sparse);
        hak__whale_watch_end(untouched);
        unmap_whale(sparse);
        unmap_whale(untouched);
        void *whales[WATCHED + 1];
        uint64_t asked = hak__os_calls[OS_CALL_HUGE];
        for (size_t i = 0; i < COUNT_OF(whales); i++) {
            assert_int_equal(hak__os_calls[OS_CALL_HUGE] - asked, 0);
            whales[i] = hak__whale_allocate(5 * MIB, 1, zeroed).pointer;
            assert_non_null(whales[i]);
            touch((struct whale){(uintptr_t)whales[i], 5 * MIB}, hak__os_page_size());
        }
        assert_int_equal(hak__os_calls[OS_CALL_HUGE] - asked, 1);
        for (size_t i = 0; i < COUNT_OF(whales); i++) {
            assert_true(hak__whale_free(whales[i]));
        }
        hak__whale_cache_trim(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_TEST_WITH_KNOBS(test_without_evidence),
        UNIT_TEST_WITH_KNOBS(test_the_first_is_evidence),
        UNIT_TEST_WITH_KNOBS(test_what_is_seen_decides),
        UNIT_TEST_WITH_KNOBS(test_freed_whales_are_remembered),
        UNIT_TEST_WITH_KNOBS(test_moved_whales_are_followed),
        UNIT_TEST_WITH_KNOBS(test_whales_earn_them),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
