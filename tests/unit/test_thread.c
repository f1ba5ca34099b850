/* SPDX-License-Identifier: MIT */
/* test_thread.c: heap/thread: a thread's struct from its first slow operation to after its end, and
 * threads that draw from one heap. */
#include "../child.h"
#include "../threads/threads.h"
#include "heaps.h"

#include "front/fast.h"

static bool is_held(const struct lock *lock)
{
    return __atomic_load_n(&lock->shared_state, __ATOMIC_RELAXED) != 0;
}

static bool is_parked(const struct thread *thread)
{
    return __atomic_load_n(&thread->heap, __ATOMIC_RELAXED) == NULL;
}

TEST(nobodys_threads)
{
    const struct thread *const nobodys[] = {&hak__thread_none, &hak__thread_ended};
    for (size_t i = 0; i < COUNT_OF(nobodys); i++) {
        assert_null(nobodys[i]->heap);
        for (uint32_t class_index = 0; class_index < CLASS_COUNT; class_index++) {
            assert_null(nobodys[i]->cache.bins[class_index].head);
        }
        /* a key that matches no owner word: neither nobody's, nor a span's, nor any heap's */
        static const uint32_t words[] = {OWNER_NOBODY, OWNER_SPAN, 1u << OWNER_CODE_BITS | 1,
                                         HEAP_ID_MAX << OWNER_CODE_BITS | 1};
        for (size_t j = 0; j < COUNT_OF(words); j++) {
            assert_true((words[j] ^ nobodys[i]->cache.key) >= CLASS_COUNT);
        }
    }
}

struct life {
    struct thread *thread;
    struct heap *heap;
};

static void *live_once(void *argument)
{
    struct life *life = argument;
    REQUIRE(hak__thread == &hak__thread_none);
    struct thread *thread = hak__thread_enter();
    REQUIRE(thread != NULL && thread == hak__thread);
    struct heap *heap = thread->heap;
    REQUIRE(is_held(&heap->lock));
    void *object = unit_cache_allocate(&thread->cache, 3);
    REQUIRE(window_owner(window_slice_of(object)) == (thread->cache.key | owner_code_of_class(3)));
    hak__thread_leave(thread);
    REQUIRE(!is_held(&heap->lock) && thread->heap == heap && heap->threads_count == 1);
    REQUIRE(hak__thread_current() == thread && hak__thread_enter() == thread);
    unit_cache_free(&thread->cache, 3, object);
    hak__thread_leave(thread);
    *life = (struct life){thread, heap};
    return NULL;
}

TEST(a_struct_goes_from_thread_to_thread)
{
    struct life first, second;
    size_t taken = unit_region_bytes_taken();
    thread_join(thread_start(live_once, &first));
    assert_true(is_parked(first.thread));
    assert_int_equal(first.heap->threads_count, 0);
    assert_int_equal(unit_region_bytes_taken(), taken);
    thread_join(thread_start(live_once, &second));
    assert_ptr_equal(first.thread, second.thread);
    assert_ptr_equal(first.heap, second.heap);
}

/* A destructor of the program's that runs after the library's. */
static pthread_key_t late_key;
static int late_rounds;
static size_t late_heaps, late_threads;

static void live_after_the_end(void *argument)
{
    if (++late_rounds < 3) { /* the library's destructor has run in one of the rounds before */
        pthread_setspecific(late_key, argument);
        return;
    }
    REQUIRE(hak__thread == &hak__thread_ended);
    REQUIRE(hak__thread_current() == NULL);
    struct thread *thread = hak__thread_enter();
    REQUIRE(thread != NULL && thread != &hak__thread_ended && !is_parked(thread));
    struct heap *heap = thread->heap;
    REQUIRE(is_held(&heap->lock) && heap->threads_count == 1);
    void *object = unit_cache_allocate(&thread->cache, 3);
    hak__thread_leave(thread);
    REQUIRE(is_parked(thread) && heap->threads_count == 0 && !is_held(&heap->lock));
    REQUIRE(hak__cache_bytes(&thread->cache) == 0); /* nothing stays in its bins */
    REQUIRE(hak__thread == &hak__thread_ended);
    unit_return_remote(&object, 1);
    late_heaps = heaps_count();
    late_threads = threads_count();
}

static void *live_and_end(void *argument)
{
    pthread_setspecific(late_key, &late_rounds);
    return live_once(argument);
}

TEST(an_ended_thread_borrows)
{
    struct life life;
    assert_int_equal(pthread_key_create(&late_key, live_after_the_end), 0);
    size_t heaps = heaps_count(), threads = threads_count();
    thread_join(thread_start(live_and_end, &life));
    assert_int_equal(late_rounds, 3);
    assert_int_equal(late_heaps, heaps); /* the parked ones were good enough */
    assert_int_equal(late_threads, threads);
    pthread_key_delete(late_key);
    hak__heap_collect(life.heap, true);
    assert_true(unit_set_is_empty(&life.heap->slabs));
}

/* From here on in a program of its own: threads that share one heap, with malloc and free. */

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

static void free_into_ones_own_bin(void *argument)
{
    static void *objects[1000];
    start_sharing(1);
    size_t taken = unit_region_bytes_taken();
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = hak_malloc(SIZE);
        REQUIRE(objects[i] != NULL);
    }
    thread_join(thread_start(free_the_others, objects));
    REQUIRE(heaps_count() == 1 && threads_count() == 2);
    REQUIRE(hak__thread->heap->slabs.shared_notified == 0);
    require_nothing_remote(hak__thread);
    hak__heap_reclaim(false);
    REQUIRE_SIZE(unit_region_bytes_taken(), ==, taken);
}

/* Parcels handed around through one table: who takes one out checks and frees it. */
static struct parcel *shared_slots[256];
static pthread_barrier_t barrier;

