/* SPDX-License-Identifier: MIT */
/* test_thread.c: arena/thread: a thread's struct from its first slow operation to after its end,
 * and threads that draw from one arena. */
#include "../child.h"
#include "../threads/threads.h"
#include "arenas.h"

#include "front/fast.h"

static bool is_parked(const struct thread *thread)
{
    return __atomic_load_n(&thread->arena, __ATOMIC_RELAXED) == NULL;
}

/* A destructor of the program's that runs after the library's. */
static pthread_key_t late_key;
static int late_rounds;
static size_t late_arenas, late_threads;

static void live_after_the_end(void *argument)
{
    if (++late_rounds < 3) { /* the library's destructor has run in one of the rounds before */
        pthread_setspecific(late_key, argument);
        return;
    }
    REQUIRE(hak__thread == &hak__thread_ended && hak__thread_current() == NULL);
    struct thread *thread = hak__thread_enter();
    REQUIRE(thread != NULL && thread != &hak__thread_ended && !is_parked(thread));
    struct arena *arena = thread->arena;
    REQUIRE(is_held(&arena->lock) && arena->threads_count == 1);
    void *object = unit_cache_allocate(&thread->cache, 3);
    hak__thread_leave(thread);
    REQUIRE(is_parked(thread) && arena->threads_count == 0 && !is_held(&arena->lock));
    REQUIRE(hak__cache_bytes(&thread->cache) == 0); /* nothing stays in its bins */
    REQUIRE(hak__thread == &hak__thread_ended);
    unit_return_remote(&object, 1);
    late_arenas = arenas_count();
    late_threads = threads_count();
}

static void *live_and_end(void *ended)
{
    pthread_setspecific(late_key, &late_rounds);
    hak_free(hak_malloc(100));
    *(struct thread **)ended = hak__thread;
    return NULL;
}

/* Another thread gets the struct of one that ended, and so does a destructor after its end. */
TEST(an_ended_thread_borrows)
{
    struct thread *first, *second;
    assert_int_equal(pthread_key_create(&late_key, live_after_the_end), 0);
    thread_join(thread_start(live_and_end, &first));
    assert_int_equal(late_rounds, 3);
    assert_true(is_parked(first));
    size_t arenas = late_arenas, threads = late_threads;
    late_rounds = 0;
    thread_join(thread_start(live_and_end, &second));
    assert_int_equal(late_rounds, 3);
    assert_ptr_equal(second, first);
    assert_int_equal(late_arenas, arenas); /* the parked ones were good enough */
    assert_int_equal(late_threads, threads);
    pthread_key_delete(late_key);
}

/* From here on in a program of its own: threads that share one arena, with malloc and free. */

static uint64_t counted(const struct thread *thread, enum counter counter)
{
    return thread->cache.counters.values[counter];
}

static void require_nothing_remote(const struct thread *thread)
{
    REQUIRE(counted(thread, COUNTER_FREE_REMOTE) == 0);
    REQUIRE(counted(thread, COUNTER_REMOTE_BATCHES) == 0);
    REQUIRE(thread->cache.remote_waiting == 0);
}

enum { SIZE = 100 };

/* Its first operation is the free: the object becomes its own as it joins. */
static void *free_the_others(void *argument)
{
    void **objects = argument;
    uint32_t class_index = size_class_of(SIZE);
    REQUIRE(hak__thread == &hak__thread_none);
    for (size_t i = 0; i < 2; i++) {
        hak_free(objects[i]);
        REQUIRE_SIZE(hak__cache_objects(&hak__thread->cache, class_index), ==, i + 1);
        REQUIRE(hak__thread->cache.bins[class_index].head == objects[i]);
    }
    REQUIRE(hak_malloc(SIZE) == objects[1]); /* the last freed, not a fresh one */
    REQUIRE(hak_malloc(SIZE) == objects[0]);
    for (size_t i = 0; i < 1000; i++) { /* many more than a bin holds */
        hak_free(objects[i]);
    }
    require_nothing_remote(hak__thread);
    REQUIRE(counted(hak__thread, COUNTER_FREE_FLUSHED_OBJECTS) != 0);
    return NULL;
}

TEST_ANEW(frees_go_into_ones_own_bin)
{
    static void *objects[1000];
    start_sharing(1);
    size_t taken = unit_region_bytes_taken();
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = hak_malloc(SIZE);
        REQUIRE(objects[i] != NULL);
    }
    thread_join(thread_start(free_the_others, objects));
    REQUIRE(arenas_count() == 1 && threads_count() == 2);
    REQUIRE(hak__thread->arena->slabs.shared_notified == 0);
    require_nothing_remote(hak__thread);
    hak__arena_reclaim(false);
    REQUIRE_SIZE(unit_region_bytes_taken(), ==, taken);
}

/* `thread` has found its arena's lock taken so often, and this is the slow operation to act on it.
 */
static void crowd(struct thread *thread, uint32_t waits)
{
    thread->waits = waits;
    thread->waits_ms = hak__os_clock_ms();
    thread->operations = TICK_OPERATIONS - 1;
    hak__thread_count_operation(thread);
}

TEST_ANEW(moving_from_a_crowd)
{
    start_sharing(1);
    struct thread *mate = adopt(), *thread = adopt();
    struct arena *arena = thread->arena;
    void *object = thread_allocate(thread, 3);
    thread_free(thread, 3, thread_allocate(thread, 3));
    REQUIRE(mate->arena == arena && arena->threads_count == 2 && arenas_count() == 1);
    crowd(thread, CROWDED_WAITS); /* no arena to spare */
    REQUIRE(thread->arena == arena && thread->waits == 0);
    hak__knobs.arenas_crowded_max = 2;
    crowd(thread, CROWDED_WAITS);
    REQUIRE(thread->arena != arena && arenas_count() == 2 && arena->threads_count == 1);
    REQUIRE(thread->cache.slabs == &thread->arena->slabs && thread->arena->threads_count == 1);
    REQUIRE(thread->cache.key == thread->arena->slabs.key && hak__cache_bytes(&thread->cache) == 0);
    crowd(mate, CROWDED_WAITS); /* alone */
    REQUIRE(mate->arena == arena);
    uint64_t remote = counted(thread, COUNTER_FREE_REMOTE);
    hak__remote_free(&thread->cache, window_slice_of(object), object);
    void *fresh = thread_allocate(thread, 3);
    REQUIRE(window_owner(window_slice_of(fresh)) == (thread->cache.key | owner_code_of_class(3)));
    thread_free(thread, 3, fresh);
    hak__thread_park(thread);
    REQUIRE(counted(thread, COUNTER_FREE_REMOTE) == remote + 1);
    hak__thread_park(mate);
    hak__arena_reclaim(false);
    REQUIRE_SIZE(unit_region_bytes_taken(), ==, 0);
}

TESTS(start_with_many_arenas)
