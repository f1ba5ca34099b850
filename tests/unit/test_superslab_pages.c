/* SPDX-License-Identifier: MIT */
/* test_superslab_pages.c: region/superslab_pages: which superslabs get huge pages, what they are
 * then, and that what goes back of one stays away (what the kernel's khugepaged joins is resident
 * again: golang #8832). */
#include "unit.h"

/* Released superslabs, claimed anew as whole ones whatever they are claimed for, and nothing else
 * that is free. */
enum { STOCK = 24, LEFTOVERS_MAX = 4096 };
static size_t leftovers[LEFTOVERS_MAX];
static size_t leftovers_count;
static size_t claimed[STOCK];
static size_t claimed_count;

static int huge_setup(void **state)
{
    unit_save_knobs(state);
    hak__huge_page_us_max = UINT64_MAX; /* however long this machine takes */
    unit_free_superslabs(STOCK);
    hak__superslab_release(SIZE_MAX);
    REQUIRE_SIZE(hak__superslabs.released_count, >=, STOCK);
    for (leftovers_count = 0; hak__superslab_bytes_free() != 0; leftovers_count++) {
        REQUIRE(leftovers_count < LEFTOVERS_MAX);
        leftovers[leftovers_count] = hak__superslab_take(0, 1, 1).slice;
    }
    hak__knobs.huge_threshold = 0;
    claimed_count = 0;
    for (enum huge_pages_kind kind = HUGE_PAGES_SLABS; kind <= HUGE_SPANS; kind++) {
        unit_set_evidence(kind, true);
    }
    return 0;
}

static int huge_teardown(void **state)
{
    for (size_t i = 0; i < claimed_count; i++) {
        hak__superslab_give(claimed[i], SUPERSLAB_SLICES);
    }
    for (size_t i = 0; i < leftovers_count; i++) {
        hak__superslab_give(leftovers[i], 1);
    }
    return unit_restore_knobs(state);
}

#define HUGE_TEST(name) TEST_WITH(name, huge_setup, huge_teardown)

/* A superslab claimed for `count` slices, all of it taken and the first `touched` bytes touched:
 * true when it got huge pages. */
static bool claim(uint32_t count, size_t touched)
{
    size_t before = hak__superslab_bytes_claimed();
    struct slice_run run = hak__superslab_take(0, count, 1);
    REQUIRE(run.slice != SLICE_NONE && run.slice % SUPERSLAB_SLICES == 0);
    REQUIRE_SIZE(hak__superslab_bytes_claimed() - before, ==, SUPERSLAB_SIZE);
    REQUIRE(count == SUPERSLAB_SLICES ||
            hak__superslab_take_exact(run.slice + count, SUPERSLAB_SLICES - count));
    claimed[claimed_count++] = run.slice;
    char *bytes = window_slice_address(run.slice);
    bool huge = superslab_at(run.slice / SUPERSLAB_SLICES)->huge_pages != 0;
    memset(bytes, 'x', touched);
    return huge;
}

static bool superslab_has_flag(size_t slice, const char *flag)
{
    return unit_mapping_has_flag(window_slice_address(slice), flag);
}

/* Not so in emulators. */
static bool kernel_shows_huge_pages(void)
{
    char *probe = support_map(HUGE_PAGE_SIZE);
    bool shows = unit_has_huge_pages() && hak__os_huge_pages(probe, HUGE_PAGE_SIZE) == 0 &&
                 unit_mapping_has_flag(probe, " hg");
    munmap(probe, HUGE_PAGE_SIZE);
    return shows;
}

/* A program that fills its superslabs gets huge pages, and when it stops never more than it had. */
HUGE_TEST(filled_superslabs_lead_to_huge_ones)
{
    static const uint32_t counts[] = {1, 2, SUPERSLAB_SLICES};
    SKIP_IF(!unit_has_huge_pages());
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        huge_teardown(state);
        huge_setup(state);
        for (enum huge_pages_kind kind = HUGE_PAGES_SLABS; kind <= HUGE_SPANS; kind++) {
            unit_set_evidence(kind, false);
        }
        assert_false(claim(counts[i], SUPERSLAB_SIZE));
        while (!claim(counts[i], SUPERSLAB_SIZE)) {
            REQUIRE(claimed_count < STOCK / 2);
        }
        size_t before = hak__superslab_bytes_claimed();
        uint32_t small = 0;
        while (small < 3 && claimed_count < STOCK) {
            bool huge = claim(counts[i], 0);
            assert_true(!huge || (small < 2 && hak__superslab_bytes_claimed() <= 2 * before));
            small += !huge;
        }
    }
}

/* A program that leaves every second superslab untouched gets huge pages for some, and never has
 * more than twice the memory that it fills. One that fills one in four stops getting them. */
HUGE_TEST(some_superslabs_are_filled)
{
    SKIP_IF(!unit_has_huge_pages());
    for (uint32_t period = 2; period <= 4; period += 2) {
        uint32_t filled = 0, untouched = 0, huge = 0;
        huge_teardown(state);
        huge_setup(state);
        unit_set_evidence(HUGE_PAGES_SLABS, false);
        for (uint32_t i = 0; i < STOCK / 2; i++) {
            bool fills = i % period == 0, has = claim(1, fills ? SUPERSLAB_SIZE : 0);
            filled += fills;
            untouched += has && !fills;
            huge += has;
        }
        assert_in_range(untouched, 0, filled);
        assert_int_equal(huge > 1, period == 2);
    }
}

/* A superslab that was claimed with huge pages, taken as a whole and filled. */
static size_t claim_huge(void)
{
    assert_true(claim(SUPERSLAB_SLICES, SUPERSLAB_SIZE));
    size_t slice = claimed[--claimed_count];
    assert_true(superslab_has_flag(slice, " hg"));
    return slice;
}

