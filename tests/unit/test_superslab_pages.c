/* test_superslab_pages.c: region/superslab_pages: which superslabs get huge pages, by what became
 * of earlier ones, what they are then, and that what goes back of one stays away (what the kernel's
 * khugepaged joins is resident again: golang #8832). */
#include "unit.h"

#include "region/huge.h"

/* Nothing is known of the program's superslabs. */
static void forget_evidence(void)
{
    memset(hak__superslabs.small_pages, 0, sizeof hak__superslabs.small_pages);
    hak__superslabs.huge_in_a_row = 0;
}

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
        leftovers[leftovers_count] = hak__superslab_take(1, 1).slice;
    }
    hak__knobs.huge_threshold = 0;
    claimed_count = 0;
    forget_evidence();
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

#define HUGE_TEST(test) cmocka_unit_test_setup_teardown(test, huge_setup, huge_teardown)

/* Bytes that are touched of a new superslab. */
enum { SPARSE = 0, DENSE = SUPERSLAB_SIZE * HUGE_DENSE_PERCENT / 100 };

/* A superslab claimed for `count` slices, all of it taken: true when it got huge pages. */
static bool claim(uint32_t count, size_t touched)
{
    size_t before = hak__superslab_bytes_claimed();
    struct slice_run run = hak__superslab_take(count, 1);
    REQUIRE(run.slice != SLICE_NONE && run.slice % SUPERSLAB_SLICES == 0);
    REQUIRE_SIZE(hak__superslab_bytes_claimed() - before, ==, SUPERSLAB_SIZE);
    REQUIRE(count == SUPERSLAB_SLICES ||
            hak__superslab_take_exact(run.slice + count, SUPERSLAB_SLICES - count));
    claimed[claimed_count++] = run.slice;
    char *bytes = window_slice_address(run.slice);
    bool huge = superslab_at(run.slice / SUPERSLAB_SLICES)->huge != 0;
    memset(bytes, 'x', touched);
    return huge;
}

static uint32_t row_length(void)
{
    uint32_t half = (uint32_t)(hak__superslabs.count / 2);
    return half < HUGE_IN_A_ROW_MIN ? HUGE_IN_A_ROW_MIN : half;
}

static bool kernel_has_huge_pages(void)
{
    char *probe = support_map(HUGE_PAGE_SIZE);
    bool has = hak__os_page_size() == HUGE_OS_PAGE_SIZE && hak__os_huge(probe, HUGE_PAGE_SIZE) == 0;
    munmap(probe, HUGE_PAGE_SIZE);
    return has;
}

static void test_small_pages_below_the_threshold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        hak__knobs.huge_threshold = hak__superslab_bytes_claimed() + 1;
        assert_false(claim(1, SUPERSLAB_SIZE));
        hak__knobs.huge_threshold = UINT64_MAX;
        assert_false(claim(SUPERSLAB_SLICES, SUPERSLAB_SIZE));
    }
    hak__knobs.huge_threshold = hak__superslab_bytes_claimed();
    assert_int_equal(claim(1, 0), kernel_has_huge_pages());
}

/* Two of each kind, filled: from now on superslabs earn huge pages. */
static void claim_evidence(void)
{
    hak__knobs.huge_threshold = UINT64_MAX;
    for (uint32_t i = 0; i < 2; i++) {
        assert_false(claim(1, DENSE));
        assert_false(claim(2, DENSE));
    }
    hak__knobs.huge_threshold = 0;
}

/* Dense ones are followed by a row of huge ones and then by one of small pages, to look again. */
static void test_dense_superslabs_lead_to_huge_ones(void **state)
{
    (void)state;
    if (!kernel_has_huge_pages()) {
        skip();
    }
    claim_evidence();
    uint32_t row = row_length();
    for (uint32_t i = 0; i < 2 * (row + 1) && claimed_count < STOCK; i++) {
        bool small = i % (row + 1) == row;
        assert_int_equal(claim(1 + i % 3, small ? DENSE : 0), !small);
    }
    assert_true(claimed_count > 4 + row); /* the row had an end */
}

