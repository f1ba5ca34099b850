/* SPDX-License-Identifier: MIT */
/* test_superslab.c: region/superslab: addresses that belong to somebody else; limits; release and
 * reclaim. Which slices go out is asked by test_superslab_parts.c and test_superslab_index.c.
 *
 * ctest: no-qemu
 */
#include "unit.h"

/* Slices behind which a reservation leaves less than a superslab, but maybe a claim of level 2. */
enum { CLAIMED_APART = 20 };

TEST(take_exact_at_the_borders)
{
    struct slice_run run = hak__superslab_take(0, SUPERSLAB_SLICES, 1);
    assert_int_not_equal(run.slice, SLICE_NONE);
    assert_int_equal(run.slice % SUPERSLAB_SLICES, 0);
    assert_false(hak__superslab_take_exact(run.slice + 1, 1));
    assert_false(hak__superslab_take_exact(run.slice + SUPERSLAB_SLICES, 1));
    hak__superslab_give(run.slice + 32, 32);
    assert_false(hak__superslab_take_exact(run.slice + 31, 2));
    assert_false(hak__superslab_take_exact(run.slice + 63, 2));
    assert_true(hak__superslab_take_exact(run.slice + 32, 31));
    assert_true(hak__superslab_take_exact(run.slice + 63, 1));
    hak__superslab_give(run.slice, SUPERSLAB_SLICES);
}

/* An OS page of somebody else's, `offset` slices into the next superslab: left alone and skipped.
 */
static void skip_a_stranger(size_t offset)
{
    size_t index = (hak__superslab_first.frontier + SUPERSLAB_SLICES - 1) / SUPERSLAB_SLICES;
    size_t slice = index * SUPERSLAB_SLICES + offset;
    char *stranger = unit_occupy((uintptr_t)window_slice_address(slice), hak__os_page_size());
    memset(stranger, 's', hak__os_page_size());
    size_t taken[512], count = 0;
    do {
        assert_true(count < COUNT_OF(taken));
        size_t run = taken[count++] = hak__superslab_take(0, 8, 1).slice;
        assert_int_not_equal(run, SLICE_NONE);
        assert_true(slice < run || slice >= run + 8);
        memset(window_slice_address(run), 'x', 8 * SLICE_SIZE);
    } while (hak__superslab_first.frontier <= (index + 1) * SUPERSLAB_SLICES);
    assert_int_equal(stranger[0], 's');
    assert_int_equal(stranger[hak__os_page_size() - 1], 's');
    assert_int_equal(window_owner(slice), OWNER_NOBODY);
    for (size_t i = 0; i < count; i++) {
        hak__superslab_give(taken[i], 8);
    }
    munmap(stranger, hak__os_page_size());
}

TEST(claims_skip_what_somebody_else_has_mapped)
{
    skip_a_stranger(0);
    skip_a_stranger(SUPERSLAB_SLICES / 2 + 8);
}

static size_t whole_superslabs(void)
{
    size_t count = 0;
    for (size_t i = 0; i < hak__superslabs.count; i++) {
        count += superslab_at(i)->free == UINT64_MAX;
    }
    return count;
}

static size_t take_whole(bool *zeroed)
{
    struct slice_run run = hak__superslab_take(0, SUPERSLAB_SLICES, SUPERSLAB_SLICES);
    assert_int_not_equal(run.slice, SLICE_NONE);
    *zeroed = run.zeroed;
    return run.slice;
}

TEST(release_and_reclaim)
{
    bool zeroed;
    size_t kept = take_whole(&zeroed), freed = take_whole(&zeroed);
    memset(window_slice_address(kept), 'k', SUPERSLAB_SIZE);
    memset(window_slice_address(freed), 'f', SUPERSLAB_SIZE);
    hak__superslab_give(freed, SUPERSLAB_SLICES);
    size_t claimed = hak__superslab_bytes_claimed(), free_bytes = hak__superslab_bytes_free();
    size_t whole = whole_superslabs();
    assert_int_equal(hak__superslab_release(SIZE_MAX), whole * SUPERSLAB_SIZE);
    assert_int_equal(hak__superslab_bytes_claimed(), claimed - whole * SUPERSLAB_SIZE);
    assert_int_equal(hak__superslab_bytes_free(), free_bytes - whole * SUPERSLAB_SIZE);
    assert_int_equal(superslab_at(freed / SUPERSLAB_SLICES)->state, SUPERSLAB_RELEASED);
    assert_false(unit_is_mapped((uintptr_t)window_slice_address(freed)));
    assert_false(unit_is_mapped((uintptr_t)window_slice_address(freed + SUPERSLAB_SLICES - 1)));
    assert_int_equal(hak__superslab_release(SIZE_MAX), 0);
    for (size_t i = 0; i < whole; i++) { /* the addresses come back, the contents do not */
        size_t frontier = hak__superslab_first.frontier;
        size_t slice = take_whole(&zeroed);
        assert_int_equal(hak__superslab_first.frontier, frontier);
        assert_true(zeroed);
        assert_int_equal(nonzero_offset(window_slice_address(slice), SUPERSLAB_SIZE), SIZE_MAX);
        hak__superslab_give(slice, SUPERSLAB_SLICES);
        hak__superslab_take_exact(slice + 1, SUPERSLAB_SLICES - 1); /* so that the next is needed */
    }
    assert_int_equal(hak__superslab_bytes_claimed(), claimed);
    const char *bytes = window_slice_address(kept);
    assert_true(bytes[0] == 'k' && bytes[SUPERSLAB_SIZE - 1] == 'k');
}

