/* test_heap.c: heap/heap: making, adopting and parking heaps. */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

enum { HEAPS = 100 };

static struct heap *heaps[HEAPS];

static bool is_listed(const struct heap *wanted)
{
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        if (heap == wanted) {
            return true;
        }
    }
    return false;
}

static size_t listed_count(void)
{
    size_t count = 0;
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        count++;
    }
    return count;
}

static struct heap *adopt(void)
{
    struct heap *heap = hak__heap_adopt();
    REQUIRE(heap != NULL);
    return heap;
}

static void *heap_allocate(struct heap *heap, uint32_t class_index)
{
    lock_acquire(&heap->lock);
    void *object = unit_cache_allocate(&heap->cache, class_index);
    lock_release(&heap->lock);
    REQUIRE(object != NULL);
    return object;
}

static void heap_free(struct heap *heap, uint32_t class_index, void *object)
{
    lock_acquire(&heap->lock);
    unit_cache_free(&heap->cache, class_index, object);
    lock_release(&heap->lock);
}

static void test_new_heaps(void **state)
{
    (void)state;
    size_t before = listed_count(), metadata = hak__heap_metadata_bytes();
    for (size_t i = 0; i < HEAPS; i++) {
        struct heap *heap = heaps[i] = adopt();
        assert_true(is_aligned(heap, HAK_CACHE_LINE));
        assert_true(heap->id >= 1 && heap->id <= HEAP_ID_MAX);
        assert_int_equal(heap->cache.key, heap->id << OWNER_CODE_BITS);
        assert_int_equal(heap->cache.slabs.key, heap->cache.key);
        assert_int_equal(heap->lock.shared_state, 0);
        assert_int_equal(heap->lock.rank, LOCK_RANK_HEAP);
        assert_false(heap->parked);
        assert_true(is_listed(heap));
        assert_int_equal(hak__cache_bytes(&heap->cache), 0);
        for (size_t j = 0; j < i; j++) {
            assert_ptr_not_equal(heap, heaps[j]);
            assert_int_not_equal(heap->id, heaps[j]->id);
        }
    }
    assert_int_equal(listed_count(), before + HEAPS);
    assert_true(hak__heap_metadata_bytes() - metadata >= (HEAPS - 40) * sizeof(struct heap));
    for (size_t i = 0; i < HEAPS; i++) {
        hak__heap_park(heaps[i]);
        assert_true(heaps[i]->parked);
    }
}

static void test_the_last_parked_is_adopted_first(void **state)
{
    (void)state;
    size_t count = listed_count();
    for (size_t i = HEAPS; i-- > 0;) { /* as parked above */
        uint32_t id = heaps[i]->id;
        assert_ptr_equal(adopt(), heaps[i]);
        assert_false(heaps[i]->parked);
        assert_int_equal(heaps[i]->id, id);
    }
    assert_int_equal(listed_count(), count); /* none was made */
    hak__heap_park(heaps[3]);
    hak__heap_park(heaps[7]);
    assert_ptr_equal(adopt(), heaps[7]);
    hak__heap_park(heaps[5]);
    assert_ptr_equal(adopt(), heaps[5]);
    assert_ptr_equal(adopt(), heaps[3]);
    for (size_t i = 0; i < HEAPS; i++) {
        hak__heap_park(heaps[i]);
    }
}

