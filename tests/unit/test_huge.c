/* test_huge.c: region/huge: huge pages are asked for while they come quickly. (Compaction that
 * stalls for seconds: mimalloc #1323, #1373.)
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include "region/huge.h"

#include <pthread.h>

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
    hak__huge_watcher = NULL;
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
    uint64_t start = hak__os_clock_us(); /* before the pause begins, however busy the machine is */
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
    assert_int_equal(calls(OS_CALL_SMALL) - small, 1);
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
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

/* Of a superslab's: nothing is touched, and the program's first touch is timed by looks. Starts
 * anew until nobody else's waits and nothing was timed in this tick. */
static void watch(uint64_t us_max)
{
    hak__huge_page_us_max = us_max;
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
    for (;;) {
        REQUIRE(hak__huge_ask_untouched(range) == 0);
        if (huge_is_watched()) {
            break;
        }
        usleep(1000);
    }
    REQUIRE(hak__os_resident(range, HUGE_PAGE_SIZE) == 0);
}

/* Of the last watch nothing is known: the next huge page is made resident and timed. */
static void check_that_the_next_is_timed(void)
{
    assert_false(huge_is_watched());
    hak__huge_page_us_max = quick;
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
    uint64_t timed = calls(OS_CALL_POPULATE);
    usleep(20000);
    assert_int_equal(hak__huge_ask_untouched(range), 0);
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 1);
    assert_false(huge_is_watched());
    watch(quick); /* and the next by its first touch again */
}

static void test_a_superslab_is_not_touched(void **state)
{
    (void)state;
    uint64_t timed = calls(OS_CALL_POPULATE);
    watch(quick);
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 0);
    hak__huge_look();
    assert_int_equal(hak__os_resident(range, HUGE_PAGE_SIZE), 0);
    assert_true(huge_is_watched());
}

/* A first touch in time, since the last look, ends all pauses. */
static void test_a_quick_touch(void **state)
{
    enum { IN_TIME_US = 500000 };
    (void)state;
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN);
    usleep(2000 * HUGE_PAUSE_MS_MIN);
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
    watch(IN_TIME_US);
    usleep(2 * IN_TIME_US);
    hak__huge_look();
    range[0] = 'x';
    hak__huge_look();
    assert_false(huge_is_watched());
    usleep(20000);
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
    assert_int_equal(ask_for(PAGES * HUGE_PAGE_SIZE, SLOW), -EAGAIN); /* the first pause again */
    uint64_t start = hak__os_clock_us();
    while (hak__huge_ask_untouched(range) != 0) {
        usleep(1000);
    }
    assert_true(hak__os_clock_us() - start < 3000 * HUGE_PAUSE_MS_MIN / 2);
}

static void test_one_touch_in_a_tick(void **state)
{
    (void)state;
    watch(quick);
    range[0] = 'x';
    hak__huge_look();
    uint32_t start = hak__os_clock_ms(), watches = 0;
    for (uint32_t i = 0; i < 100; i++) {
        REQUIRE(hak__huge_ask_untouched(range) == 0);
        watches += huge_is_watched();
        hak__huge_look();
    }
    assert_in_range(watches, 0, hak__os_clock_ms() - start);
}

/* As exact as the kernel counts. */
enum { LONG_MS = 60 };

static void fault_for_ms(uint32_t duration_ms)
{
    uint64_t start = hak__os_clock_us();
    do {
        REQUIRE(hak__os_purge(range, HUGE_PAGE_SIZE) == 0);
        range[0] = 'x';
    } while (hak__os_clock_us() - start < 1000 * duration_ms);
}

/* One that took the kernel long: there is a pause. */
static void test_a_slow_touch(void **state)
{
    (void)state;
    watch(SLOW);
    hak__huge_look();
    fault_for_ms(LONG_MS); /* the kernel's work */
    hak__huge_look();
    assert_false(huge_is_watched());
    uint64_t asked = calls(OS_CALL_HUGE);
    assert_int_equal(hak__huge_ask_untouched(range), -EAGAIN);
    assert_int_equal(calls(OS_CALL_HUGE) - asked, 0);
}

/* Longer, of which the program worked most: nothing is known. */
static void test_a_busy_program(void **state)
{
    (void)state;
    watch(SLOW);
    struct os_usage before = hak__os_usage(), now;
    fault_for_ms(LONG_MS);
    do { /* by its processor's time, of which a busy machine gives it little */
        for (volatile uint32_t i = 0; i < 100000;) {
            i = i + 1;
        }
        now = hak__os_usage();
    } while (now.user_us - before.user_us <
             2 * (now.system_us - before.system_us) + UINT64_C(1000) * LONG_MS);
    hak__huge_look();
    check_that_the_next_is_timed();
}