static void *exchange(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    pthread_barrier_wait(&barrier);
    for (size_t step = 0; step < (SUPPORT_SLOW ? 10000 : 60000); step++) {
        struct parcel **slot = &shared_slots[random_below(&random, COUNT_OF(shared_slots))];
        unsigned bits = random_below(&random, 64) == 0 ? 17 : 10;
        struct parcel *parcel = parcel_create(random_size(&random, bits), random);
        parcel = __atomic_exchange_n(slot, parcel, __ATOMIC_ACQ_REL);
        if (parcel != NULL) {
            parcel_free(parcel);
        }
        if (step % 512 == 0) {
            sched_yield();
        }
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void exchange_at_once(void *argument)
{
    pthread_t threads[8];
    uint32_t heaps_max = *(const uint32_t *)argument, crowded_max = ((const uint32_t *)argument)[1];
    uint64_t remote = 0;
    start_sharing(heaps_max);
    hak__knobs.heaps_crowded_max = crowded_max;
    size_t taken = unit_region_bytes_taken();
    REQUIRE(pthread_barrier_init(&barrier, NULL, COUNT_OF(threads)) == 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(exchange, (void *)(uintptr_t)(i + 1));
    }
    JOIN_ALL(threads, COUNT_OF(threads));
    REQUIRE(heaps_count() >= heaps_max && heaps_count() <= crowded_max);
    REQUIRE_SIZE(threads_count(), >=, COUNT_OF(threads)); /* more are left behind if busy */
    REQUIRE_SIZE(threads_count(), <=, 2 * COUNT_OF(threads));
    for (size_t i = 0; i < COUNT_OF(shared_slots); i++) {
        if (shared_slots[i] != NULL) {
            parcel_free(shared_slots[i]);
        }
    }
    for (const struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        remote += counted(thread, COUNTER_FREE_REMOTE);
    }
    REQUIRE((remote == 0) == (heaps_count() == 1)); /* those of one heap need no messages */
    hak__heap_reclaim(false);
    REQUIRE_SIZE(unit_region_bytes_taken(), ==, taken);
    if (crowded_max == heaps_max) {
        require_even(1);
    }
}

/* `thread` has found its heap's lock taken so often, and this is the slow operation to act on it.
 */
static void crowd(struct thread *thread, uint32_t waits, uint32_t milliseconds)
{
    thread->waits = waits;
    thread->waits_ms = hak__os_clock_ms() - milliseconds;
    thread->operations = TICK_OPERATIONS - 1;
    hak__thread_count_operation(thread);
}

static void move_from_a_crowd(void *argument)
{
    start_sharing(1);
    struct thread *mate = adopt(), *thread = adopt();
    struct heap *heap = thread->heap;
    void *object = thread_allocate(thread, 3);
    thread_free(thread, 3, thread_allocate(thread, 3));
    REQUIRE(mate->heap == heap && heap->threads_count == 2 && heaps_count() == 1);
    crowd(thread, CROWDED_WAITS, 0); /* no heap to spare */
    REQUIRE(thread->heap == heap && thread->waits == 0);
    hak__knobs.heaps_crowded_max = 2;
    crowd(thread, CROWDED_WAITS - 1, 0); /* not often enough */
    REQUIRE(thread->heap == heap);
    if (CROWDED_MS != UINT32_MAX) {
        crowd(thread, CROWDED_WAITS, CROWDED_MS + 1000); /* not in so long a time */
        REQUIRE(thread->heap == heap && thread->waits == 0);
    }
    crowd(thread, CROWDED_WAITS, 0);
    REQUIRE(thread->heap != heap && heaps_count() == 2 && heap->threads_count == 1);
    REQUIRE(thread->cache.slabs == &thread->heap->slabs && thread->heap->threads_count == 1);
    REQUIRE(thread->cache.key == thread->heap->slabs.key && hak__cache_bytes(&thread->cache) == 0);
    crowd(mate, CROWDED_WAITS, 0); /* alone */
    REQUIRE(mate->heap == heap);
    uint64_t remote = counted(thread, COUNTER_FREE_REMOTE);
    hak__remote_free(&thread->cache, window_slice_of(object), object);
    void *fresh = thread_allocate(thread, 3);
    REQUIRE(window_owner(window_slice_of(fresh)) == (thread->cache.key | owner_code_of_class(3)));
    thread_free(thread, 3, fresh);
    hak__thread_park(thread);
    REQUIRE(counted(thread, COUNTER_FREE_REMOTE) == remote + 1);
    hak__thread_park(mate);
    hak__heap_reclaim(false);
    REQUIRE_SIZE(unit_region_bytes_taken(), ==, 0);
}

static void run_child(const char *name)
{
    struct child_end end;
    child_exec(name, NULL, NULL, &end);
    REQUIRE_EXIT(&end, NULL);
}

TEST(a_thread_moves_from_a_crowd)
{
    run_child("crowded");
}

TEST(frees_of_ones_own_heap)
{
    run_child("own bin");
}

TEST(many_threads_on_few_heaps)
{
    run_child("exchange 1");
    run_child("exchange 2");
    run_child("exchange 2, then 4");
}

int main(int count, char **arguments)
{
    static uint32_t one[] = {1, 1}, two[] = {2, 2}, more[] = {2, 4};
    static const struct child_case children[] = {
        {"own bin", free_into_ones_own_bin, NULL}, {"exchange 1", exchange_at_once, one},
        {"exchange 2", exchange_at_once, two},     {"exchange 2, then 4", exchange_at_once, more},
        {"crowded", move_from_a_crowd, NULL},
    };
    child_main(count, arguments, children, COUNT_OF(children));
    return tests_run(start_with_many_heaps, NULL);
}
