/* SPDX-License-Identifier: MIT */
/* test_fork_inside.c: arena/fork: forks inside forks and inside operations, two at once, and what
 * the child's share of one costs. */
#include "forks.h"

#include "observe/samples.h"

/* A handler of a fork forks, or a signal handler that interrupts one: both children work. */
static void fork_once_more(void)
{
    hak_free(hak_malloc(5000));
    fork_and_run(check_blocks);
    check_blocks();
}

static void fork_inside_a_fork(void)
{
    hak__fork_prepare();
    fork_and_run(fork_once_more); /* prepare, and parent or child */
    REQUIRE(hak__inside == INSIDE_FORK);
    void *block = hak_malloc(100);
    hak__fork_parent();
    hak_free(block);
    check_blocks();
}

TEST(a_fork_inside_a_fork)
{
    start_waiters();
    fork_inside_a_fork();
    fork_and_run(fork_inside_a_fork);
    end_waiters();
}

/* The child of the inner fork goes on with the outer one. */
TEST(the_inner_child_ends_the_outer_fork)
{
    int status;
    start_waiters();
    hak__fork_prepare();
    hak__fork_prepare();
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        alarm(280);
        hak__fork_child();
        check_blocks();
        long outer = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (outer == 0) {
            hak__fork_child();
            check_blocks();
            _exit(0);
        }
        hak__fork_parent();
        check_blocks();
        REQUIRE(waitpid((pid_t)outer, &status, 0) == outer && status == 0);
        _exit(0);
    }
    hak__fork_parent();
    hak__fork_parent();
    check_blocks();
    REQUIRE(waitpid((pid_t)pid, &status, 0) == pid && status == 0);
    end_waiters();
}

/* A signal handler forks that interrupted a slow operation of its thread: parent and child have
 * memory in the handler, and go on with the operation after it. */
TEST(a_fork_inside_an_operation)
{
    int status;
    struct thread *thread = hak__thread_enter();
    assert_non_null(thread);
    hak__fork_prepare();
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        alarm(280);
        hak__fork_child();
    } else {
        hak__fork_parent();
    }
    void *blocks[BLOCK_SIZES];
    fill_blocks(blocks);
    free_blocks(blocks);
    hak__thread_leave(thread);
    check_blocks();
    if (pid == 0) {
        _exit(0);
    }
    assert_true(waitpid((pid_t)pid, &status, 0) == pid && status == 0);
    assert_true(none_is_held());
}

/* Other threads need the lock that the interrupted thread holds: they do not wait for its fork,
 * which may wait for them. Their ends do wait, so they first say that they have come so far. */
static void *use_memory(void *argument)
{
    void *blocks[BLOCK_SIZES];
    fill_blocks(blocks);
    free_blocks(blocks);
    pthread_barrier_wait(&barrier);
    return argument;
}

static void *use_memory_with_a_arena(void *argument)
{
    hak_free(hak_malloc(1));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return use_memory(argument);
}

/* As malloc does: it is inside when the other thread is interrupted. */
static void *tick(void *argument)
{
    hak_free(hak_malloc(1));
    hak__knobs.purge_delay_ms = 0; /* always due */
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    REQUIRE(hak__gate_enter());
    hak__arena_tick(hak__thread);
    hak__gate_leave();
    pthread_barrier_wait(&barrier);
    return argument;
}

/* Starts a thread that runs up to its first wait for the barrier. */
static pthread_t start_beside(void *(*body)(void *))
{
    pthread_t thread = thread_start(body, NULL);
    pthread_barrier_wait(&barrier);
    return thread;
}

static void wait_for_a_waiter(const struct lock *lock)
{
    while (__atomic_load_n(&lock->shared_state, __ATOMIC_RELAXED) != 2) {
        usleep(1000);
    }
}

/* Interrupts an operation that holds the arena's lock, beside one that waits for it. */
static void fork_inside_beside(void *(*body)(void *))
{
    pthread_t waiting = start_beside(body);
    struct thread *thread = hak__thread_enter();
    REQUIRE(thread != NULL);
    pthread_barrier_wait(&barrier);
    wait_for_a_waiter(&thread->arena->lock);
    hak__fork_prepare();
    pthread_barrier_wait(&barrier);
    pthread_t coming = thread_start(use_memory, NULL);
    pthread_barrier_wait(&barrier);
    hak__fork_parent();
    hak__thread_leave(thread);
    thread_join(waiting);
    thread_join(coming);
    REQUIRE(hak__gate_enter()); /* nobody is refused any more */
    hak__gate_leave();
    check_blocks();
}

/* The same with the lock of samples. */
static void fork_inside_a_sample(void)
{
    hak__sampling_set(SAMPLING_OWN, 1, false);
    pthread_t waiting = start_beside(use_memory_with_a_arena);
    REQUIRE(hak__gate_enter());
    lock_acquire(&hak__samples_lock);
    pthread_barrier_wait(&barrier);
    wait_for_a_waiter(&hak__samples_lock);
    hak__fork_prepare();
    pthread_barrier_wait(&barrier);
    hak__fork_parent();
    lock_release(&hak__samples_lock);
    hak__gate_leave();
    hak__sampling_set(SAMPLING_OWN, 0, false);
    thread_join(waiting);
    check_blocks();
}

TEST_ANEW(nobody_waits_for_a_fork_inside_an_operation)
{
    start_sharing(1);
    REQUIRE(pthread_barrier_init(&barrier, NULL, 2) == 0);
    fork_inside_beside(use_memory_with_a_arena);
    fork_inside_beside(tick);
    fork_inside_a_sample();
}

/* Two threads are between their handlers at once. */
static void *fork_alone(void *argument)
{
    hak__fork_prepare();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    hak__fork_parent();
    return argument;
}

TEST(two_forks_at_once)
{
    size_t all;
    hak_free(hak_malloc(1));
    for (size_t first = 0; first < 2; first++) {
        REQUIRE(pthread_barrier_init(&barrier, NULL, 2) == 0);
        pthread_t other = thread_start(fork_alone, NULL);
        pthread_barrier_wait(&barrier);
        if (first == 0) { /* this thread's lies within the other's, or the other's end in it */
            fork_and_run(check_blocks);
            assert_true(held_count(&all) == arenas_count());
            pthread_barrier_wait(&barrier);
        } else {
            hak__fork_prepare();
            pthread_barrier_wait(&barrier);
        }
        thread_join(other);
        if (first != 0) {
            assert_true(held_count(&all) == arenas_count());
            hak__fork_parent();
        }
        assert_true(none_is_held());
    }
}

static void do_nothing(void)
{
}

enum { MANY = 300 };

/* The child touches no struct of another thread: its page faults do not grow with their number. */
TEST_ANEW(many_threads_cost_the_child_nothing)
{
    static struct thread *adopted[MANY];
    start_sharing(2);
    hak_free(hak_malloc(1));
    for (size_t i = 0; i < 4; i++) {
        adopt(); /* all arenas are there */
    }
    long before = fork_and_run(do_nothing);
    for (size_t i = 0; i < MANY; i++) {
        adopted[i] = adopt();
        memset(adopted[i]->cache.remote, 0, sizeof adopted[i]->cache.remote); /* has its pages */
    }
    long after = fork_and_run(do_nothing);
    REQUIRE(after - before < MANY / 4);
}

TESTS(start_with_many_arenas)