/* Longer, of which the kernel worked less than is too long. */
static void test_a_sleeping_program(void **state)
{
    (void)state;
    watch(UINT64_C(2000) * LONG_MS);
    fault_for_ms(LONG_MS / 2);
    usleep(2000 * LONG_MS);
    hak__huge_look();
    check_that_the_next_is_timed();
}

static void test_one_that_is_never_touched(void **state)
{
    (void)state;
    watch(SLOW);
    for (uint32_t i = 0; i < HUGE_LOOKS_MAX; i++) {
        assert_true(huge_is_watched());
        hak__huge_look();
    }
    check_that_the_next_is_timed();
}

static void *call_function(void *argument)
{
    void (**function)(void) = argument;
    (*function)();
    return NULL;
}

static void in_another_thread(void (*function)(void))
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, call_function, &function) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

static void look(void)
{
    hak__huge_look();
}

/* Only whoever asked knows what it did since. */
static void test_looks_of_others(void **state)
{
    (void)state;
    watch(quick);
    range[0] = 'x';
    in_another_thread(look);
    assert_true(huge_is_watched());
    hak__huge_look();
    assert_false(huge_is_watched());
}

static void touch(void)
{
    range[0] = 'x';
}

/* What another thread waited for says nothing of the time it took. */
static void test_a_touch_of_another(void **state)
{
    (void)state;
    watch(quick);
    in_another_thread(touch);
    hak__huge_look();
    check_that_the_next_is_timed();
}

/* A page of a range that has no huge one, any more or at all, says nothing of one. */
static void test_a_touch_of_a_small_page(void **state)
{
    (void)state;
    watch(quick);
    REQUIRE(hak__os_small(range, HUGE_PAGE_SIZE) == 0);
    range[0] = 'x';
    hak__huge_look();
    check_that_the_next_is_timed();
}

/* What is resident already says nothing either; the next is watched again. */
static void test_resident_ones_are_not_waited_for(void **state)
{
    (void)state;
    watch(quick);
    in_another_thread(touch);
    hak__huge_look();
    usleep(20000);
    assert_int_equal(hak__huge_ask_untouched(range), 0);
    assert_false(huge_is_watched());
    usleep(20000);
    assert_int_equal(hak__huge_ask_untouched(range), 0);
    assert_true(huge_is_watched());
}

/* Whoever asked does not come back. */
static void test_a_watch_without_looks(void **state)
{
    (void)state;
    watch(quick);
    hak__huge_watcher = (const uint32_t *)(const void *)range; /* as if it were another's */
    range[0] = 'x';
    hak__huge_look();
    usleep(20000);
    assert_int_equal(hak__huge_ask_untouched(range), 0);
    assert_ptr_equal(hak__huge_watcher, range);
    usleep(HUGE_WATCH_US_MAX);
    uint64_t timed = calls(OS_CALL_POPULATE);
    REQUIRE(hak__os_purge(range, PAGES * HUGE_PAGE_SIZE) == 0);
    assert_int_equal(hak__huge_ask_untouched(range), 0);
    assert_int_equal(calls(OS_CALL_POPULATE) - timed, 1);
    assert_false(huge_is_watched());
}

static void forget(void)
{
    hak__huge_forget(false);
}

/* A thread that ends, and the child of a fork. */
static void test_forget(void **state)
{
    (void)state;
    watch(quick);
    in_another_thread(forget);
    assert_true(huge_is_watched());
    hak__huge_forget(false);
    check_that_the_next_is_timed();
    hak__huge_watcher = (const uint32_t *)(const void *)range;
    hak__huge_forget(true);
    check_that_the_next_is_timed();
}

/* A huge page that was timed since one was asked for is newer. */
static void test_timed_meanwhile(void **state)
{
    (void)state;
    char *second = range + HUGE_PAGE_SIZE;
    watch(quick);
    usleep(20000);
    hak__huge_page_us_max = SLOW;
    assert_int_equal(hak__huge_ask(second, HUGE_PAGE_SIZE, 0), 0);
    hak__huge_page_us_max = quick;
    range[0] = 'x';
    hak__huge_look();
    assert_false(huge_is_watched());
    assert_int_equal(hak__huge_ask_untouched(range), -EAGAIN);
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
        HUGE_TEST(test_a_superslab_is_not_touched),
        HUGE_TEST(test_a_quick_touch),
        HUGE_TEST(test_one_touch_in_a_tick),
        HUGE_TEST(test_a_slow_touch),
        HUGE_TEST(test_a_busy_program),
        HUGE_TEST(test_a_sleeping_program),
        HUGE_TEST(test_one_that_is_never_touched),
        HUGE_TEST(test_looks_of_others),
        HUGE_TEST(test_a_touch_of_another),
        HUGE_TEST(test_a_touch_of_a_small_page),
        HUGE_TEST(test_resident_ones_are_not_waited_for),
        HUGE_TEST(test_a_watch_without_looks),
        HUGE_TEST(test_forget),
        HUGE_TEST(test_timed_meanwhile),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
