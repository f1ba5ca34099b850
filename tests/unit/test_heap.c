/* SPDX-License-Identifier: MIT */
/* test_heap.c: heap/heap: making, joining and parting; what stays when a thread has gone. Here
 * every thread has a heap of its own; test_heap_sharing.c has what is shared.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../threads/threads.h"
#include "heaps.h"

enum { THREADS = 100 };

static struct thread *threads[THREADS];

/* Bins, buffered remote frees, cached spans and empty slabs all go back. */
TEST(parking_gives_everything_back)
{
    enum { COUNT = 50 };
    static void *objects[COUNT];
    size_t taken = unit_region_bytes_taken();
    struct thread *thread = adopt(), *other = adopt();
    struct heap *heap = thread->heap, *others = other->heap;
    uint32_t class_index = size_class_of(100);
    for (size_t i = 0; i < COUNT; i++) {
        objects[i] = thread_allocate(thread, class_index);
    }
    for (size_t i = 0; i < COUNT; i++) {
        thread_free(thread, class_index, objects[i]);
    }
    void *foreign = thread_allocate(other, class_index);
    hak__remote_free(&thread->cache, window_slice_of(foreign), foreign);
    keep_a_span(thread);
    assert_int_equal(heap->spans.slices, MIB / SLICE_SIZE);
    hak__thread_park(thread);
    assert_int_equal(heap->spans.slices, 0);
    assert_int_equal(hak__cache_bytes(&thread->cache), 0);
    assert_true(thread->cache.charged == 0);
    assert_true(unit_set_is_empty(&heap->slabs));
    assert_true(others->slabs.shared_notified != 0); /* the remote free was sent */
    hak__thread_park(other);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

/* Objects in use stay where they are, and come back by way of the heap without a thread. */
TEST(objects_outlive_their_thread)
{
    size_t taken = unit_region_bytes_taken();
    struct thread *thread = adopt();
    struct heap *heap = thread->heap;
    uint32_t class_index = size_class_of(5000);
    char *first = thread_allocate(thread, class_index);
    char *second = thread_allocate(thread, class_index);
    struct slab *slab = unit_slab_of(first);
    memset(first, 'f', 5000);
    hak__thread_park(thread);
    assert_int_equal(window_owner(slab_slice(slab)),
                     heap->slabs.key | owner_code_of_class(class_index));
    assert_int_equal(hak__slab_free_objects(slab), slab->carved_count - 2);
    assert_true(first[0] == 'f' && first[4999] == 'f');
    unit_return_remote((void *[]){first}, 1);
    hak__heap_collect(heap, true);
    assert_true(slab->listed);
    thread = adopt();
    assert_ptr_equal(thread->heap, heap); /* its objects are the new thread's own now */
    thread_free(thread, class_index, second);
    hak__thread_park(thread);
    assert_int_equal(window_owner(slab_slice(slab)), OWNER_NOBODY);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

static uint32_t shared_users[10000]; /* by heap id */

static void *adopt_and_park(void *argument)
{
    for (size_t round = 0; round < (SUPPORT_SLOW ? 200 : 1000); round++) {
        struct thread *thread = adopt();
        uint32_t id = thread->heap->id;
        REQUIRE(id < COUNT_OF(shared_users));
        REQUIRE(__atomic_fetch_add(&shared_users[id], 1, __ATOMIC_RELAXED) == 0);
        REQUIRE(__atomic_exchange_n(&thread->batches, 1, __ATOMIC_RELAXED) == 0);
        void *object = thread_allocate(thread, 5);
        REQUIRE(window_owner(window_slice_of(object)) ==
                (thread->cache.key | owner_code_of_class(5)));
        thread_free(thread, 5, object);
        REQUIRE(__atomic_exchange_n(&thread->batches, 0, __ATOMIC_RELAXED) == 1);
        REQUIRE(__atomic_fetch_sub(&shared_users[id], 1, __ATOMIC_RELAXED) == 1);
        hak__thread_park(thread);
    }
    return argument;
}

/* As long as there are enough; a thread struct in any case. */
TEST(a_heap_has_one_user)
{
    enum { USERS = 8 };
    pthread_t users[USERS];
    struct thread *parked[USERS];
    for (size_t i = 0; i < USERS; i++) {
        parked[i] = adopt();
    }
    for (size_t i = 0; i < USERS; i++) {
        hak__thread_park(parked[i]);
    }
    size_t taken = unit_region_bytes_taken(), count = heaps_count(), structs = threads_count();
    for (size_t i = 0; i < COUNT_OF(users); i++) {
        users[i] = thread_start(adopt_and_park, NULL);
    }
    JOIN_ALL(users, COUNT_OF(users));
    assert_int_equal(heaps_count(), count); /* there were enough */
    assert_int_equal(threads_count(), structs);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

/* The first heaps of many threads at once: as many as threads, each with its id. */
static pthread_barrier_t barrier;

static void *make_one(void *argument)
{
    pthread_barrier_wait(&barrier);
    struct thread *thread = adopt();
    __atomic_fetch_add(&shared_users[thread->heap->id], 1, __ATOMIC_RELAXED);
    pthread_barrier_wait(&barrier);
    REQUIRE(thread->heap->threads_count == shared_users[thread->heap->id]);
    pthread_barrier_wait(&barrier);
    hak__thread_park(thread);
    return argument;
}

static void make_at_once(void)
{
    pthread_t makers[THREADS];
    memset(shared_users, 0, sizeof shared_users);
    REQUIRE(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        makers[i] = thread_start(make_one, NULL);
    }
    JOIN_ALL(makers, THREADS);
}

TEST(many_are_made_at_once)
{
    size_t count = heaps_count(), parked = 0;
    struct thread *first = adopt();
    for (; heaps_count() == count; parked++) { /* none is left to be joined */
        assert_true(parked < THREADS);
        threads[parked] = first;
        first = adopt();
    }
    make_at_once();
    for (size_t id = 0; id < COUNT_OF(shared_users); id++) {
        assert_true(shared_users[id] <= 1);
    }
    assert_int_equal(heaps_count(), count + 1 + THREADS);
    hak__thread_park(first);
    while (parked-- > 0) {
        hak__thread_park(threads[parked]);
    }
}

static size_t joined_count(void)
{
    size_t count = 0;
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        count += heap->threads_count;
    }
    return count;
}

static void adopt_without_memory(void *argument)
{
    (void)argument;
    rlim_t before = unit_limit_address_space(address_space_bytes());
    size_t count = threads_count(), joined = joined_count();
    while (hak__thread_adopt() != NULL) { /* parked ones and the rest of a chunk */
        REQUIRE(threads_count() < count + 100);
        joined++;
    }
    REQUIRE_SIZE(joined_count(), ==, joined); /* the one that got no struct draws from none */
    unit_limit_address_space(before);
    adopt();
}

/* There is a parked struct, and a new heap is due: without memory for it any other will do. */
static void join_without_memory(void *argument)
{
    (void)argument;
    hak__knobs.heaps_max = 1; /* what there is is shared */
    struct thread *thread;
    do {
        thread = adopt();
    } while (thread->heap->threads_count == 1); /* those without threads come first */
    hak__thread_park(thread);
    hak__knobs.heaps_max = HEAP_ID_MAX;
    size_t count = heaps_count();
    unit_limit_address_space(address_space_bytes());
    while (hak__metadata_allocate(HAK_CACHE_LINE) != NULL) {
    }
    assert_ptr_equal(adopt(), thread);
    assert_int_equal(heaps_count(), count);
    assert_true(thread->heap->threads_count >= 2);
    thread_free(thread, 3, thread_allocate(thread, 3));
}

TEST(no_memory)
{
    if (SUPPORT_SANITIZED) {
        skip();
    }
    REQUIRE_LIFE(adopt_without_memory, NULL, NULL);
    REQUIRE_LIFE(join_without_memory, NULL, NULL);
}

TESTS(start_with_many_heaps)