/* One that the program does not fill is enough, of either kind, if it is the last but one; what is
 * looked at is exact. */
static void test_a_sparse_superslab_prevents_huge_ones(void **state)
{
    static const struct {
        size_t touched[2]; /* of the last but one of small pages, and of the last */
        bool huge;
    } cases[] = {{{SPARSE, DENSE}, false},
                 {{DENSE, SPARSE}, true},
                 {{DENSE - 1, DENSE}, true}, /* the page counts */
                 {{DENSE - OS_PAGE_SIZE_MAX, DENSE}, false}};
    (void)state;
    if (!kernel_has_huge_pages()) {
        skip();
    }
    for (size_t i = 0; i < 2 * COUNT_OF(cases); i++) {
        const size_t *touched = cases[i / 2].touched;
        uint32_t kind = i % 2 == 0 ? 1 : SUPERSLAB_SLICES, other = i % 2 == 0 ? 2 : 1;
        huge_teardown(state);
        huge_setup(state);
        hak__knobs.huge_threshold = UINT64_MAX;
        claim(other, DENSE);
        claim(kind, touched[0]);
        claim(other, DENSE);
        claim(kind, touched[1]);
        hak__knobs.huge_threshold = 0;
        assert_int_equal(claim(other, SPARSE), cases[i / 2].huge);
    }
}

/* Half way to the next look the last one counts, which is no longer being carved then. */
static void test_a_sparse_last_one_ends_a_row(void **state)
{
    (void)state;
    if (!kernel_has_huge_pages()) {
        skip();
    }
    claim_evidence();
    uint32_t row = row_length();
    hak__superslabs.huge_in_a_row = row; /* as if they had been claimed */
    assert_false(claim(2, SPARSE));
    for (uint32_t i = 0; i < row / 2; i++) {
        assert_true(claim(1, SPARSE));
    }
    assert_false(claim(1, SPARSE));
}

/* What was given back since it was claimed says nothing good, purged or unmapped. */
static void test_a_released_superslab_is_no_evidence(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = UINT64_MAX;
    claim(1, DENSE);
    claim(1, DENSE);
    hak__superslab_give(claimed[0], SUPERSLAB_SLICES);
    assert_int_equal(hak__superslab_purge(true), SUPERSLAB_SIZE);
    assert_true(hak__superslab_take_exact(claimed[0] + 1, SUPERSLAB_SLICES - 1));
    struct slice_run first = hak__superslab_take(1, 1);
    assert_int_equal(first.slice, claimed[0]);
    hak__knobs.huge_threshold = 0;
    assert_false(claim(1, SPARSE)); /* from now on the second and this one are looked at */
    hak__superslab_give(claimed[1], SUPERSLAB_SLICES);
    assert_int_equal(hak__superslab_release(SIZE_MAX), SUPERSLAB_SIZE);
    claimed[1] = claimed[--claimed_count];
    assert_false(claim(1, SPARSE));
}

/* One that came back with huge pages would be dense after a touch. */
static void test_a_reclaimed_superslab_is_no_evidence(void **state)
{
    (void)state;
    if (!kernel_has_huge_pages()) {
        skip();
    }
    hak__knobs.huge_threshold = UINT64_MAX;
    claim(1, DENSE);
    claim(1, DENSE);
    hak__superslab_give(claimed[1], SUPERSLAB_SLICES);
    assert_int_equal(hak__superslab_release(SIZE_MAX), SUPERSLAB_SIZE);
    hak__knobs.huge_threshold = 0;
    size_t released = claimed[--claimed_count];
    assert_true(claim(1, 1)); /* the first speaks for it */
    assert_int_equal(claimed[1], released);
    REQUIRE(hak__os_purge(window_slice_address(claimed[0]), SUPERSLAB_SIZE) == 0);
    hak__superslabs.huge_in_a_row = row_length() / 2; /* the last of small pages is looked at */
    assert_false(claim(1, SPARSE));
}

