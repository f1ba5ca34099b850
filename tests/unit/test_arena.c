/* SPDX-License-Identifier: MIT */
/* test_arena.c: arena/arena, arena/thread: threads that share arenas: that the counts stay exact,
 * what goes with a thread and what with the last one, whose objects are whose, and who moves away.
 * How many arenas there get threads/ asks, and of threads' ends override/test_tls_destructors; that
 * there is no memory fault/test_threads.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../threads/threads.h"
#include "arenas.h"

#include "front/fast.h"

/* --- in a program of its own each: what a thread joins depends on what was made before --- */

static uint32_t shared_users[1000]; /* by arena id */
static pthread_barrier_t barrier;

static void *join_and_part(void *argument)
{
    struct thread *mine[6] = {NULL};
    uint64_t random = (uintptr_t)argument;
    for (size_t i = 0; i < (SUPPORT_SLOW ? 5000 : 30000); i++) {
        struct thread **slot = &mine[random_below(&random, COUNT_OF(mine))];
        if (*slot == NULL) {
            *slot = adopt();
            REQUIRE(__atomic_exchange_n(&(*slot)->batches, 1, __ATOMIC_RELAXED) == 0);
            __atomic_fetch_add(&shared_users[(*slot)->arena->id], 1, __ATOMIC_RELAXED);
        } else {
            REQUIRE(__atomic_exchange_n(&(*slot)->batches, 0, __ATOMIC_RELAXED) == 1);
            __atomic_fetch_sub(&shared_users[(*slot)->arena->id], 1, __ATOMIC_RELAXED);
            hak__thread_park(*slot);
            *slot = NULL;
        }
    }
    pthread_barrier_wait(&barrier); /* all at rest: main looks at the counts */
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < COUNT_OF(mine); i++) {
        if (mine[i] != NULL) {
            hak__thread_park(mine[i]);
        }
    }
    return NULL;
}

TEST_ANEW(joining_and_parting_at_once)
{
    pthread_t users[8];
    size_t joined = 0;
    const uint32_t arenas_max = 2;
    start_sharing(arenas_max);
    REQUIRE(pthread_barrier_init(&barrier, NULL, COUNT_OF(users) + 1) == 0);
    threads_start(users, COUNT_OF(users), join_and_part, 1);
    pthread_barrier_wait(&barrier);
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        REQUIRE(arena->threads_count == shared_users[arena->id]);
        joined += arena->threads_count;
    }
    for (struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        joined -= thread->arena != NULL;
    }
    REQUIRE_SIZE(joined, ==, 0);
    REQUIRE_SIZE(arenas_count(), <=, arenas_max);
    pthread_barrier_wait(&barrier);
    JOIN_ALL(users, COUNT_OF(users));
    REQUIRE_SIZE(threads_count(), <=, COUNT_OF(users) * 6);
    require_even(0);
    for (size_t i = 0; i < 60; i++) { /* the sums are right as well */
        adopt();
        require_even(i + 1);
    }
}

/* All find one arena fewer than there may be: one makes it, the others share. */
enum { ROUNDS = 300, AT_ONCE = 8 };

/* Of two threads on one arena the first to go takes what is its own, the last the rest. */
TEST_ANEW(parking_one_of_two)
{
    enum { CLASS = 7, OTHER_CLASS = 9 };
    start_sharing(1);
    size_t taken = unit_region_bytes_taken();
    struct thread *first = adopt(), *second = adopt();
    struct arena *arena = first->arena;
    REQUIRE(arena == second->arena && arena->threads_count == 2);
    thread_free(first, CLASS, thread_allocate(first, CLASS));
    thread_free(second, CLASS, thread_allocate(second, CLASS));
    thread_free(second, OTHER_CLASS, thread_allocate(second, OTHER_CLASS));
    keep_a_span(first);
    size_t bytes = hak__cache_bytes(&second->cache);
    uint64_t charged = second->cache.charged, told = second->cache.charged_told;
    struct object *head = second->cache.bins[CLASS].head;
    REQUIRE(hak__cache_bytes(&first->cache) != 0 && bytes != 0 && head != NULL);
    hak__thread_park(first);
    REQUIRE(first->arena == NULL && hak__cache_bytes(&first->cache) == 0);
    REQUIRE(first->cache.charged == 0 && hak__cache_charged.word == told);
    REQUIRE(hak__cache_bytes(&second->cache) == bytes && second->cache.charged == charged);
    REQUIRE(second->cache.bins[CLASS].head == head && second->arena == arena);
    REQUIRE(arena->threads_count == 1 && arena->slabs.shared_patience == NOTIFIED_PENDING_MAX);
    REQUIRE(arena->spans.slices == MIB / SLICE_SIZE);
    hak__thread_park(second);
    REQUIRE(arena->threads_count == 0 && arena->slabs.shared_patience == NOTIFIED_PENDING_MAX / 2);
    REQUIRE(arena->spans.slices == 0 && unit_set_is_empty(&arena->slabs));
    REQUIRE(hak__cache_charged.word == 0 && unit_region_bytes_taken() == taken);
}

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
    ALLOCATE_ALL(objects, COUNT_OF(objects), SIZE);
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
    count_operation(thread);
}

static void exchange(size_t mapped, void *argument)
{
    hak__thread = argument;
}

/* The callback of the limit may exchange the thread's struct: its operation goes on with the new
 * one, because another thread may have the old one. */
TEST_ANEW(a_callback_that_exchanges_the_struct)
{
    struct thread *first = adopt(), *second = adopt();
    hak_limit_set(1, SIZE_MAX, exchange, second);
    first->operations = 5;
    second->operations = 0;
    second->ticked_ms = hak__os_clock_ms();
    count_operation(first);
    REQUIRE_SIZE(first->operations, ==, 5);
    REQUIRE_SIZE(second->operations, ==, 1);
    hak_limit_set(SIZE_MAX, SIZE_MAX, NULL, NULL);
    hak__thread_park(first);
    hak__thread_park(second);
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
