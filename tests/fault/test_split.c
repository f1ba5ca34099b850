/* SPDX-License-Identifier: MIT */
/* test_split.c: where the kernel will not have small pages for a superslab of huge ones a part of
 * it goes back all the same, and what comes again of it goes back at the next pass. */
#include "../unit/unit.h"
#include "fault.h"

TEST_WITH(a_part_that_may_come_again, unit_save_knobs, unit_restore_knobs)
{
    enum { PART = 10 };
    hak__knobs.huge_threshold = 0;
    hak__huge_page_us_max = UINT64_MAX;
    unit_set_evidence(HUGE_SPANS, true);
    size_t slice = hak__superslab_take(0, SUPERSLAB_SLICES, 1).slice;
    assert_int_not_equal(slice, SLICE_NONE);
    struct superslab *superslab = superslab_at(slice / SUPERSLAB_SLICES);
    SKIP_IF(superslab->huge_pages == 0); /* a kernel without them */
    char *bytes = window_slice_address(slice);
    memset(bytes, 'x', SUPERSLAB_SIZE);
    hak__superslab_give(slice + 1, PART);
    fault_arm((struct fault_plan){FAULT_SET(FAULT_SMALL), 1, ENOMEM, true, 0}, 0);
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
    fault_disarm();
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(fault_fired_count, 1);
    assert_int_equal(superslab->huge_pages, 1);
    assert_int_equal(hak__superslab_bytes_dirty(), PART * SLICE_SIZE);
    bytes[SLICE_SIZE] = 'y'; /* as the kernel may do until then */
    assert_int_equal(hak__superslab_purge(true), PART * SLICE_SIZE);
    assert_int_equal(superslab->huge_pages, 0);
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    assert_int_equal(hak__os_resident(bytes + SLICE_SIZE, PART * SLICE_SIZE), 0);
    assert_int_equal(bytes[0], 'x');
    hak__superslab_give(slice, 1);
    hak__superslab_give(slice + 1 + PART, SUPERSLAB_SLICES - 1 - PART);
}

TESTS(unit_start)
