/* SPDX-License-Identifier: MIT */
/* test_purge.c: region/purge: what is given back to the OS, when, and that nothing in use is. */
#include "../threads/threads.h"
#include "unit.h"

static int setup(void **state)
{
    int failed = unit_start(state);
    hak__knobs.huge_threshold = UINT64_MAX; /* with huge pages more than asked for is dirty */
    return failed;
}

static size_t take(uint32_t count)
{
    struct slice_run run = hak__superslab_take(0, count, 1, FOR_SLAB);
    REQUIRE(run.slice != SLICE_NONE);
    return run.slice;
}

static void fill(size_t slice, uint32_t count, int byte)
{
    memset(window_slice_address(slice), byte, count * SLICE_SIZE);
}

/* All bytes of the run are `byte`. */
static bool is_filled(size_t slice, uint32_t count, char byte)
{
    const char *bytes = window_slice_address(slice);
    return bytes[0] == byte && memcmp(bytes, bytes + 1, count * SLICE_SIZE - 1) == 0;
}

/* Memory in use must be whole after each test. */
static size_t kept;

static int keep(void **state)
{
    kept = take(7);
    fill(kept, 7, 'k');
    hak__superslab_purge(); /* nothing dirty is left over from before */
    return 0;
}

static int kept_is_whole(void **state)
{
    bool whole = is_filled(kept, 7, 'k');
    hak__superslab_give(kept, 7);
    return whole ? 0 : -1;
}

#define PURGE_TEST(name) TEST_WITH(name, keep, kept_is_whole)

PURGE_TEST(freed_slices_go_at_the_second_pass)
{
    size_t slice = take(5);
    fill(slice, 5, 'x');
    hak__superslab_give(slice, 5);
    assert_int_equal(hak__superslab_bytes_dirty(), 5 * SLICE_SIZE);
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX), 0);
    assert_true(is_filled(slice, 5, 'x'));
    assert_int_equal(hak__superslab_bytes_dirty(), 5 * SLICE_SIZE);
    size_t free_bytes = hak__superslab_bytes_free();
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX), 5 * SLICE_SIZE);
    assert_true(is_filled(slice, 5, 0));
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    assert_int_equal(hak__superslab_bytes_free(), free_bytes);
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX), 0);
    struct slice_run run = hak__superslab_take(0, 5, 1, FOR_SLAB);
    assert_true(run.zeroed);
    hak__superslab_give(run.slice, 5);
    run = hak__superslab_take(0, 5, 1, FOR_SLAB);
    assert_false(run.zeroed);
    hak__superslab_give(run.slice, 5);
    hak__superslab_purge();
}

/* The slab metadata of a superslab goes with the last of its slices, purged or unmapped, and not
 * while one of them is in use. */
PURGE_TEST(metadata_goes_with_the_superslab)
{
    const size_t bytes = SUPERSLAB_SLICES * HAK_CACHE_LINE;
    for (int unmap = 0; unmap < 2; unmap++) {
        size_t slice = take(SUPERSLAB_SLICES);
        void *metadata = window_slab_metadata(slice);
        memset(metadata, 1, bytes);
        hak__superslab_give(slice + 1, SUPERSLAB_SLICES - 1);
        hak__superslab_purge();
        assert_int_equal(hak__os_resident(metadata, bytes), bytes);
        assert_int_equal(*(unsigned char *)window_slab_metadata(slice), 1);
        fill(slice, 1, 'x');
        hak__superslab_give(slice, 1);
        unmap == 0 ? hak__superslab_purge() : hak__superslab_release();
        assert_int_equal(hak__os_resident(metadata, bytes), 0);
    }
}

enum { SUPERSLABS = 8 };

/* Takes wholly free superslabs, writes to one slice of each, and gives them back. */
static void use_superslabs(size_t slices[SUPERSLABS], bool zeroed)
{
    for (size_t i = 0; i < SUPERSLABS; i++) {
        struct slice_run run = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB);
        REQUIRE(run.slice != SLICE_NONE && (run.zeroed || !zeroed));
        REQUIRE(!zeroed || is_filled(run.slice, SUPERSLAB_SLICES, 0));
        fill(run.slice + i, 1, 'x');
        slices[i] = run.slice;
    }
    for (size_t i = 0; i < SUPERSLABS; i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
}