/* What /proc/self/smaps says of the mapping at `place`: "hg" huge pages are welcome there, "nh"
 * they are not. */
static bool mapping_has_flag(const void *place, const char *flag)
{
    static char smaps[4 * MIB];
    uintptr_t address = (uintptr_t)place;
    support_read_file("/proc/self/smaps", smaps, sizeof smaps);
    bool found = false;
    for (char *line = strtok(smaps, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *end;
        uintptr_t low = strtoull(line, &end, 16);
        if (*end == '-') {
            found = low <= address && address < strtoull(end + 1, NULL, 16);
        } else if (found && strncmp(line, "VmFlags:", 8) == 0) {
            return strstr(line, flag) != NULL;
        }
    }
    return false;
}

static bool superslab_has_flag(size_t slice, const char *flag)
{
    return mapping_has_flag(window_slice_address(slice), flag);
}

/* Not so in emulators. */
static bool kernel_shows_huge_pages(void)
{
    char *probe = support_map(HUGE_PAGE_SIZE);
    bool shows = kernel_has_huge_pages() && hak__os_huge(probe, HUGE_PAGE_SIZE) == 0 &&
                 mapping_has_flag(probe, " hg");
    munmap(probe, HUGE_PAGE_SIZE);
    return shows;
}

/* A superslab that was claimed with huge pages, taken as a whole and filled. */
static size_t claim_huge(void)
{
    hak__superslabs.huge_in_a_row = 0;
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

/* Places where pages change, counted anew. */
static void check_borders(void)
{
    size_t borders = 0;
    for (size_t i = 1; i < hak__superslabs.count; i++) {
        borders += superslab_at(i)->huge != superslab_at(i - 1)->huge;
    }
    assert_int_equal(hak__superslabs.page_borders, borders);
}

static void test_every_superslab_says_which_pages_it_has(void **state)
{
    (void)state;
    if (!kernel_shows_huge_pages()) {
        skip();
    }
    claim_evidence();
    assert_true(superslab_has_flag(claimed[0], " nh"));
    assert_true(superslab_has_flag(claimed[1], " nh"));
    assert_true(claim(1, 0));
    assert_true(superslab_has_flag(claimed[4], " hg"));
    check_borders();
    hak__superslab_give(claimed[4], SUPERSLAB_SLICES); /* unmapped: what comes next chooses anew */
    assert_int_equal(hak__superslab_release(SIZE_MAX), SUPERSLAB_SIZE);
    claimed_count--;
    hak__knobs.huge_threshold = UINT64_MAX;
    assert_false(claim(1, 0));
    assert_true(superslab_has_flag(claimed[4], " nh"));
    check_borders();
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

static void test_what_goes_back_of_a_huge_page_stays_away(void **state)
{
    (void)state;
    if (!kernel_shows_huge_pages()) {
        skip();
    }
    size_t slice = claim_and_purge_part();
    const size_t left = SUPERSLAB_SIZE - PART * SLICE_SIZE;
    assert_true(superslab_has_flag(slice, " nh"));
    assert_int_equal(superslab_resident(slice), left);
    support_collapse(window_slice_address(slice), SUPERSLAB_SIZE);
    assert_int_equal(superslab_resident(slice), left);
    assert_int_equal(superslab_of(slice)->huge, 0);
    assert_true(hak__superslab_take_exact(slice + PART_FIRST, 1)); /* nothing but what is taken */
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    check_borders();
    hak__superslab_give(slice + PART_FIRST, 1);
    hak__superslab_give(slice, PART_FIRST);
    hak__superslab_give(slice + PART_FIRST + PART, SUPERSLAB_SLICES - PART_FIRST - PART);
}

/* Wholly in use again, and wholly clean. */
static void test_a_split_superslab_is_joined(void **state)
{
    (void)state;
    if (!kernel_shows_huge_pages()) {
        skip();
    }
    size_t slice = claim_and_purge_part();
    hak__superslab_purge(false);
    assert_true(superslab_has_flag(slice, " nh")); /* a part is away */
    assert_true(hak__superslab_take_exact(slice + PART_FIRST, PART));
    hak__superslab_purge(false);
    assert_true(superslab_has_flag(slice, " hg"));
    assert_int_equal(superslab_of(slice)->huge, 1);
    check_borders();
    hak__superslab_give(slice + PART_FIRST, PART);
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slice, " nh"));
    hak__superslab_give(slice, PART_FIRST);
    hak__superslab_give(slice + PART_FIRST + PART, SUPERSLAB_SLICES - PART_FIRST - PART);
    hak__superslab_purge(false);
    assert_true(superslab_has_flag(slice, " nh")); /* all free, not all clean */
    hak__superslab_purge(true);
    hak__superslab_purge(true); /* the next pass finds it clean */
    assert_true(superslab_has_flag(slice, " hg"));
    assert_true(superslab_of(slice)->huge != 0 && superslab_of(slice)->dirty == 0);
    assert_int_equal(superslab_resident(slice), 0);
    check_borders();
    uint64_t calls = hak__os_calls[OS_CALL_HUGE] + hak__os_calls[OS_CALL_SMALL];
    hak__superslab_purge(true); /* once is enough */
    assert_int_equal(hak__os_calls[OS_CALL_HUGE] + hak__os_calls[OS_CALL_SMALL], calls);
}

/* Neither one that never had huge pages, nor while these are slow. */
static void test_a_split_superslab_that_stays(void **state)
{
    (void)state;
    if (!kernel_shows_huge_pages()) {
        skip();
    }
    hak__knobs.huge_threshold = UINT64_MAX;
    assert_false(claim(1, SUPERSLAB_SIZE));
    hak__superslab_give(claimed[0] + PART_FIRST, PART);
    hak__superslab_purge(true);
    assert_true(hak__superslab_take_exact(claimed[0] + PART_FIRST, PART));
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(claimed[0], " nh"));
    hak__knobs.huge_threshold = 0;
    forget_evidence();
    size_t slice = claim_and_purge_part();
    assert_true(hak__superslab_take_exact(slice + PART_FIRST, PART));
    claimed[claimed_count++] = slice;
    char *range = support_map(HUGE_PAGE_SIZE * 2);
    if (hak__os_populate(range, hak__os_page_size()) != 0) {
        skip(); /* a kernel before 5.14: none is timed */
    }
    hak__os_purge(range, hak__os_page_size());
    hak__huge_page_us_max = 0; /* every one is slow */
    for (int tries = 0; hak__huge_is_quick() && tries < 50; tries++) {
        usleep(10000); /* one is timed in a tick of the clock */
        hak__huge_ask(range, HUGE_PAGE_SIZE * 2, 0);
        hak__os_purge(range, HUGE_PAGE_SIZE * 2);
    }
    assert_false(hak__huge_is_quick());
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slice, " nh"));
    hak__huge_page_us_max = UINT64_MAX - 1; /* every one is quick, once the pause is over */
    while (!hak__huge_is_quick()) {
        usleep(10000);
        hak__huge_ask(range, HUGE_PAGE_SIZE * 2, 0);
        hak__os_purge(range, HUGE_PAGE_SIZE * 2);
    }
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slice, " hg"));
    munmap(range, HUGE_PAGE_SIZE * 2);
}

