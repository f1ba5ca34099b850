/* SPDX-License-Identifier: MIT */
/* test_huge_pauses.c: region/huge: while huge pages come slowly there are none, by a clock that the
 * test sets. (Compaction that stalls for seconds: mimalloc #1323, #1373.)
 *
 * ctest: no-qemu
 */
#define FAULT_HIDES_VDSO true
#define FAULT_CLOCK_STANDS true

#include "../threads/threads.h"
#include "../unit/unit.h"
#include "fault.h"

#include "region/huge_pages.h"

enum { SIZE = 3 * HUGE_PAGE_SIZE, SLOW = 0 };
static const uint64_t quick = UINT64_MAX - 1;

static char *range;

/* Where the kernel will not have small pages for a superslab of huge ones a part of it goes back
 * all the same, and what comes again of it goes back at the next pass. */
TEST_WITH_KNOBS(a_part_that_may_come_again)
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

static int ask(uint64_t us_max)
{
    REQUIRE(hak__os_purge(range, SIZE) == 0);
    hak__huge_page_us_max = us_max;
    return hak__huge_pages_ask(range, SIZE, 0);
}

static int range_unmap(void **state)
{
    return hak__os_unmap(range, SIZE);
}

static void range_map(void)
{
    void *address;
    REQUIRE(hak__os_map(SIZE, HUGE_PAGE_SIZE, &address) == 0);
    range = address;
}

/* All pauses are over, none has been timed in this tick, and of the range none was asked for. */
static int pauses_setup(void **state)
{
    range_map();
    fault_clock_ms += HUGE_PAGES_PAUSE_MS_MAX;
    REQUIRE(ask(quick) == 0 && hak__huge_pages_are_quick());
    range_unmap(state);
    range_map();
    fault_clock_ms++;
    return 0;
}

#define PAUSES_TEST(name) TEST_WITH(name, pauses_setup, range_unmap)

static uint64_t calls(enum os_call call)
{
    return atomic_load_relaxed(&hak__os_calls[call]);
}

/* Nothing is asked of the kernel but small pages, whatever the machine prefers. */
static void require_pause(void)
{
    uint64_t asked = calls(OS_CALL_HUGE_PAGES), small = calls(OS_CALL_SMALL);
    assert_int_equal(ask(quick), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
    assert_int_equal(hak__huge_pages_ask_untouched(range, HUGE_PAGE_SIZE), -EAGAIN);
    assert_int_equal(calls(OS_CALL_HUGE_PAGES) - asked, 0);
    assert_int_equal(hak__os_resident(range, HUGE_PAGE_SIZE), 0);
}

static void require_slow(uint32_t pause_ms)
{
    uint64_t small = calls(OS_CALL_SMALL);
    assert_int_equal(ask(SLOW), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
    assert_false(hak__huge_pages_are_quick());
    require_pause();
    fault_clock_ms += pause_ms - 1;
    require_pause();
    fault_clock_ms++;
}

PAUSES_TEST(pauses_double)
{
    for (uint32_t pause = HUGE_PAGES_PAUSE_MS_MIN; pause < HUGE_PAGES_PAUSE_MS_MAX; pause *= 2) {
        require_slow(pause);
    }
    require_slow(HUGE_PAGES_PAUSE_MS_MAX);
    require_slow(HUGE_PAGES_PAUSE_MS_MAX);
    assert_false(hak__huge_pages_are_quick()); /* until one came quickly */
    assert_int_equal(ask(quick), 0);
    assert_true(hak__huge_pages_are_quick());
    fault_clock_ms++;
    require_slow(HUGE_PAGES_PAUSE_MS_MIN);
}

/* The calling thread asks for a superslab's huge page; its next slow operation ends `us` after this
 * one. */
static void watch(uint64_t us)
{
    assert_int_equal(hak__huge_pages_ask_untouched(range, HUGE_PAGE_SIZE), 0);
    assert_true(huge_pages_are_watched());
    hak__huge_pages_look();
    assert_true(huge_pages_are_watched());
    fault_clock_us += us;
    hak__huge_pages_look();
    assert_false(huge_pages_are_watched());
}

/* A superslab is not touched: the program's touch is timed, and three slow ones in a row begin a
 * pause. */
PAUSES_TEST(the_first_touch_is_watched)
{
    uint64_t timed = calls(OS_CALL_POPULATE);
    hak__huge_page_us_max = HUGE_PAGE_US_MAX;
    fault_clock_us = 1000000;
    for (uint32_t i = 0; i < 3; i++) { /* a quick one between */
        watch(HUGE_PAGE_US_MAX + 1);
        watch(HUGE_PAGE_US_MAX + 1);
        assert_true(hak__huge_pages_are_quick());
        watch(HUGE_PAGE_US_MAX);
    }
    watch(HUGE_PAGE_US_MAX + 1);
    watch(HUGE_PAGE_US_MAX + 1);
    watch(HUGE_PAGE_US_MAX + 1);
    assert_false(hak__huge_pages_are_quick());
    assert_int_equal(hak__huge_pages_ask_untouched(range, HUGE_PAGE_SIZE), -EAGAIN);
    fault_clock_ms += HUGE_PAGES_PAUSE_MS_MIN;
    watch(1);
    assert_true(hak__huge_pages_are_quick());
    assert_int_equal(calls(OS_CALL_POPULATE), timed);
    assert_int_equal(hak__os_resident(range, HUGE_PAGE_SIZE), 0);
    fault_clock_us = 0;
}

int main(void)
{
    range_map();
    if (hak__os_huge_pages(range, SIZE) != 0 || hak__os_populate(range, HUGE_PAGE_SIZE) != 0) {
        print_message("skipped: a kernel without huge pages, or before 5.14: none is timed\n");
        return 77;
    }
    return tests_run(unit_start, NULL);
}