/* Two passes: those that see all that is free now, and purge or unmap it. */
static void pass_twice(void)
{
    hak__superslab_purge_part(true, false, SIZE_MAX);
    hak__superslab_purge_part(true, false, SIZE_MAX);
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
}

/* A pass unmaps what is wholly free, but for the little that is kept, and all of it under a limit.
 * The memory comes back as zeroes. */
PURGE_TEST(a_pass_unmaps_superslabs)
{
    enum { KEPT = HAK_TINY_LIMITS ? 0 : 2 };
    size_t slices[SUPERSLABS];
    hak__superslab_release();
    for (int limited = 0; limited < 2; limited++) {
        size_t least = hak__superslab_bytes_claimed();
        use_superslabs(slices, limited != 0);
        size_t claimed = hak__superslab_bytes_claimed(), mapped = hak__os_mapped_bytes();
        REQUIRE_SIZE(claimed, >=, SUPERSLABS * SUPERSLAB_SIZE);
        hak__knobs.limit = limited != 0 ? UINT64_MAX - 1 : UINT64_MAX;
        hak__superslab_purge_part(true, false, SIZE_MAX);
        assert_int_equal(hak__superslab_bytes_claimed(), claimed); /* used since the last pass */
        hak__superslab_purge_part(true, false, SIZE_MAX);
        assert_int_equal(hak__superslab_bytes_dirty(), 0);
        size_t now = hak__superslab_bytes_claimed();
        assert_int_equal(hak__os_mapped_bytes(), mapped - (claimed - now));
        REQUIRE_SIZE(now, <=, least + (limited != 0 ? 0 : KEPT * SUPERSLAB_SIZE));
        REQUIRE_SIZE(hak__superslabs.holes_count, <=, 2);
    }
    hak__knobs.limit = UINT64_MAX;
    use_superslabs(slices, true);
    hak__superslab_purge();
    hak__superslab_release();
}

/* Spans that are emptied before they are freed leave nothing to purge. */
PURGE_TEST(superslabs_that_become_free_clean)
{
    size_t slice = take(SUPERSLAB_SLICES);
    hak__knobs.limit = UINT64_MAX - 1; /* nothing is kept */
    hak__superslab_give(slice, SUPERSLAB_SLICES / 2);
    pass_twice();
    hak__superslab_give_clean(slice + SUPERSLAB_SLICES / 2, SUPERSLAB_SLICES / 2);
    pass_twice();
    assert_false(superslab_has_slice(slice));
    hak__knobs.limit = UINT64_MAX;
}

/* Locked memory, which the kernel does not purge, stays. So does what would be a hole too many. */
PURGE_TEST(a_pass_leaves_superslabs)
{
    size_t slice = take(SUPERSLAB_SLICES), holes = SPLIT_SUPERSLABS_MAX;
    void *start = window_slice_address(slice);
    hak__knobs.limit = UINT64_MAX - 1;
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    REQUIRE(mlock(start, hak__os_page_size()) == 0);
    hak__superslab_purge_part(true, false, SIZE_MAX);
    hak__superslab_purge_part(true, false, SIZE_MAX);
    assert_true(superslab_has_slice(slice));
    assert_int_equal(hak__superslab_bytes_dirty(), SUPERSLAB_SIZE);
    REQUIRE(munlock(start, hak__os_page_size()) == 0);
    assert_int_equal(take(SUPERSLAB_SLICES), slice);
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    hak__superslabs.holes_count += holes;
    pass_twice();
    hak__superslabs.holes_count -= holes;
    assert_true(superslab_has_slice(slice));
    hak__superslab_release();
    assert_false(superslab_has_slice(slice));
    hak__knobs.limit = UINT64_MAX;
}

static pthread_barrier_t lock_turn;

/* Another thread in the middle of its purge, as far as the lock can tell. */
static void *hold_purge_lock(void *argument)
{
    lock_acquire(&hak__purge_lock);
    pthread_barrier_wait(&lock_turn);
    pthread_barrier_wait(&lock_turn);
    lock_release(&hak__purge_lock);
    return argument;
}

/* Whoever comes through a slow path does not wait until another thread has given back a gibibyte
 * (gperftools #1547): its pass is left out. This hangs where it waits. */
