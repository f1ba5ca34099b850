/* test_huge.c: region/huge: huge pages are asked for while they come quickly. (Compaction that
 * stalls for seconds: mimalloc #1323, #1373.)
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include "region/huge.h"

enum { PAGES = 2, SLOW = 0 };
static const uint64_t quick = UINT64_MAX - 1;

static char *range;

/* No huge page is timed twice in a tick of the clock. */
static int huge_setup(void **state)
{
    void *address;
    (void)state;
    REQUIRE(hak__os_map(PAGES * HUGE_PAGE_SIZE, HUGE_PAGE_SIZE, &address) == 0);
    range = address;
    usleep(20000);
    return 0;
}

/* One that comes quickly ends all pauses. */
static int huge_teardown(void **state)
{
    (void)state;
    hak__huge_page_us_max = quick;
    do {
        REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
        usleep(20000);
    } while (hak__huge_ask(range, PAGES * HUGE_PAGE_SIZE, 0) != 0);
    REQUIRE(hak__os_unmap(range, PAGES * HUGE_PAGE_SIZE) == 0);
    hak__huge_page_us_max = HUGE_PAGE_US_MAX;
    return 0;
}

#define HUGE_TEST(test) cmocka_unit_test_setup_teardown(test, huge_setup, huge_teardown)

static int ask_for(size_t size, uint64_t us_max)
{
    hak__huge_page_us_max = us_max;
    return hak__huge_ask(range, size, 0);
}

static uint64_t calls(enum os_call call)
{
    return atomic_load_relaxed(&hak__os_calls[call]);
}

static void test_the_first_is_made_resident(void **state)
{
    (void)state;
    range[5] = 'x'; /* what is there stays */
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, quick), 0);
    assert_int_equal(range[5], 'x');
    assert_int_equal(hak__os_resident(range, HUGE_PAGE_SIZE), HUGE_PAGE_SIZE);
    assert_int_equal(hak__os_resident(range + HUGE_PAGE_SIZE, HUGE_PAGE_SIZE), 0);
}

static void test_once_in_a_tick(void **state)
{
    (void)state;
    uint64_t timed = calls(OS_CALL_POPULATE), asked = calls(OS_CALL_HUGE);
    uint32_t start = hak__os_clock_ms();
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, quick), 0);
    }
    assert_int_equal(calls(OS_CALL_HUGE) - asked, 100);
    assert_in_range(calls(OS_CALL_POPULATE) - timed, 1, 1 + hak__os_clock_ms() - start);
}

static void test_a_slow_one_is_the_last_for_a_while(void **state)
{
    (void)state;
    uint64_t asked = calls(OS_CALL_HUGE), small = calls(OS_CALL_SMALL);
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
    uint64_t start = hak__os_clock_us();
    while (ask_for(PAGES * HUGE_PAGE_SIZE, quick) != 0) {
        assert_int_equal(calls(OS_CALL_HUGE) - asked, 1); /* nothing is asked of the kernel */
        usleep(1000);
    }
    uint64_t pause_ms = (hak__os_clock_us() - start) / 1000;
    assert_true(pause_ms >= HUGE_PAUSE_MS_MIN / 2); /* a coarse clock */
}

/* Of one huge page there is no rest that could be small. */
static void test_a_single_slow_one_is_kept(void **state)
{
    (void)state;
    assert_int_equal(ask_for(HUGE_PAGE_SIZE, SLOW), 0);
    assert_int_equal(ask_for(HUGE_PAGE_SIZE, SLOW), -EAGAIN);
}

static void test_pauses_double(void **state)
{
    (void)state;
    uint64_t pauses[3], asked = calls(OS_CALL_HUGE);
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
    for (uint64_t i = 0; i < COUNT_OF(pauses); i++) {
        REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
        uint64_t start = hak__os_clock_us();
        while (calls(OS_CALL_HUGE) - asked == 1 + i) {
            assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
            usleep(1000);
        }
        pauses[i] = hak__os_clock_us() - start;
    }
    assert_true(pauses[1] > pauses[0] * 3 / 2);
    assert_true(pauses[2] > pauses[1] * 3 / 2);
}

/* What is resident takes no time, and says nothing of how long the next one would take. */
static void test_resident_ones_say_nothing(void **state)
{
    (void)state;
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
    usleep(2000 * HUGE_PAUSE_MS_MIN);
    uint64_t timed = calls(OS_CALL_POPULATE), looked = calls(OS_CALL_RESIDENT);
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, quick), -EAGAIN);
    assert_int_equal(calls(OS_CALL_RESIDENT) - looked, 1);
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 0);
}

/* Of a mapping that has grown the first new one is timed. */
static void test_what_was_there_is_not_timed(void **state)
{
    (void)state;
    hak__huge_page_us_max = quick;
    assert_int_equal(hak__huge_ask(range, PAGES * HUGE_PAGE_SIZE, 1), 0);
    assert_int_equal(hak__os_resident(range, HUGE_PAGE_SIZE), 0);
    assert_int_equal(hak__os_resident(range + HUGE_PAGE_SIZE, HUGE_PAGE_SIZE), HUGE_PAGE_SIZE);
    usleep(20000);
    uint64_t timed = calls(OS_CALL_POPULATE), asked = calls(OS_CALL_HUGE);
    assert_int_equal(hak__huge_ask(range, PAGES * HUGE_PAGE_SIZE, HUGE_PAGE_SIZE + 1), 0);
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 0); /* there is no new one */
    assert_int_equal(calls(OS_CALL_HUGE) - asked, 1);
}

/* During a pause what asked earlier gets small pages from now on. */
static void test_growth_in_a_pause_is_small(void **state)
{
    (void)state;
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
    uint64_t small = calls(OS_CALL_SMALL);
    assert_int_equal(hak__huge_ask(range, PAGES * HUGE_PAGE_SIZE, 0), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 0);
    assert_int_equal(hak__huge_ask(range, PAGES * HUGE_PAGE_SIZE, HUGE_PAGE_SIZE), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HUGE_TEST(test_the_first_is_made_resident),
        HUGE_TEST(test_once_in_a_tick),
        HUGE_TEST(test_a_slow_one_is_the_last_for_a_while),
        HUGE_TEST(test_a_single_slow_one_is_kept),
        HUGE_TEST(test_pauses_double),
        HUGE_TEST(test_resident_ones_say_nothing),
        HUGE_TEST(test_what_was_there_is_not_timed),
        HUGE_TEST(test_growth_in_a_pause_is_small),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
