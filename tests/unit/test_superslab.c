/* SPDX-License-Identifier: MIT */
/* test_superslab.c: region/superslab: addresses that are somebody else's. Which slices go out is
 * asked by test_superslab_parts.c and test_superslab_index.c, what is released by
 * oom/test_limit_again.
 *
 * ctest: no-qemu
 */
#include "unit.h"

/* Slices behind which a reservation leaves less than a superslab, but maybe a claim of level 2. */
enum { CLAIMED_APART = 20 };

static size_t take_whole(bool *zeroed)
{
    struct slice_run run = hak__superslab_take(0, SUPERSLAB_SLICES, SUPERSLAB_SLICES, FOR_SLAB);
    assert_int_not_equal(run.slice, SLICE_NONE);
    *zeroed = run.zeroed;
    return run.slice;
}

TEST(reclaim_gives_up_what_somebody_else_took)
{
    bool zeroed;
    size_t slice = take_whole(&zeroed);
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    assert_true(hak__superslab_release() >= SUPERSLAB_SIZE);
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
    assert_int_equal(hak__superslabs.holes_count, 1);
    assert_int_equal(stranger[0], 's');
    munmap(stranger, hak__os_page_size());
    hak__superslab_give(other, SUPERSLAB_SLICES);
}

/* The lower half of a superslab is filled from a place on that the mark tells, without a gap. */
TEST(runs_begin_where_the_mark_says)
{
    bool zeroed;
    const uint32_t counts[] = {1, 2, 3, 7, 8, 16, 32};
    const uintptr_t mark = hak__window.mark;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint32_t count = counts[i], turn = 21 - 21 % count, taken = 0;
        size_t slice = take_whole(&zeroed), run;
        hak__superslab_give(slice, SUPERSLAB_SLICES);
        hak__window.mark = mark / 32 * 32 + 21;
        do { /* what lies lower goes first */
            run = hak__superslab_take(0, count, 1, FOR_SLAB).slice;
        } while (run / SUPERSLAB_SLICES != slice / SUPERSLAB_SLICES);
        assert_int_equal(run % SUPERSLAB_SLICES, turn);
        for (; run < slice + 32; taken++) { /* to the end of the half */
            run = hak__superslab_take(0, count, 1, FOR_SLAB).slice;
        }
        assert_int_equal(taken, (32 - turn + count - 1) / count + (turn == 0 ? 0 : turn / count));
        hak__window.mark = mark;
    }
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
        run = hak__superslab_take(0, 8, 1, FOR_SLAB).slice;
        assert_int_not_equal(run, SLICE_NONE);
    } while (run < index * SUPERSLAB_SLICES + offset);
    size_t end = window_slice_of(reservation + size - 1) / SUPERSLAB_SLICES + 1;
    assert_int_equal(run / SUPERSLAB_SLICES, end); /* not one superslab further */
    assert_false(superslab_has_slice(window_slice_of(reservation)));
    assert_false(superslab_has_slice(end * SUPERSLAB_SLICES - 1));
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
    size_t slice = hak__superslab_take(0, 1, 1, FOR_SLAB).slice;
    assert_true(unit_mapping_has_flag(window_slice_address(slice), " nr"));
    assert_false(unit_mapping_has_flag(window_slice_address(slice), " ac"));
    hak__superslab_give(slice, 1);
}

static int setup(void **state)
{
    int failed = unit_start(state);
    hak__knobs.huge_threshold = UINT64_MAX; /* the model knows no huge pages */
    return failed;
}

TESTS(setup)
