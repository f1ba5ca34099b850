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
    hak__superslab_release();
    REQUIRE_SIZE(hak__superslabs.released_count, >=, STOCK);
    for (leftovers_count = 0; hak__superslab_bytes_free() != 0; leftovers_count++) {
        REQUIRE(leftovers_count < LEFTOVERS_MAX);
        leftovers[leftovers_count] = hak__superslab_take(0, 1, 1, FOR_SLAB).slice;
    }
    hak__knobs.huge_threshold = 0;
    claimed_count = 0;
    unit_set_evidence(true);
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
static bool claim_for(enum slices_for use, uint32_t count, size_t touched)
{
    size_t before = hak__superslab_bytes_claimed();
    struct slice_run run = hak__superslab_take(0, count, 1, use);
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

static bool claim(uint32_t count, size_t touched)
{
    return claim_for(FOR_SLAB, count, touched);
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
        unit_set_evidence(false);
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

/* The end of a span's last slice is never touched, and a huge page must not make it resident. */
HUGE_TEST(spans_must_fill_more_than_slabs)
{
    SKIP_IF(!unit_has_huge_pages());
    for (uint32_t percent = 70; percent < 100; percent += 5) {
        for (enum slices_for use = FOR_SLAB; use <= FOR_SPAN; use += FOR_SPAN) {
            huge_teardown(state);
            huge_setup(state);
            unit_set_evidence(false);
            bool huge = false;
            for (uint32_t i = 0; i < 4; i++) {
                huge |= claim_for(use, 3, SUPERSLAB_SIZE / 100 * percent + 4096);
            }
            uint32_t least =
                use == FOR_SLAB ? HUGE_PAGES_DENSE_PERCENT : HUGE_PAGES_DENSE_SPANS_PERCENT;
            assert_int_equal(huge, percent >= least);
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
        unit_set_evidence(false);
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
    assert_int_equal(hak__superslab_purge(), PART * SLICE_SIZE);
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
    hak__superslab_purge();
    assert_true(superslab_has_flag(slice, " nh"));
    hak__superslab_give(slice + PART_FIRST, PART);
    hak__superslab_purge();
    give_the_rest(slice);
    hak__superslab_purge_part(true, false, SIZE_MAX);
    assert_true(superslab_has_flag(slice, " nh")); /* all free, not all clean */
    assert_int_equal(hak__superslab_purge(), SUPERSLAB_SIZE - PART * SLICE_SIZE);
    assert_true(superslab_has_flag(slice, " hg"));
    assert_true(superslab_of(slice)->huge_pages != 0 && superslab_of(slice)->dirty == 0);
    assert_int_equal(superslab_resident(slice), 0);
    assert_int_equal(hak__superslabs.split_count, split);
    uint64_t calls = hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL];
    hak__superslab_purge(); /* once is enough */
    assert_int_equal(hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL], calls);
    assert_true(hak__superslab_take_exact(slice + 1, 1));
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
        assert_int_equal(hak__superslab_purge(), PART * SLICE_SIZE);
        assert_true(superslab_has_flag(slice, " hg"));
        assert_int_equal(hak__superslab_bytes_dirty(), PART * SLICE_SIZE);
    }
    hak__superslabs.split_count -= SPLIT_SUPERSLABS_MAX;
    assert_int_equal(hak__superslab_purge(), PART * SLICE_SIZE);
    assert_true(superslab_has_flag(slice, " nh"));
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    assert_true(claim(2 * PART, 0));
    hak__superslab_give(slice + PART, SUPERSLAB_SLICES - PART);
}

/* A border between huge and small pages is a mapping, too, but it is no reason against a purge. */
HUGE_TEST(borders_have_a_limit)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t slice = claim_huge();
    hak__superslabs.borders_count += SPLIT_SUPERSLABS_MAX;
    assert_false(claim(2 * PART, 0));
    hak__superslab_give(slice, PART);
    assert_int_equal(hak__superslab_purge(), PART * SLICE_SIZE);
    assert_true(superslab_has_flag(slice, " nh"));
    hak__superslabs.borders_count -= SPLIT_SUPERSLABS_MAX;
    assert_true(claim(2 * PART, 0));
    hak__superslab_give(slice + PART, SUPERSLAB_SLICES - PART);
}