static struct superslab *superslab_of(size_t slice)
{
    return superslab_at(slice / SUPERSLAB_SLICES);
}

static size_t superslab_resident(size_t slice)
{
    return hak__os_resident(window_slice_address(slice), SUPERSLAB_SIZE);
}

enum { PART = 10, PART_FIRST = 20 };

/* Claims a superslab with huge pages and gives back a part of it. */
static size_t claim_and_purge_part(void)
{
    size_t slice = claim_huge();
    hak__superslab_give(slice + PART_FIRST, PART);
    assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
    return slice;
}

static void give_the_rest(size_t slice)
{
    hak__superslab_give(slice, PART_FIRST);
    hak__superslab_give(slice + PART_FIRST + PART, SUPERSLAB_SLICES - PART_FIRST - PART);
}

/* When all of it has been purged; not when all of it is in use, of which a part may go back soon.
 */
HUGE_TEST(a_split_superslab_is_joined)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t split = hak__superslabs.split_count, slice = claim_and_purge_part();
    assert_int_equal(hak__superslabs.split_count, split + 1);
    assert_true(hak__superslab_take_exact(slice + PART_FIRST, PART));
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slice, " nh"));
    hak__superslab_give(slice + PART_FIRST, PART);
    hak__superslab_purge(true);
    give_the_rest(slice);
    hak__superslab_purge(false);
    assert_true(superslab_has_flag(slice, " nh")); /* all free, not all clean */
    assert_int_equal(hak__superslab_purge(true), SUPERSLAB_SIZE - PART * SLICE_SIZE);
    assert_true(superslab_has_flag(slice, " hg"));
    assert_true(superslab_of(slice)->huge_pages != 0 && superslab_of(slice)->dirty == 0);
    assert_int_equal(superslab_resident(slice), 0);
    assert_int_equal(hak__superslabs.split_count, split);
    uint64_t calls = hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL];
    hak__superslab_purge(true); /* once is enough */
    assert_int_equal(hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL], calls);
    assert_true(hak__superslab_take_exact(slice + 1, 1));
    assert_true(superslab_of(slice)->dirty == UINT64_MAX);
    hak__superslab_give(slice + 1, 1);
}

/* A split superslab may cost two mappings. With too many of them none gets huge pages, and what
 * goes back of those that have them goes back at each pass. */
HUGE_TEST(splits_have_a_limit)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t slice = claim_huge();
    hak__superslab_give(slice, PART);
    hak__superslabs.split_count += SPLIT_SUPERSLABS_MAX; /* those of somebody else */
    assert_false(claim(2 * PART, 0));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
        assert_true(superslab_has_flag(slice, " hg"));
        assert_int_equal(hak__superslab_bytes_dirty(), PART * SLICE_SIZE);
    }
    hak__superslabs.split_count -= SPLIT_SUPERSLABS_MAX;
    assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
    assert_true(superslab_has_flag(slice, " nh"));
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    assert_true(claim(2 * PART, 0));
    hak__superslab_give(slice + PART, SUPERSLAB_SLICES - PART);
}

/* What is unmapped is not the library's any more. */
HUGE_TEST(a_split_superslab_that_is_unmapped)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t split = hak__superslabs.split_count, slice = claim_and_purge_part();
    give_the_rest(slice);
    assert_int_equal(hak__superslab_release(SIZE_MAX), SUPERSLAB_SIZE);
    assert_int_equal(superslab_of(slice)->split, 0);
    assert_int_equal(hak__superslabs.split_count, split);
    uint64_t calls = hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL];
    hak__superslab_purge(true);
    assert_int_equal(hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL], calls);
}

/* Where huge pages were asked for, the first slice of one makes all of it dirty. */
TEST_WITH_KNOBS(huge_pages_are_dirty_as_a_whole)
{
    hak__knobs.huge_threshold = 0;
    unit_set_evidence(HUGE_SPANS, true);
    size_t slice, frontier = hak__superslab_first.frontier;
    do { /* until one is claimed for it */
        slice = hak__superslab_take(0, SUPERSLAB_SLICES, 1).slice;
        assert_int_not_equal(slice, SLICE_NONE);
    } while (slice < frontier);
    const struct superslab *superslab = superslab_at(slice / SUPERSLAB_SLICES);
    SKIP_IF(superslab->huge_pages == 0); /* a kernel without them */
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    hak__superslab_purge(true);
    assert_true(superslab->dirty == 0);
    uint32_t huge = HUGE_PAGE_SIZE / SLICE_SIZE;
    uint64_t last_page = bits_mask(SUPERSLAB_SLICES - huge, huge);
    assert_true(hak__superslab_take_exact(slice + SUPERSLAB_SLICES - 9, 2));
    assert_true(superslab->dirty == last_page);
    assert_int_equal(hak__superslab_bytes_dirty(), HUGE_PAGE_SIZE - 2 * SLICE_SIZE);
    hak__superslab_give(slice + SUPERSLAB_SLICES - 9, 2);
    assert_int_equal(hak__superslab_bytes_dirty(), HUGE_PAGE_SIZE);
    assert_int_equal(hak__superslab_purge(true), HUGE_PAGE_SIZE);
    assert_true(superslab->dirty == 0);
    assert_true(hak__superslab_take_exact(slice + 1, SUPERSLAB_SLICES - 2)); /* of all pages */
    assert_true(superslab->dirty == UINT64_MAX);
    hak__superslab_give(slice + 1, SUPERSLAB_SLICES - 2);
}

TESTS(unit_start)
