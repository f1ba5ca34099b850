/* SPDX-License-Identifier: MIT */
/* test_fork.c: arena/fork: prepare holds all arenas, nobody waits for it, parent and child leave no
 * lock; the child begins with arenas of its own, and can adopt the structs of the parent's threads.
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

static void *work_beside_a_fork(void *argument)
{
    void *blocks[BLOCK_SIZES];
    void **inherited = argument;
    fill_blocks(blocks);
    free_blocks(inherited); /* spans and huge blocks that are registered */
    free_blocks(blocks);
    void *zeroed = hak_calloc(1, 3000);
    REQUIRE(zeroed != NULL && *(char *)zeroed == 0);
    hak_free(zeroed);
    void *aligned = hak_aligned_alloc(65536, 65536);
    REQUIRE(aligned != NULL && (uintptr_t)aligned % 65536 == 0);
    hak_free(aligned);
    REQUIRE(hak_malloc(SIZE_MAX / 4) == NULL);
    return NULL;
}

/* While fork holds the arenas its own thread and others go on, with memory of their own. All of it
 * is given back, or as any other, when the fork is over. */
TEST(nobody_waits_for_fork)
{
    void *before[BLOCK_SIZES], *blocks[BLOCK_SIZES], *kept[BLOCK_SIZES];
    fill_blocks(before); /* it has an arena */
    hak_free(hak_malloc(3 * MIB));
    uint64_t bytes = stats_now().bytes_in_use;
    hak__fork_prepare();
    fill_blocks(blocks);
    fill_blocks(kept);
    free_blocks(blocks);
    thread_join(thread_start(work_beside_a_fork, before));
    size_t all, held = held_count(&all);
    assert_int_equal(held, all);
    hak__fork_parent();
    assert_true(none_is_held());
    free_blocks(kept);
    for (size_t i = 0; i < BLOCK_SIZES; i++) {
        bytes -= hak_good_size(block_sizes[i]);
    }
    hak_trim(0);
    assert_true(stats_now().bytes_in_use <= bytes);
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
                (own ? NOTIFIED_PENDING_MAX : NOTIFIED_PENDING_MAX_PARKED));
    }
}

static void require_arenas_serve(void)
{
    for (size_t i = 0; i < WAITERS; i++) {
        char *object = waiters[i].object;
        REQUIRE(object[0] == 'w' && object[199] == 'w');
        hak_free(object); /* to an arena without a thread, or this one's own */
    }
    check_blocks();
}

enum { PARKED_MAX = 100 };

static void require_empty(const struct cache *cache)
{
    REQUIRE_SIZE(hak__cache_bytes(cache), ==, 0);
    REQUIRE(cache->charged == 0);
    for (size_t i = 0; i < REMOTE_ENTRIES; i++) {
        REQUIRE(cache->remote[i].link == 0 && remote_count(&cache->remote[i]) == 0);
    }
}

/* All structs of threads that are gone can be had, each once; then one is made. They are parked
 * again. */
static void require_parked_are_adopted(void)
{
    struct thread *adopted[PARKED_MAX];
    size_t count = 0, waiting = 0, all = threads_count();
    hak_trim(0); /* what they had is counted, and the structs are parked */
    for (size_t i = 0; i < WAITERS; i++) {
        waiting += hak__thread == waiters[i].thread; /* this thread may have one */
    }
    for (; count < all - 1; count++) {
        struct thread *thread = adopted[count] = adopt();
        REQUIRE(thread != hak__thread);
        require_empty(&thread->cache);
        for (size_t i = 0; i < count; i++) {
            REQUIRE(thread != adopted[i]);
        }
        for (size_t i = 0; i < WAITERS; i++) {
            waiting += thread == waiters[i].thread;
        }
    }
    REQUIRE_SIZE(waiting, ==, WAITERS);
    REQUIRE_SIZE(threads_count(), ==, all); /* none was made */
    adopted[count++] = adopt();
    REQUIRE_SIZE(threads_count(), ==, all + 1);
    require_even(count + 1);
    while (count != 0) {
        struct thread *thread = adopted[--count];
        struct arena *arena = thread->arena;
        uint32_t before = arena->threads_count;
        hak__thread_park(thread);
        REQUIRE(thread->arena == NULL && arena->threads_count == before - 1);
    }
    require_others_abandoned();
}

static void check_child(void)
{
    size_t arenas = arenas_count();
    REQUIRE(none_is_held());
    REQUIRE_SIZE(threads_count(), >=, WAITERS + 1);
    require_others_abandoned();
    require_arenas_serve();
    require_parked_are_adopted();
    REQUIRE_SIZE(arenas_count(), <=, arenas + threads_count()); /* its own */
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

/* A thread of the parent had just taken this struct off the stack of parked ones, and joined a
 * arena. */
static struct thread *between;

static void find_the_one_between(void)
{
    const struct thread *first = hak__thread_first();
    require_others_abandoned();
    while (hak__thread_adopt() != between) {
        REQUIRE(hak__thread_first() == first); /* else it was made: ours is lost */
    }
}

TEST(a_struct_on_its_way_to_a_thread)
{
    between = adopt();
    struct arena *arena = between->arena;
    between->arena = NULL;
    fork_and_run(find_the_one_between);
    between->arena = arena;
    hak__thread_park(between);
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
    REQUIRE(arenas_count() == arenas + 1 && threads_count() == threads);
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

TESTS(start_with_many_arenas)