TEST(reclaim_gives_up_what_somebody_else_took)
{
    bool zeroed;
    size_t slice = take_whole(&zeroed);
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    assert_true(hak__superslab_release(SIZE_MAX) >= SUPERSLAB_SIZE);
    assert_int_equal(hak__superslabs.released_count, 1);
    assert_false(superslab_has_slice(slice));
    char *stranger = unit_occupy((uintptr_t)window_slice_address(slice + 7), hak__os_page_size());
    memset(stranger, 's', hak__os_page_size());
    size_t other = take_whole(&zeroed);
    assert_int_not_equal(other, slice);
    assert_true(zeroed);
    assert_int_equal(superslab_at(slice / SUPERSLAB_SLICES)->state, SUPERSLAB_LOST);
    assert_false(superslab_has_slice(slice + 7));
    assert_true(superslab_has_slice(other));
    assert_int_equal(hak__superslabs.released_count, 0);
    assert_int_equal(stranger[0], 's');
    munmap(stranger, hak__os_page_size());
    hak__superslab_give(other, SUPERSLAB_SLICES);
}

/* 64 GiB of somebody else's addresses at the frontier, or just behind a claim that stays short. */
static void pass_a_reservation(size_t offset)
{
    const size_t size = (size_t)64 << 30;
    size_t index = (hak__superslab_first.frontier + SUPERSLAB_SLICES - 1) / SUPERSLAB_SLICES;
    char *place = (char *)window_slice_address(index * SUPERSLAB_SLICES + offset);
    char *reservation =
        mmap(place, size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(reservation, place);
    uint64_t calls = hak__os_calls[OS_CALL_MAP] + hak__os_calls[OS_CALL_UNMAP];
    size_t tables = hak__window_table_bytes(), mapped = hak__os_mapped_bytes();
    size_t claimed = hak__superslab_bytes_claimed();
    size_t run;
    do {
        run = hak__superslab_take(0, 8, 1).slice;
        assert_int_not_equal(run, SLICE_NONE);
    } while (run < index * SUPERSLAB_SLICES + offset);
    size_t end = window_slice_of(reservation + size - 1) / SUPERSLAB_SLICES + 1;
    assert_int_equal(run, end * SUPERSLAB_SLICES); /* not one superslab further */
    assert_false(superslab_has_slice(window_slice_of(reservation)));
    assert_false(superslab_has_slice(run - 1));
    assert_true(superslab_has_slice(run));
    calls = hak__os_calls[OS_CALL_MAP] + hak__os_calls[OS_CALL_UNMAP] - calls;
    assert_true(calls <= 80);
    tables = hak__window_table_bytes() - tables;
    assert_true(tables <= size / SLICE_SIZE * 6); /* a quarter of a line of metadata a slice */
    claimed = hak__superslab_bytes_claimed() - claimed;
    assert_int_equal(hak__os_mapped_bytes() - mapped, tables + claimed);
    assert_int_equal(superslab_at(end - 1)->state, SUPERSLAB_NEW);
    munmap(reservation, size);
}

TEST(a_large_reservation)
{
    SKIP_IF(SUPPORT_SANITIZED); /* no room among the addresses that it allows */
    pass_a_reservation(0);
    pass_a_reservation(CLAIMED_APART);
}

/* Neighbours are one mapping, which the kernel would refuse to fork when it is larger than the
 * machine's memory (overcommit_memory 0), however little of it is touched. */
TEST(nothing_is_reserved_for_a_fork)
{
    char mode[8];
    support_read_file("/proc/sys/vm/overcommit_memory", mode, sizeof mode);
    SKIP_IF(SUPPORT_SANITIZED || mode[0] == '2'); /* which reserves for everything */
    size_t slice = hak__superslab_take(0, 1, 1).slice;
    assert_true(unit_mapping_has_flag(window_slice_address(slice), " nr"));
    assert_false(unit_mapping_has_flag(window_slice_address(slice), " ac"));
    hak__superslab_give(slice, 1);
}

/* With 20 slices left of a limit, half a superslab cannot be had, but single slices can. */
TEST(near_a_limit)
{
    size_t count = 0;
    while (hak__superslab_bytes_free() != 0) {
        REQUIRE(hak__superslab_take(0, 1, 1).slice != SLICE_NONE);
    }
    size_t claimed = hak__superslab_bytes_claimed();
    hak__os_set_limit(hak__os_mapped_bytes() + 20 * SLICE_SIZE);
    assert_int_equal(hak__superslab_take(0, SUPERSLAB_SLICES / 2, 1).slice, SLICE_NONE);
    for (struct slice_run run; (run = hak__superslab_take(0, 4, 1)).slice != SLICE_NONE; count++) {
        assert_true(run.zeroed);
        memset(window_slice_address(run.slice), 'x', 4 * SLICE_SIZE);
    }
    hak__os_set_limit(UINT64_MAX);
    assert_true(count >= 3);
    assert_int_equal(hak__superslab_bytes_claimed() - claimed, 4 * SLICE_SIZE * count);
    assert_int_equal(hak__superslab_bytes_free(), 0);
}

static int setup(void **state)
{
    int failed = unit_start(state);
    hak__knobs.huge_threshold = UINT64_MAX; /* the model knows no huge pages */
    return failed;
}

TESTS(setup)
