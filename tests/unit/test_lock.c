/* SPDX-License-Identifier: MIT */
/* test_lock.c: core/lock: one holder at a time, what the only thread of a process does, a wake that
 * is lost, ranks. */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

#include "core/lock.h"

enum { THREADS = 16, ROUNDS = SUPPORT_SLOW ? 2000 : 20000 };

static struct lock lock = LOCK_INITIAL(LOCK_RANK_START);
static struct lock lower = LOCK_INITIAL(LOCK_RANK_HEAP);
static struct lock same = LOCK_INITIAL(LOCK_RANK_START);

/* Written under `lock` only. */
static uint64_t guarded_count;
static bool guarded_inside;

static uint32_t lock_state(const struct lock *of)
{
    return __atomic_load_n(&of->shared_state, __ATOMIC_RELAXED);
}

static void critical_section(size_t round)
{
    REQUIRE(!guarded_inside);
    guarded_inside = true;
    uint64_t count = guarded_count;
    if (round % 64 == 0) {
        sched_yield(); /* the others find a holder that does not run */
    }
    guarded_count = count + 1;
    guarded_inside = false;
}

static void *count_up(void *argument)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        lock_acquire(&lock);
        critical_section(i);
        lock_release(&lock);
    }
    return NULL;
}

static void *count_up_trying(void *argument)
{
    size_t done = 0;
    while (done < ROUNDS / 8) {
        if (lock_try(&lock)) {
            critical_section(done++);
            lock_release(&lock);
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void *acquire_once(void *argument)
{
    size_t *shared_done = argument;
    lock_acquire(&lock);
    guarded_count++;
    __atomic_fetch_add(shared_done, 1, __ATOMIC_RELEASE);
    lock_release(&lock);
    return NULL;
}

/* Must be the first: the only thread takes a lock without a locked operation, and another one that
 * it creates then waits for it. */
TEST(the_only_thread)
{
    size_t shared_done = 0;
#if defined(__GLIBC__) && !SUPPORT_SANITIZED
    assert_true(alone());
#endif
    guarded_count = 0;
    lock_acquire(&lock);
    assert_int_equal(lock_state(&lock), 1);
    assert_false(lock_try(&lock));
    lock_release(&lock);
    assert_int_equal(lock_state(&lock), 0);
    lock_acquire(&lock);
    pthread_t thread = thread_start(acquire_once, &shared_done);
    assert_false(alone());
    while (lock_state(&lock) != 2) {
        usleep(1000);
    }
    guarded_count = 7;
    assert_int_equal(__atomic_load_n(&shared_done, __ATOMIC_ACQUIRE), 0);
    lock_release(&lock);
    thread_join(thread);
    assert_int_equal(guarded_count, 8);
    assert_int_equal(lock_state(&lock), 0);
}

/* A lock that others hold and sleep for when a thread forks is free for the child's only thread as
 * soon as that has released it. */
static void release_alone(void *argument)
{
    REQUIRE(lock_state(&lock) == 2);
    lock_release(&lock);
    REQUIRE(lock_state(&lock) == 0);
    lock_acquire(&lock);
    lock_release(&lock);
    REQUIRE(lock_state(&lock) == 0);
}

static void *hold_until(void *argument)
{
    bool *shared_end = argument;
    lock_acquire(&lock);
    while (!__atomic_load_n(shared_end, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    lock_release(&lock);
    return NULL;
}

TEST(the_only_thread_of_a_child)
{
    bool shared_end = false;
    size_t shared_done = 0;
    pthread_t holder = thread_start(hold_until, &shared_end);
    while (lock_state(&lock) == 0) {
        usleep(1000);
    }
    pthread_t waiter = thread_start(acquire_once, &shared_done);
    while (lock_state(&lock) != 2) {
        usleep(1000);
    }
    REQUIRE_LIFE(release_alone, NULL, NULL);
    __atomic_store_n(&shared_end, true, __ATOMIC_RELEASE);
    thread_join(holder);
    thread_join(waiter);
}

TEST(mutual_exclusion)
{
    pthread_t threads[THREADS];
    guarded_count = 0;
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = thread_start(i % 4 == 3 ? count_up_trying : count_up, NULL);
    }
    JOIN_ALL(threads, THREADS);
    assert_int_equal(guarded_count, THREADS / 4 * (3 * ROUNDS + ROUNDS / 8));
    assert_int_equal(lock_state(&lock), 0);
}

/* The thread that was woken does not come, because a signal handler stopped it. */
TEST(a_wake_that_is_lost)
{
    size_t shared_done = 0;
    lock_acquire(&lock);
    pthread_t thread = thread_start(acquire_once, &shared_done);
    while (lock_state(&lock) != 2) {
        usleep(1000);
    }
    usleep(20000); /* so that it is in the kernel */
    hak__own.held = 0;
    __atomic_store_n(&lock.shared_state, 0, __ATOMIC_RELEASE);
    thread_join(thread);
    assert_int_equal(shared_done, 1);
}

static void acquire_rising(void *argument)
{
    lock_acquire(&lower);
    lock_acquire(&lock);
    lock_release(&lock);
    lock_release(&lower);
}

static void acquire_falling(void *argument)
{
    lock_acquire(&lock);
    lock_acquire(&lower);
}

static void acquire_equal(void *argument)
{
    lock_acquire(&lock);
    lock_acquire(&same);
}

static void release_free(void *argument)
{
    lock_release(&lock);
}

TEST(ranks_are_checked)
{
    REQUIRE_LIFE(acquire_rising, NULL, NULL);
    if (HAK_LEVEL >= 1) {
        REQUIRE_DEATH(acquire_falling, NULL, "assertion failed: .*hak__own.held");
        REQUIRE_DEATH(acquire_equal, NULL, "assertion failed: .*hak__own.held");
        REQUIRE_DEATH(release_free, NULL, "assertion failed: .*shared_state");
    } else {
        REQUIRE_LIFE(acquire_falling, NULL, NULL);
        REQUIRE_LIFE(acquire_equal, NULL, NULL);
    }
}

TESTS(NULL)
