/* SPDX-License-Identifier: MIT */
/* test_give_back.c: what is given back after a burst (hak__arena_give_back) where the kernel
 * refuses: as much as it takes, and giving back ends.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "../unit/unit.h"
#include "fault.h"

#include "region/huge_pages.h"

/* More than is expected to be used soon. */
enum { BURST = (int)(2 * RESERVE_BYTES / SUPERSLAB_SIZE) + 2, PART = SUPERSLAB_SLICES - 2 };

static size_t slices[BURST];

static void burst_take(void)
{
    hak__superslab_purge();
    hak__superslab_release();
    hak__knobs.limit = UINT64_MAX - 1; /* nothing stays mapped */
    for (size_t i = 0; i < BURST; i++) {
        slices[i] = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_FILLED_SLAB).slice;
        assert_int_not_equal(slices[i], SLICE_NONE);
        *(char *)window_slice_address(slices[i]) = 'x';
    }
    hak__superslab_turn_use(true);
}

static void burst_give(uint32_t count)
{
    for (size_t i = 0; i < BURST; i++) {
        hak__superslab_give(slices[i], count);
    }
}

/* Gives back while the kernel refuses such calls. Returns how many there were. */
static uint64_t give_back(enum fault_call call, int error)
{
    fault_arm((struct fault_plan){FAULT_SET(call), 1, error, true, 0}, 0);
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__arena_give_back();
    hak__gate_leave();
    fault_disarm();
    return fault_counts[call];
}

/* No mapping is left, so none can be split: the pages go, and the addresses stay. */
TEST_WITH_KNOBS(what_is_not_unmapped_is_purged)
{
    hak__knobs.huge_threshold = UINT64_MAX;
    burst_take();
    burst_give(SUPERSLAB_SLICES);
    size_t claimed = hak__superslab_bytes_claimed();
    REQUIRE_SIZE(give_back(FAULT_MUNMAP, ENOMEM), >=, 1);
    assert_in_range(hak__superslab_bytes_dirty(), 0, hak__superslab_expected());
    assert_int_equal(hak__superslab_bytes_claimed(), claimed);
}

/* The same, for superslabs with huge pages of which a part stays in use: to have small pages they
 * would have to be split off. What goes back of them may come again, and they stay dirty. This
 * hangs where giving back goes on until they are not. */
TEST_WITH_KNOBS(what_stays_dirty)
{
    hak__knobs.huge_threshold = 0;
    hak__huge_page_us_max = UINT64_MAX;
    burst_take();
    SKIP_IF(superslab_at(slices[0] / SUPERSLAB_SLICES)->huge_pages == 0);
    burst_give(PART);
    assert_int_equal(give_back(FAULT_SMALL, ENOMEM), 1);
    REQUIRE_SIZE(hak__superslab_bytes_dirty(), >, hak__superslab_expected());
    give_back(FAULT_CALLS, 0); /* as it is asked for later */
    assert_in_range(hak__superslab_bytes_dirty(), 0, hak__superslab_expected());
    for (size_t i = 0; i < BURST; i++) {
        hak__superslab_give(slices[i] + PART, SUPERSLAB_SLICES - PART);
    }
}

/* The memory is locked: a program that frees much would ask for all of it each 4 MiB. */
TEST_WITH_KNOBS(locked_memory_is_asked_for_once)
{
    hak__knobs.huge_threshold = UINT64_MAX;
    burst_take();
    burst_give(SUPERSLAB_SLICES);
    REQUIRE_SIZE(give_back(FAULT_PURGE, EINVAL), <=, 4); /* tables, and one superslab */
    REQUIRE_SIZE(hak__superslab_bytes_dirty(), >, hak__superslab_expected());
    assert_int_equal(fault_counts[FAULT_MUNMAP], 0);
}

TESTS(unit_start)