/* What is unmapped is not the library's any more. */
HUGE_TEST(a_split_superslab_that_is_unmapped)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t split = hak__superslabs.split_count, slice = claim_and_purge_part();
    give_the_rest(slice);
    assert_int_equal(hak__superslab_release(), SUPERSLAB_SIZE);
    assert_int_equal(superslab_of(slice)->split, 0);
    assert_int_equal(hak__superslabs.split_count, split);
    uint64_t calls = hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL];
    hak__superslab_purge();
    assert_int_equal(hak__os_calls[OS_CALL_HUGE_PAGES] + hak__os_calls[OS_CALL_SMALL], calls);
}

/* --- superslabs for slabs of objects up to a page --- */

enum { FILLS = 3 };

/* Takes slices for such a slab, or for a span, and touches the first of them. */
static size_t take_touched(uint32_t count, enum slices_for use)
{
    size_t slice = hak__superslab_take(0, count, 1, use).slice;
    assert_int_not_equal(slice, SLICE_NONE);
    *(char *)window_slice_address(slice) = 'x';
    return slice;
}

/* Nobody has to look whether such slabs are filled, but the heap must be large enough. */
HUGE_TEST(slabs_need_no_evidence)
{
    SKIP_IF(!unit_has_huge_pages());
    unit_set_evidence(false);
    size_t first = take_touched(FILLS, FOR_FILLED_SLAB);
    assert_int_equal(superslab_of(first)->huge_pages, 1);
    hak__superslab_give(first, FILLS);
    hak__superslab_release();
    hak__knobs.huge_threshold = UINT64_MAX;
    first = take_touched(FILLS, FOR_FILLED_SLAB);
    assert_int_equal(superslab_of(first)->huge_pages, 0);
    hak__superslab_give(first, FILLS);
}

/* All of the huge page is resident, but a span that the program may leave empty gets none of what
 * nobody used yet. What a slab has given back it gets. */
HUGE_TEST(untouched_slices_are_for_slabs)
{
    SKIP_IF(!kernel_shows_huge_pages());
    unit_set_evidence(false);
    size_t slab = take_touched(FILLS, FOR_FILLED_SLAB);
    size_t span = take_touched(FILLS, FOR_SPAN);
    assert_ptr_not_equal(superslab_of(span), superslab_of(slab));
    assert_int_equal(superslab_of(span)->huge_pages, 0);
    size_t next = take_touched(FILLS, FOR_FILLED_SLAB); /* the superslab of the span lies above */
    assert_int_equal(next, slab + FILLS);
    hak__superslab_give(slab, FILLS);
    assert_int_equal(hak__superslab_take(0, FILLS, 1, FOR_SLAB).slice, slab);
    unit_set_evidence(true); /* programs that fill their spans get the others, too */
    assert_int_equal(hak__superslab_take(0, 32, 1, FOR_SLAB).slice, next + FILLS);
    hak__superslab_give(next + FILLS, 32);
    hak__superslab_give(next, FILLS);
    hak__superslab_give(slab, FILLS);
    hak__superslab_give(span, FILLS);
}