PURGE_TEST(a_pass_waits_for_nobody)
{
    struct slice_run run = hak__superslab_take(0, 3, 1, FOR_SLAB);
    assert_true(run.slice != SLICE_NONE);
    hak__superslab_give(run.slice, 3);
    assert_int_equal(pthread_barrier_init(&lock_turn, NULL, 2), 0);
    pthread_t thread = thread_start(hold_purge_lock, NULL);
    pthread_barrier_wait(&lock_turn);
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX), 0);
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX), 0);
    assert_int_equal(hak__superslab_purge(), 3 * SLICE_SIZE); /* a trim does its work itself */
    assert_int_equal(hak__superslab_take(0, 3, 1, FOR_SLAB).slice, run.slice);
    hak__superslab_give(run.slice, 3);
    pthread_barrier_wait(&lock_turn);
    thread_join(thread);
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX),
                     0); /* the first that sees them */
    assert_int_equal(hak__superslab_purge_part(true, false, SIZE_MAX), 3 * SLICE_SIZE);
}

/* As many whole superslabs as a fall needs to be a burst. */
enum { BURST = (int)((BURST_BYTES + RESERVE_BYTES) / SUPERSLAB_SIZE) + 2 };
static size_t burst[BURST];

static void burst_take(void)
{
    for (size_t i = 0; i < BURST; i++) {
        burst[i] = take(SUPERSLAB_SLICES);
    }
}

static void burst_give(void)
{
    for (size_t i = 0; i < BURST; i++) {
        hak__superslab_give(burst[i], SUPERSLAB_SLICES);
    }
}

/* What is used again after a fall is expected, for half a purge delay or two; growth is not. */
PURGE_TEST(what_rose_again_is_expected)
{
    hak__superslab_turn_use(true);
    burst_take();
    hak__superslab_turn_use(false);
    assert_int_equal(hak__superslab_expected(), RESERVE_BYTES);
    assert_false(hak__superslab_has_fallen());
    burst_give();
    assert_int_equal(hak__superslab_expected(), RESERVE_BYTES);
    assert_true(hak__superslab_has_fallen());
    burst_take();
    burst_give();
    size_t expected = hak__superslab_expected() - RESERVE_BYTES;
    assert_in_range(expected, (BURST - 4) * SUPERSLAB_SIZE, BURST * SUPERSLAB_SIZE);
    assert_false(hak__superslab_has_fallen());
    burst_take();
    size_t grown = take(SUPERSLAB_SLICES);
    burst_give();
    hak__superslab_give(grown, SUPERSLAB_SLICES);
    assert_in_range(hak__superslab_expected() - RESERVE_BYTES, expected, BURST * SUPERSLAB_SIZE);
    assert_false(hak__superslab_has_fallen());
    expected = hak__superslab_expected() - RESERVE_BYTES;
    hak__superslab_turn_use(false);
    assert_int_equal(hak__superslab_expected() - RESERVE_BYTES, expected);
    hak__superslab_turn_use(false);
    assert_int_equal(hak__superslab_expected(), RESERVE_BYTES);
}

/* Whole superslabs go first, and no more than is asked for. */
PURGE_TEST(purges_what_is_beyond)
{
    size_t whole[3], part;
    for (size_t i = 0; i < COUNT_OF(whole); i++) {
        whole[i] = take(SUPERSLAB_SLICES);
    }
    part = take(5);
    hak__superslab_give(part, 5);
    for (size_t i = 0; i < COUNT_OF(whole); i++) {
        hak__superslab_give(whole[i], SUPERSLAB_SLICES);
    }
    size_t dirty = hak__superslab_bytes_dirty();
    assert_int_equal(hak__superslab_purge_beyond(dirty, SIZE_MAX), 0);
    assert_int_equal(hak__superslab_purge_beyond(dirty - 1, SIZE_MAX), SUPERSLAB_SIZE);
    assert_int_equal(hak__superslab_purge_beyond(0, 1), SUPERSLAB_SIZE);
    assert_int_equal(hak__superslab_purge_beyond(5 * SLICE_SIZE, SIZE_MAX), SUPERSLAB_SIZE);
    assert_int_equal(hak__superslab_purge_beyond(0, SIZE_MAX), 5 * SLICE_SIZE);
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
}

TESTS(setup)
