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
    return (struct whale){(uintptr_t)address, watched_size, 1};
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

/* What whales may have besides what is known of them. */
static size_t heap_share(void)
{
    return hak__superslab_bytes_claimed() / 4;
}

/* Must be the first: nothing has been watched yet. However large it is, it may be sparse. */
static void test_without_evidence(void **state)
{
    enum { SPANS = 32 };
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    assert_true(heap_share() < 2 * HUGE_PAGE_SIZE);
    assert_false(hak__whale_earns_huge(32 * MIB, false));
    assert_false(hak__whale_earns_huge(1024 * MIB, true));
    void *spans[SPANS];
    for (size_t i = 0; i < SPANS; i++) {
        spans[i] = hak_malloc(MIB);
        assert_non_null(spans[i]);
    }
    assert_true(hak__whale_earns_huge(heap_share(), false));
    assert_false(hak__whale_earns_huge(heap_share() + 1, false));
    assert_false(hak__whale_earns_huge(heap_share(), true));
    hak__knobs.huge_threshold = UINT64_MAX;
    assert_false(hak__whale_earns_huge(heap_share(), false));
    hak__knobs.huge_threshold = 0;
    assert_true(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, false));
    assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE - 1, false));
    for (size_t i = 0; i < SPANS; i++) {
        hak_free(spans[i]);
    }
    hak_trim(0);
}

/* Must be the second. While there is one it decides. */
static void test_the_first_is_evidence(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    for (int zeroed = 0; zeroed < KINDS; zeroed++) {
        struct whale first = map_whale();
        hak__whale_watch(first, zeroed);
        assert_false(hak__whale_earns_huge(16 * MIB, zeroed));
        touch(first, hak__os_page_size());
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed));
        hak__whale_look(first, true);
        unmap_whale(first);
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed));
    }
}

/* Untouched, they never add more than what is known to be in use, and the threshold. */
static void test_as_much_again(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    size_t most = 2 * watched_size + 8 * MIB;
    for (int zeroed = 0; zeroed < KINDS; zeroed++) {
        struct whale other;
        struct whale whale = watch_touched(zeroed, hak__os_page_size(), &other);
        assert_true(hak__whale_earns_huge(most, zeroed));
        assert_false(hak__whale_earns_huge(most + 1, zeroed)); /* much larger than any */
        void *sparse = hak__whale_allocate(64 * MIB, 1, zeroed).pointer;
        assert_false(hak__whale_earns_huge(2 * HUGE_PAGE_SIZE, zeroed)); /* that is in use, too */
        assert_true(hak__whale_free(sparse));
        hak__whale_cache_trim(0);
        unmap_whale(whale);
        unmap_whale(other);
    }
}

/* Huge pages are all resident: what is in them is looked at. */
static void test_zeroes_are_evidence(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    size_t page = hak__os_page_size();
    for (size_t step = page; step <= 16 * page; step *= 16) {
        struct whale other;
        struct whale whale = watch_touched(false, page, &other);
        assert_true(hak__whale_earns_huge(16 * MIB, false));
        struct whale huge = map_whale();
        memset((void *)huge.address, 0, huge.size);
        touch(huge, step);
        hak__whale_look(huge, false);
        assert_int_equal(hak__whale_earns_huge(16 * MIB, false), step == page);
        unmap_whale(huge);
        unmap_whale(whale);
        unmap_whale(other);
    }
}

static void test_what_is_seen_decides(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 8 * MIB;
    size_t page = hak__os_page_size();
    for (int zeroed = 0; zeroed < KINDS; zeroed++) {
        struct whale others[3];
        bool of_the_other_kind = hak__whale_earns_huge(16 * MIB, !zeroed);
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
        assert_int_equal(hak__whale_earns_huge(16 * MIB, !zeroed), of_the_other_kind);
        touch(sparse, page);
        assert_true(hak__whale_earns_huge(16 * MIB, zeroed)); /* it is looked at anew each time */
        hak__whale_look(others[2], true);
        hak__whale_look(sparse, true);
        const struct whale all[] = {dense, half, sparse, others[0], others[1], others[2]};
        for (size_t i = 0; i < COUNT_OF(all); i++) {
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
    hak__whale_look(whale, true);
    unmap_whale(whale);
    assert_true(hak__whale_earns_huge(16 * MIB, false));
    hak__whale_look(other, true);
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
        hak__whale_look(sparse, true);
        hak__whale_look(untouched, true);
        unmap_whale(sparse);
        unmap_whale(untouched);
        void *whales[WATCHED + 1];
        uint64_t asked = hak__os_calls[OS_CALL_HUGE];
        for (size_t i = 0; i < COUNT_OF(whales); i++) {
            assert_int_equal(hak__os_calls[OS_CALL_HUGE] - asked, 0);
            whales[i] = hak__whale_allocate(5 * MIB, 1, zeroed).pointer;
            assert_non_null(whales[i]);
            touch((struct whale){(uintptr_t)whales[i], 5 * MIB, 1}, hak__os_page_size());
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
    support_small_pages();
    const struct CMUnitTest tests[] = {
        UNIT_TEST_WITH_KNOBS(test_without_evidence),
        UNIT_TEST_WITH_KNOBS(test_the_first_is_evidence),
        UNIT_TEST_WITH_KNOBS(test_as_much_again),
        UNIT_TEST_WITH_KNOBS(test_zeroes_are_evidence),
        UNIT_TEST_WITH_KNOBS(test_what_is_seen_decides),
        UNIT_TEST_WITH_KNOBS(test_freed_whales_are_remembered),
        UNIT_TEST_WITH_KNOBS(test_moved_whales_are_followed),
        UNIT_TEST_WITH_KNOBS(test_whales_earn_them),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