/* A border is a mapping. Where there would be too many the superslabs before it are split with it;
 * what is in use of them stays as it is. */
static void test_borders_have_a_limit(void **state)
{
    (void)state;
    if (!kernel_shows_huge_pages()) {
        skip();
    }
    size_t slices[3];
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        slices[i] = claim_huge();
        claimed[claimed_count++] = slices[i];
        REQUIRE_SIZE(slices[i], ==, slices[0] + i * SUPERSLAB_SLICES);
    }
    struct superslab_table *table = &hak__superslabs;
    size_t borders = table->page_borders;
    hak__superslab_give(slices[1], PART);
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slices[0], " hg"));
    assert_true(superslab_has_flag(slices[1], " nh"));
    assert_int_equal(table->page_borders, borders + 2);
    assert_true(hak__superslab_take_exact(slices[1] + 1, PART - 1));
    assert_int_equal(hak__superslab_take(1, 1).slice, slices[1]);
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slices[1], " hg"));
    assert_int_equal(table->page_borders, borders);

    table->page_borders += PAGE_BORDERS_MAX; /* those of somebody else */
    hak__superslab_give(slices[1], PART);
    hak__growth_lock.shared_state = 1; /* somebody claims: what goes back is due again */
    assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
    hak__growth_lock.shared_state = 0;
    assert_true(superslab_has_flag(slices[1], " hg"));
    assert_int_equal(hak__superslab_bytes_dirty(), PART * SLICE_SIZE);
    assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    assert_true(superslab_has_flag(slices[0], " nh"));
    assert_true(superslab_has_flag(slices[1], " nh"));
    assert_true(superslab_has_flag(slices[2], " hg"));
    assert_int_equal(superslab_resident(slices[0]), SUPERSLAB_SIZE);
    table->page_borders -= PAGE_BORDERS_MAX;
    assert_true(table->page_borders <= borders);
    check_borders();

    assert_true(hak__superslab_take_exact(slices[1] + 1, PART - 1));
    assert_int_equal(hak__superslab_take(1, 1).slice, slices[1]);
    table->page_borders += PAGE_BORDERS_MAX;
    hak__superslab_purge(true); /* no border more: the one beside huge pages, then the other */
    assert_true(superslab_has_flag(slices[1], " hg"));
    hak__superslab_purge(true);
    assert_true(superslab_has_flag(slices[0], " hg"));
    table->page_borders -= PAGE_BORDERS_MAX;
    check_borders();
}

