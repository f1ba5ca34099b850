/* SPDX-License-Identifier: MIT */
/* test_gate.c: core/gate: nobody waits for a closed gate for long, or at all while inside. */
#include "../threads/threads.h"
#include "unit.h"

#include "core/gate.h"

static struct lock arena_lock = LOCK_INITIAL(LOCK_RANK_ARENA);

TEST(who_comes_to_a_closed_gate_is_refused)
{
    hak__gate_close();
    (void)lock_acquire_soon(&arena_lock);
    hak__own.held = 0; /* fork's */
    for (int round = 0; round < 3; round++) {
        hak__own.refused = false;
        assert_false(hak__gate_enter(GATE_BRIEFLY));
        assert_true(hak__own.refused);
        hak__own.refused = false;
        assert_false(gate_lock(&arena_lock));
        assert_true(hak__own.refused);
        assert_int_equal(hak__inside, 0);
    }
    lock_release(&arena_lock);
    assert_true(gate_lock(&arena_lock)); /* not taken: nothing to wait for */
    lock_release(&arena_lock);
    gate_end();
    hak__gate_open();
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__gate_leave();
}

/* As in a signal handler. */
TEST(who_is_inside_is_refused_at_once)
{
    hak__own.refused = false;
    assert_true(gate_lock(&arena_lock));
    assert_int_equal(hak__inside, INSIDE_LOCK);
    assert_false(gate_lock(&arena_lock));
    assert_false(hak__gate_enter(GATE_BRIEFLY));
    assert_false(hak__gate_enter(GATE_PATIENTLY));
    hak__gate_leave(); /* of one that did not enter */
    assert_int_equal(hak__inside, INSIDE_LOCK);
    lock_release(&arena_lock);
    gate_end();
    assert_true(hak__own.refused);
    assert_true(gate_lock(&arena_lock));
    lock_release(&arena_lock);
    gate_end();
    /* in the child of a handler that interrupted an operation its end must not upset the count */
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__gate_reset();
    hak__gate_leave();
    hak__gate_close(); /* nobody is inside: returns */
    hak__gate_open();
}

/* A handler that interrupted an operation forks, and so does another thread meanwhile. */
TEST(each_fork_keeps_the_gate_closed)
{
    assert_true(gate_begin());
    hak__gate_close(); /* does not wait for itself */
    gate_end();
    hak__gate_close();
    hak__gate_open();
    assert_false(hak__gate_enter(GATE_BRIEFLY));
    hak__gate_open();
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__gate_leave();
}

static void *hold_and_let_go(void *argument)
{
    bool *shared_end = argument;
    (void)lock_acquire_soon(&arena_lock);
    while (!__atomic_load_n(shared_end, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    lock_release(&arena_lock);
    return NULL;
}

static volatile sig_atomic_t signals_count;

static void count_signal(int number)
{
    signals_count++;
}

/* Inside the gate no handler stops a thread; between two parts of a long operation one may. */
TEST(signals_wait_for_the_gate)
{
    bool shared_end = false;
    signal(SIGUSR1, count_signal);
    pthread_t other = thread_start(hold_and_let_go, &shared_end); /* so that this is not alone */
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    pthread_kill(pthread_self(), SIGUSR1);
    assert_int_equal(signals_count, 0);
    assert_true(hak__gate_let_pass());
    assert_int_equal(signals_count, 1);
    pthread_kill(pthread_self(), SIGUSR1);
    assert_int_equal(signals_count, 1);
    hak__gate_leave();
    assert_int_equal(signals_count, 2);
    __atomic_store_n(&shared_end, true, __ATOMIC_RELEASE);
    thread_join(other);
}

/* A refusal belongs to its operation: a later one that finds no memory reclaims what is free. */
TEST(a_refusal_is_forgotten)
{
    static const size_t sizes[] = {100, 100 * KIB, 3 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        hak__thread_flush(hak__thread_current()); /* no fast path */
        hak__gate_refuse();
        hak_free(hak_malloc(sizes[i]));
        assert_false(hak__own.refused);
    }
}

static void *set_limit(void *argument)
{
    hak_limit_set(*(size_t *)argument, SIZE_MAX, NULL, NULL);
    return NULL;
}

/* A limit that is set during a fork is set. */
TEST(limits_wait_for_a_fork)
{
    size_t limit = SIZE_MAX / 2;
    hak_free(hak_malloc(1)); /* it has started */
    hak__gate_close();
    pthread_t thread = thread_start(set_limit, &limit);
    usleep(100000); /* a thread that does not wait is refused meanwhile */
    hak__gate_open();
    thread_join(thread);
    assert_int_equal(hak__knobs.limit, limit);
    hak_limit_set(SIZE_MAX, SIZE_MAX, NULL, NULL);
    assert_int_equal(hak__knobs.limit, UINT64_MAX);
}

TESTS(NULL)
