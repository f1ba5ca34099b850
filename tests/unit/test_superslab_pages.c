/* test_superslab_pages.c: region/superslab: which superslabs get huge pages, by what became of
 * earlier ones, and what they are then. */
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
    unit_free_superslabs(STOCK);
    hak__superslab_release(SIZE_MAX);
    REQUIRE_SIZE(hak__superslabs.released_count, >=, STOCK);
    for (leftovers_count = 0; hak__superslab_bytes_free() != 0; leftovers_count++) {
        REQUIRE(leftovers_count < LEFTOVERS_MAX);
        leftovers[leftovers_count] = hak__superslab_take(1, 1).slice;
    }
    hak__knobs.huge_threshold = 0;
    hak__huge_page_us_max = UINT64_MAX; /* however long this machine takes */
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
    if (!huge) { /* page by page, whatever this machine prefers */
        madvise(bytes, SUPERSLAB_SIZE, MADV_NOHUGEPAGE);
    }
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
    bool has = hak__os_huge(probe, HUGE_PAGE_SIZE) == 0;
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

/* Where huge pages were asked for, the first slice of one makes all of it dirty. */
static void test_huge_pages_are_dirty_as_a_whole(void **state)
{
    (void)state;
    hak__knobs.huge_threshold = 0;
    forget_evidence();
    size_t slice, frontier = hak__superslabs.frontier;
    do { /* until one is claimed for it */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        HUGE_TEST(test_small_pages_below_the_threshold),
        HUGE_TEST(test_dense_superslabs_lead_to_huge_ones),
        HUGE_TEST(test_a_sparse_superslab_prevents_huge_ones),
        HUGE_TEST(test_a_sparse_last_one_ends_a_row),
        HUGE_TEST(test_a_released_superslab_is_no_evidence),
        UNIT_TEST_WITH_KNOBS(test_huge_pages_are_dirty_as_a_whole),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
