/* SPDX-License-Identifier: MIT */
/* test_huge_pauses.c: region/huge_pages: where huge pages come slowly there are few. (Compaction
 * that stalls for seconds: mimalloc #1323, #1373.)
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "../unit/unit.h"
#include "fault.h"

#include "region/huge_pages.h"

enum { SIZE = HUGE_PAGES_SLOW_MIN * HUGE_PAGE_SIZE };

static char *range;

/* Where the kernel will not have small pages for a superslab of huge ones a part of it goes back
 * all the same, and what comes again of it goes back at the next pass. */
TEST_WITH_KNOBS(a_part_that_may_come_again)
{
    enum { PART = 10 };
    hak__knobs.huge_threshold = 0;
    hak__huge_page_us_max = UINT64_MAX;
    unit_set_evidence(true);
    size_t slice = hak__superslab_take(0, SUPERSLAB_SLICES, 1, FOR_SLAB).slice;
    assert_int_not_equal(slice, SLICE_NONE);
    struct superslab *superslab = superslab_at(slice / SUPERSLAB_SLICES);
    SKIP_IF(superslab->huge_pages == 0); /* a kernel without them */
    char *bytes = window_slice_address(slice);
    memset(bytes, 'x', SUPERSLAB_SIZE);
    hak__superslab_give(slice + 1, PART);
    fault_arm((struct fault_plan){FAULT_SET(FAULT_SMALL), 1, ENOMEM, true, 0}, 0);
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__superslab_purge(), PART * SLICE_SIZE);
    fault_disarm();
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(fault_fired_count, 1);
    assert_int_equal(superslab->huge_pages, 1);
    assert_int_equal(hak__superslab_bytes_dirty(), PART * SLICE_SIZE);
    bytes[SLICE_SIZE] = 'y'; /* as the kernel may do until then */
    assert_int_equal(hak__superslab_purge(), PART * SLICE_SIZE);
    assert_int_equal(superslab->huge_pages, 0);
    assert_int_equal(hak__superslab_bytes_dirty(), 0);
    assert_int_equal(hak__os_resident(bytes + SLICE_SIZE, PART * SLICE_SIZE), 0);
    assert_int_equal(bytes[0], 'x');
    hak__superslab_give(slice, 1);
    hak__superslab_give(slice + 1 + PART, SUPERSLAB_SLICES - 1 - PART);
}

static uint64_t calls(enum os_call call)
{
    return atomic_load_relaxed(&hak__os_calls[call]);
}

/* Asks for the range, with a first huge page that is slow or not. */
static int ask(bool slow)
{
    hak__huge_page_us_max = slow ? 0 : UINT64_MAX;
    return hak__huge_pages_try(range, SIZE, 0);
}

/* Nothing is asked of the kernel but small pages, whatever the machine prefers. */
static void require_small(size_t size)
{
    uint64_t asked = calls(OS_CALL_HUGE_PAGES), small = calls(OS_CALL_SMALL);
    assert_int_equal(hak__huge_pages_ask(range, size), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
    assert_int_equal(calls(OS_CALL_HUGE_PAGES) - asked, 0);
}

/* After each slow page twice as much memory has small pages, up to a bound. A quick one ends that.
 */
TEST(slow_pages)
{
    uint32_t superslabs = HUGE_PAGES_SLOW_MIN;
    for (int slow = 0; slow < 5; slow++) {
        uint64_t small = calls(OS_CALL_SMALL);
        assert_int_equal(ask(true), -EAGAIN);
        assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
        for (uint32_t i = 0; i < superslabs; i++) {
            require_small(HUGE_PAGE_SIZE);
        }
        superslabs = 2 * superslabs < HUGE_PAGES_SLOW_MAX ? 2 * superslabs : HUGE_PAGES_SLOW_MAX;
    }
    assert_int_equal(ask(false), 0);
    assert_int_equal(ask(true), -EAGAIN);
    require_small(SIZE);
    assert_int_equal(ask(false), 0);
}

/* Of superslabs the last one that was begun is timed, when its thread holds no lock. */
TEST(the_page_that_was_begun)
{
    uint64_t timed = calls(OS_CALL_POPULATE);
    assert_int_equal(ask(false), 0);
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 1);
    hak__huge_pages_begun = range;
    hak__huge_page_us_max = 0;
    hak__huge_pages_look();
    assert_false(huge_pages_are_begun());
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 2);
    require_small(SIZE);
    hak__huge_pages_look(); /* once is enough */
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 2);
    assert_int_equal(ask(false), 0);
}

/* A program's first use of a superslab with huge pages is timed by the malloc that begins it. */
TEST_WITH_KNOBS(malloc_times_the_page_that_it_begins)
{
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    SKIP_IF(HAK_TINY_LIMITS); /* nothing claims whole superslabs */
    hak__knobs.huge_threshold = 0;
    hak__huge_page_us_max = UINT64_MAX;
    uint64_t timed = calls(OS_CALL_POPULATE);
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(1000);
        REQUIRE(blocks[i] != NULL);
    }
    REQUIRE_SIZE(calls(OS_CALL_POPULATE), >, timed);
    assert_false(huge_pages_are_begun());
    FREE_ALL(blocks, BLOCKS);
}

int main(void)
{
    void *address;
    REQUIRE(hak__os_map(SIZE, HUGE_PAGE_SIZE, &address) == 0);
    range = address;
    if (hak__os_huge_pages(range, SIZE) != 0 || hak__os_populate(range, HUGE_PAGE_SIZE) != 0) {
        print_message("skipped: a kernel without huge pages, or before 5.14: none is timed\n");
        return 77;
    }
    return tests_run(unit_start, NULL);
}