/* What is unmapped is not the library's any more, and is nobody's neighbour. */
static void test_a_split_superslab_that_is_unmapped(void **state)
{
    (void)state;
    if (!kernel_shows_huge_pages()) {
        skip();
    }
    size_t slice = claim_and_purge_part(), beside = claim_huge();
    hak__superslab_give(slice, PART_FIRST);
    hak__superslab_give(slice + PART_FIRST + PART, SUPERSLAB_SLICES - PART_FIRST - PART);
    hak__superslab_give(beside, SUPERSLAB_SLICES);
    assert_int_equal(hak__superslab_release(SIZE_MAX), 2 * SUPERSLAB_SIZE);
    check_borders();
    assert_int_equal(superslab_of(beside)->huge, 0);
    uint64_t calls = hak__os_calls[OS_CALL_HUGE] + hak__os_calls[OS_CALL_SMALL];
    hak__superslab_purge(true);
    assert_int_equal(hak__os_calls[OS_CALL_HUGE] + hak__os_calls[OS_CALL_SMALL], calls);
}

/* Rows of new superslabs, not of ones that are claimed again. */
static void test_borders_at_the_frontier(void **state)
{
    enum { NEW = 20 };
    (void)state;
    hak__knobs.huge_threshold = 0;
    hak__huge_page_us_max = UINT64_MAX;
    forget_evidence();
    size_t slices[NEW + 4 * STOCK], count = 0, end = hak__superslabs.count + NEW;
    while (hak__superslabs.count < end) {
        REQUIRE(count < COUNT_OF(slices));
        slices[count] = hak__superslab_take(SUPERSLAB_SLICES, 1).slice;
        REQUIRE(slices[count] != SLICE_NONE);
        memset(window_slice_address(slices[count++]), 'x', SUPERSLAB_SIZE);
        check_borders();
    }
    for (size_t i = 0; i < count; i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
    check_borders();
}

/* Where huge pages were asked for, the first slice of one makes all of it dirty. */
static void test_huge_pages_are_dirty_as_a_whole(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 0;
    forget_evidence();
    size_t slice, frontier = hak__superslabs.frontier;
    do { /* until one is claimed for it */
        hak__superslabs.huge_in_a_row = 0;
        slice = hak__superslab_take(SUPERSLAB_SLICES, 1).slice;
        assert_int_not_equal(slice, SLICE_NONE);
    } while (slice < frontier);
    const struct superslab *superslab = superslab_at(slice / SUPERSLAB_SLICES);
    if (superslab->huge == 0) {
        skip(); /* a kernel without them */
    }
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

/* The first half of the first superslab, all that many a program has, costs no call: no page can be
 * huge in it, nor when the second half is there. */
static void test_the_first_half_has_no_room_for_one(void **state)
{
    (void)state;
    assert_int_equal(hak__superslabs.frontier, 0); /* the first test */
    assert_int_equal(hak__superslab_take(1, 1).slice, 0);
    assert_int_equal(hak__os_calls[OS_CALL_SMALL], 0);
    assert_true(hak__superslab_bytes_claimed() <= SUPERSLAB_SIZE / 2);
    do {
        REQUIRE(hak__superslab_take(1, 1).slice != SLICE_NONE);
    } while (hak__superslab_bytes_claimed() < SUPERSLAB_SIZE);
    assert_int_not_equal(hak__os_calls[OS_CALL_SMALL], 0);
    if (kernel_shows_huge_pages()) {
        assert_false(superslab_has_flag(0, " nh"));
        assert_true(superslab_has_flag(SUPERSLAB_SLICES - 1, " nh"));
    }
}

/* malloc that claims one touches nothing of it, and the thread's next slow operations see that the
 * program has (docs/decisions/0062). */
static void test_the_first_touch_is_the_programs(void **state)
{
    enum { SIZE = 30000, OBJECTS_MAX = 2 * STOCK * SUPERSLAB_SIZE / SIZE };
    static char *objects[OBJECTS_MAX];
    size_t count = 0;
    (void)state;
    if (!kernel_has_huge_pages()) {
        skip();
    }
    claim_evidence();
    hak__huge_page_us_max = UINT64_MAX - 1; /* however long this machine takes, and timed */
    hak__huge_watcher = NULL;
    do {
        REQUIRE(count < OBJECTS_MAX);
        objects[count++] = hak_malloc(SIZE);
        assert_non_null(objects[count - 1]);
    } while (!huge_is_watched());
    char *last = objects[count - 1];
    char *huge = window_slice_address(bits_align_down(window_slice_of(last), SUPERSLAB_SLICES));
    assert_int_equal(hak__os_resident(huge, SUPERSLAB_SIZE), 0);
    *last = 'x';
    while (huge_is_watched()) {
        REQUIRE(count < OBJECTS_MAX);
        objects[count++] = hak_malloc(SIZE);
        assert_non_null(objects[count - 1]);
    }
    assert_in_range(count, 1, OBJECTS_MAX - 1);
    for (size_t i = 0; i < count; i++) {
        hak_free(objects[i]);
    }
    hak__heap_reclaim(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_half_has_no_room_for_one),
        HUGE_TEST(test_small_pages_below_the_threshold),
        HUGE_TEST(test_dense_superslabs_lead_to_huge_ones),
        HUGE_TEST(test_a_sparse_superslab_prevents_huge_ones),
        HUGE_TEST(test_a_sparse_last_one_ends_a_row),
        HUGE_TEST(test_a_released_superslab_is_no_evidence),
        HUGE_TEST(test_a_reclaimed_superslab_is_no_evidence),
        HUGE_TEST(test_every_superslab_says_which_pages_it_has),
        HUGE_TEST(test_what_goes_back_of_a_huge_page_stays_away),
        HUGE_TEST(test_a_split_superslab_is_joined),
        HUGE_TEST(test_a_split_superslab_that_stays),
        HUGE_TEST(test_borders_have_a_limit),
        HUGE_TEST(test_a_split_superslab_that_is_unmapped),
        UNIT_TEST_WITH_KNOBS(test_borders_at_the_frontier),
        HUGE_TEST(test_the_first_touch_is_the_programs),
        UNIT_TEST_WITH_KNOBS(test_huge_pages_are_dirty_as_a_whole),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
