/* SPDX-License-Identifier: MIT */
/* test_fork.c: arena/fork: prepare holds all arenas, parent and child leave no lock; the child
 * goes on with the arenas, and can adopt the structs of the parent's threads. Forks in signal
 * handlers, inside operations and beside each other are asked by override/test_fork_libc.
 *
 * The kernel's fork without the C library's handlers, which a program that links the archive may
 * have or not: the test calls the three functions itself. Children allocate nothing from the C
 * library.
 */
#include "forks.h"

TEST(arenas_are_held_and_let_go)
{
    size_t all;
    start_waiters();
    for (int round = 0; round < 3; round++) {
        assert_true(none_is_held());
        hak__fork_prepare();
        size_t held = held_count(&all);
        assert_int_equal(held, all);
        assert_true(all > 1 && others_are_free() && hak__inside == INSIDE_FORK);
        hak__fork_parent();
        assert_true(none_is_held());
    }
    end_waiters();
}

/* What the child has of other threads: nothing. */
static void require_others_abandoned(void)
{
    for (const struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        REQUIRE(hak__thread_is_used(thread) == (thread == hak__thread));
    }
    REQUIRE(hak__cache_charged.word == hak__thread->cache.charged_told);
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        bool own = arena == hak__thread->arena;
        REQUIRE_SIZE(arena->threads_count, ==, own ? 1 : 0);
        REQUIRE(arena->slabs.shared_patience ==
                (own ? NOTIFIED_PENDING_MAX : NOTIFIED_PENDING_MAX / 2));
    }
}

static void require_arenas_serve(void)
{
    for (size_t i = 0; i < WAITERS; i++) {
        char *object = waiters[i].object;
        REQUIRE(object[0] == 'w' && object[199] == 'w');
        hak_free(object); /* to an arena without a thread */
    }
    check_blocks();
}

static void check_child(void)
{
    size_t arenas = arenas_count();
    REQUIRE(none_is_held());
    REQUIRE_SIZE(threads_count(), >=, WAITERS + 1);
    require_others_abandoned();
    require_arenas_serve();
    REQUIRE_SIZE(arenas_count(), ==, arenas);
    REQUIRE(none_is_held());
}

static void fork_beside_waiters(void)
{
    hak_free(hak_malloc(1));
    start_waiters();
    fork_and_run(check_child);
    REQUIRE(none_is_held());
    for (size_t i = 0; i < WAITERS; i++) {
        struct arena *arena = waiters[i].thread->arena;
        REQUIRE(arena != NULL && arena->threads_count >= 1); /* the parent is as it was */
        REQUIRE(hak__cache_bytes(&waiters[i].thread->cache) != 0);
    }
    end_waiters();
}

TEST(the_child_abandons_other_threads)
{
    fork_beside_waiters();
}

/* The same in a program in which all threads share one arena, or two. The counts from which the
 * next threads' arenas are chosen are the child's. */
static void fork_with_shared_arenas(uint32_t arenas_max)
{
    start_sharing(arenas_max);
    fork_beside_waiters();
    REQUIRE_SIZE(arenas_count(), ==, arenas_max);
    require_even(1);
}

TEST_ANEW(one_shared_arena)
{
    fork_with_shared_arenas(1);
}

TEST_ANEW(two_shared_arenas)
{
    fork_with_shared_arenas(2);
}

/* A thread without a struct forks, and a handler of the program allocates. */
static void *fork_without_a_struct(void *argument)
{
    REQUIRE(hak__thread == &hak__thread_none);
    size_t arenas = arenas_count(), threads = threads_count();
    hak__fork_prepare();
    void *block = hak_malloc(100);
    REQUIRE(block != NULL && hak__thread == &hak__thread_none);
    REQUIRE(arenas_count() == arenas && threads_count() == threads);
    hak__fork_parent();
    REQUIRE(none_is_held());
    hak_free(block);
    hak_free(hak_malloc(100));
    REQUIRE(hak__thread != &hak__thread_none);
    return argument;
}

static void fork_without_a_struct_in_a_child(void)
{
    hak__thread = (struct thread *)(uintptr_t)&hak__thread_none;
    fork_without_a_struct(NULL);
}

TEST(a_thread_without_a_struct_forks)
{
    hak_free(hak_malloc(1));
    fork_and_run(fork_without_a_struct_in_a_child);
}

/* Nor has the only thread of the child one: no arena has a thread. */
static void check_child_without_a_struct(void)
{
    REQUIRE(hak__thread == &hak__thread_none);
    require_others_abandoned();
    require_even(0);
    size_t arenas = arenas_count(), threads = threads_count();
    hak_free(hak_malloc(100));
    require_others_abandoned();
    require_even(1);
    REQUIRE(arenas_count() == arenas && threads_count() == threads);
}

static void *fork_from_a_new_thread(void *argument)
{
    fork_and_run(check_child_without_a_struct);
    return argument;
}

TEST(the_child_of_a_thread_without_a_struct)
{
    hak_free(hak_malloc(1));
    start_waiters();
    thread_join(thread_start(fork_from_a_new_thread, NULL));
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
        struct cache_far *far = cache_far_of(&adopted[i]->cache);
        memset(far->remote, 0, sizeof far->remote); /* has its pages */
    }
    long after = fork_and_run(do_nothing);
    REQUIRE(after - before < MANY / 4);
}

TESTS(start_with_many_arenas)