/* Bins, buffered remote frees, cached spans and empty slabs all go back. */
static void test_parking_gives_everything_back(void **state)
{
    enum { COUNT = 50 };
    static void *objects[COUNT];
    (void)state;
    size_t taken = unit_region_bytes_taken();
    struct heap *heap = adopt(), *other = adopt();
    uint32_t class_index = size_class_of(100);
    for (size_t i = 0; i < COUNT; i++) {
        objects[i] = heap_allocate(heap, class_index);
    }
    for (size_t i = 0; i < COUNT; i++) {
        heap_free(heap, class_index, objects[i]);
    }
    void *foreign = heap_allocate(other, class_index);
    hak__remote_free(&heap->cache, window_slice_of(foreign), foreign);
    lock_acquire(&heap->lock);
    struct span span =
        hak__span_allocate(&heap->spans, &heap->cache.slabs.counters, MIB, SLICE_SIZE);
    hak__span_free(&heap->spans, &heap->cache.slabs.counters, window_slice_of(span.pointer));
    lock_release(&heap->lock);
    hak__heap_park(heap);
    assert_int_equal(heap->spans.slices, 0);
    assert_int_equal(hak__cache_bytes(&heap->cache), 0);
    assert_true(unit_set_is_empty(&heap->cache.slabs));
    assert_int_equal(other->cache.slabs.shared_notified != 0, 1); /* the remote free was sent */
    hak__heap_park(other);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

/* Objects in use stay where they are, and come back by way of the parked heap. */
static void test_objects_outlive_their_thread(void **state)
{
    (void)state;
    size_t taken = unit_region_bytes_taken();
    struct heap *heap = adopt();
    uint32_t class_index = size_class_of(5000);
    char *first = heap_allocate(heap, class_index), *second = heap_allocate(heap, class_index);
    struct slab *slab = unit_slab_of(first);
    memset(first, 'f', 5000);
    hak__heap_park(heap);
    assert_int_equal(window_owner(slab_slice(slab)), heap->cache.key | class_index);
    assert_int_equal(hak__slab_free_objects(slab), slab->carved_count - 2);
    assert_true(first[0] == 'f' && first[4999] == 'f');
    unit_return_remote((void *[]){first}, 1);
    hak__heap_collect(heap, true);
    assert_true(slab->listed);
    assert_ptr_equal(adopt(), heap); /* its objects are the new thread's own now */
    heap_free(heap, class_index, second);
    hak__heap_park(heap);
    assert_int_equal(window_owner(slab_slice(slab)), OWNER_NOBODY);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

static void test_the_last_object_of_a_parked_heap(void **state)
{
    (void)state;
    size_t taken = unit_region_bytes_taken();
    struct heap *heap = adopt();
    void *object = heap_allocate(heap, size_class_of(64));
    struct slab *slab = unit_slab_of(object);
    hak__heap_park(heap);
    unit_return_remote(&object, 1);
    assert_int_not_equal(window_owner(slab_slice(slab)), OWNER_NOBODY);
    hak__heap_collect(heap, false);
    assert_int_equal(window_owner(slab_slice(slab)), OWNER_NOBODY);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

static uint32_t shared_users[10000]; /* by heap id */

static void *adopt_and_park(void *argument)
{
    for (size_t round = 0; round < (SUPPORT_SLOW ? 200 : 1000); round++) {
        struct heap *heap = adopt();
        REQUIRE(heap->id < COUNT_OF(shared_users));
        REQUIRE(__atomic_fetch_add(&shared_users[heap->id], 1, __ATOMIC_RELAXED) == 0);
        void *object = heap_allocate(heap, 5);
        REQUIRE(window_owner(window_slice_of(object)) == (heap->cache.key | 5));
        heap_free(heap, 5, object);
        REQUIRE(__atomic_fetch_sub(&shared_users[heap->id], 1, __ATOMIC_RELAXED) == 1);
        hak__heap_park(heap);
    }
    return argument;
}

static void test_a_heap_has_one_user(void **state)
{
    pthread_t threads[8];
    (void)state;
    size_t taken = unit_region_bytes_taken(), count = listed_count();
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(adopt_and_park, NULL);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        thread_join(threads[i]);
    }
    assert_int_equal(listed_count(), count); /* there were enough */
    assert_int_equal(unit_region_bytes_taken(), taken);
}

/* The first heaps of many threads at once: as many as threads, each with its id. */
static pthread_barrier_t barrier;

static void *make_one(void *argument)
{
    pthread_barrier_wait(&barrier);
    struct heap *heap = adopt();
    REQUIRE(__atomic_fetch_add(&shared_users[heap->id], 1, __ATOMIC_RELAXED) == 0);
    pthread_barrier_wait(&barrier);
    hak__heap_park(heap);
    return argument;
}

static void test_many_are_made_at_once(void **state)
{
    pthread_t threads[HEAPS];
    (void)state;
    size_t count = listed_count(), parked = 0;
    struct heap *first = adopt();
    for (; listed_count() == count; parked++) { /* none is left to be adopted */
        assert_true(parked < HEAPS);
        heaps[parked] = first;
        first = adopt();
    }
    assert_int_equal(pthread_barrier_init(&barrier, NULL, HEAPS), 0);
    for (size_t i = 0; i < HEAPS; i++) {
        threads[i] = thread_start(make_one, NULL);
    }
    for (size_t i = 0; i < HEAPS; i++) {
        thread_join(threads[i]);
    }
    assert_int_equal(listed_count(), count + 1 + HEAPS);
    hak__heap_park(first);
    while (parked-- > 0) {
        hak__heap_park(heaps[parked]);
    }
    memset(shared_users, 0, sizeof shared_users);
}

static void adopt_without_memory(void *argument)
{
    struct rlimit limit;
    (void)argument;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = address_space_bytes();
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    size_t count = listed_count();
    struct heap *heap;
    while ((heap = hak__heap_adopt()) != NULL) { /* parked ones and the rest of a chunk */
        REQUIRE(listed_count() < count + 100);
    }
    limit.rlim_cur = before;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    REQUIRE(hak__heap_adopt() != NULL);
}

static void test_no_memory(void **state)
{
    (void)state;
    if (SUPPORT_SANITIZED) {
        skip();
    }
    REQUIRE_LIFE(adopt_without_memory, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_heaps),
        cmocka_unit_test(test_the_last_parked_is_adopted_first),
        cmocka_unit_test(test_parking_gives_everything_back),
        cmocka_unit_test(test_objects_outlive_their_thread),
        cmocka_unit_test(test_the_last_object_of_a_parked_heap),
        cmocka_unit_test(test_a_heap_has_one_user),
        cmocka_unit_test(test_many_are_made_at_once),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