/* What nobody used is clean, and goes back with the rest. */
HUGE_TEST(untouched_slices_go_back_as_well)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t slab = take_touched(FILLS, FOR_FILLED_SLAB),
           other = take_touched(FILLS, FOR_FILLED_SLAB);
    size_t start = slab - slab % SUPERSLAB_SLICES;
    assert_true(superslab_of(slab)->dirty == bits_mask(0, 2 * FILLS));
    assert_false(
        hak__superslab_take(0, 1, 1, FOR_FILLED_SLAB).zeroed); /* resident: no touch faults */
    hak__superslab_give(slab, FILLS);
    hak__superslab_purge();
    assert_int_equal(superslab_of(slab)->split, 1);
    REQUIRE_SIZE(superslab_resident(start), <=, (FILLS + 1) * SLICE_SIZE);
    hak__superslab_give(other, FILLS);
    hak__superslab_give(other + FILLS, 1);
    hak__superslab_purge();
    assert_int_equal(superslab_of(slab)->huge_pages, 1);
    slab = take_touched(FILLS, FOR_FILLED_SLAB);
    hak__superslab_give(slab, FILLS);
    assert_int_equal(hak__superslab_purge(), SUPERSLAB_SIZE);
    assert_int_equal(superslab_resident(start), 0);
    assert_int_equal(superslab_of(slab)->huge_pages, 1);
}

/* A superslab that was huge and went back as a whole has the pages that a new one would have. */
HUGE_TEST(a_free_superslab_is_begun_anew)
{
    SKIP_IF(!kernel_shows_huge_pages());
    unit_set_evidence(false);
    size_t slab = take_touched(FILLS, FOR_FILLED_SLAB);
    hak__superslab_give(slab, FILLS);
    hak__superslab_purge();
    assert_int_equal(superslab_of(slab)->huge_pages, 1);
    size_t span = take_touched(FILLS, FOR_SPAN);
    assert_int_equal(span, slab);
    assert_int_equal(superslab_of(span)->huge_pages, 0);
    REQUIRE_SIZE(superslab_resident(span), <=, SLICE_SIZE);
    hak__superslab_give(span, FILLS);
}

/* If the program fills such superslabs, later ones keep their huge pages. */
HUGE_TEST(free_superslabs_that_are_begun_are_watched)
{
    SKIP_IF(!kernel_shows_huge_pages());
    for (; claimed_count < STOCK / 2; claimed_count++) {
        claimed[claimed_count] = take_touched(SUPERSLAB_SLICES, true);
    }
    for (size_t i = 0; i < STOCK / 2; i++) {
        hak__superslab_give(claimed[i], SUPERSLAB_SLICES);
    }
    hak__superslab_purge();
    unit_set_evidence(false);
    bool huge = false;
    for (claimed_count = 0; !huge && claimed_count < STOCK / 2; claimed_count++) {
        size_t span = take_touched(SUPERSLAB_SLICES, false);
        claimed[claimed_count] = span;
        huge = superslab_of(span)->huge_pages != 0;
        assert_false(huge && claimed_count == 0);
        memset(window_slice_address(span), 'x', SUPERSLAB_SIZE);
    }
    assert_true(huge);
}

/* malloc touches each page of small objects, but not of larger ones. */
HUGE_TEST(slabs_that_malloc_does_not_touch_need_evidence)
{
    SKIP_IF(!unit_has_huge_pages());
    static const struct {
        size_t bytes;
        bool huge;
    } cases[] = {{1024, true}, {2048, false}, {3072, false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        unit_set_evidence(false);
        struct slab_set *set = unit_set_create();
        uint32_t class_index = size_class_of(cases[i].bytes);
        void *object = unit_slab_refill(set, class_index, 1).head;
        assert_non_null(object);
        assert_int_equal(superslab_of(window_slice_of(object))->huge_pages, cases[i].huge);
        unit_return(&object, 1);
        unit_set_destroy(set);
        hak__superslab_release();
    }
}

/* A superslab that the parent began is not the child's to touch. Last: all is inherited then. */
HUGE_TEST(a_child_does_not_time_pages)
{
    SKIP_IF(!kernel_shows_huge_pages());
    size_t slab = take_touched(FILLS, FOR_FILLED_SLAB);
    assert_true(huge_pages_are_begun());
    hak__superslab_inherit();
    assert_false(huge_pages_are_begun());
    hak__superslab_give(slab, FILLS);
}

static int setup(void **state)
{
    int result = unit_start(state);
    hak__window.mark -=
        hak__window.mark % SUPERSLAB_SLICES; /* superslabs fill from the first slice */
    return result;
}

TESTS(setup)
