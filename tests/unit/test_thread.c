/* test_thread.c: heap/thread: a thread's heap from its first slow operation to after its end. */
#include "../threads/threads.h"
#include "unit.h"

static bool is_held(const struct lock *lock)
{
    return __atomic_load_n(&lock->shared_state, __ATOMIC_RELAXED) != 0;
}

static bool is_parked(struct heap *heap)
{
    lock_acquire(&heap->lock);
    bool parked = heap->parked;
    lock_release(&heap->lock);
    return parked;
}

static void test_nobodys_heaps(void **state)
{
    (void)state;
    const struct heap *const nobodys[] = {&hak__heap_none, &hak__heap_ended};
    for (size_t i = 0; i < COUNT_OF(nobodys); i++) {
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

static void *live_once(void *argument)
{
    struct heap **used = argument;
    REQUIRE(hak__thread_heap == &hak__heap_none);
    struct heap *heap = hak__heap_enter();
    REQUIRE(heap != NULL && heap == hak__thread_heap && is_held(&heap->lock));
    void *object = unit_cache_allocate(&heap->cache, 3);
    REQUIRE(window_owner(window_slice_of(object)) == (heap->cache.key | 3));
    hak__heap_leave(heap);
    REQUIRE(!is_held(&heap->lock) && !is_parked(heap));
    REQUIRE(hak__heap_current() == heap && hak__heap_enter() == heap);
    unit_cache_free(&heap->cache, 3, object);
    hak__heap_leave(heap);
    *used = heap;
    return NULL;
}

static void test_a_heap_goes_from_thread_to_thread(void **state)
{
    struct heap *first = NULL, *second = NULL;
    (void)state;
    size_t taken = unit_region_bytes_taken();
    thread_join(thread_start(live_once, &first));
    assert_true(is_parked(first));
    assert_int_equal(unit_region_bytes_taken(), taken);
    thread_join(thread_start(live_once, &second));
    assert_ptr_equal(first, second);
}

/* A destructor of the program's that runs after the library's. */
static pthread_key_t late_key;
static int late_rounds;
static size_t late_heaps;

static size_t heaps_count(void)
{
    size_t count = 0;
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        count++;
    }
    return count;
}

static void live_after_the_end(void *argument)
{
    if (++late_rounds < 3) { /* the library's destructor has run in one of the rounds before */
        pthread_setspecific(late_key, argument);
        return;
    }
    REQUIRE(hak__thread_heap == &hak__heap_ended);
    REQUIRE(hak__heap_current() == NULL);
    struct heap *heap = hak__heap_enter();
    REQUIRE(heap != NULL && heap != &hak__heap_ended && is_held(&heap->lock) && !heap->parked);
    void *object = unit_cache_allocate(&heap->cache, 3);
    hak__heap_leave(heap);
    REQUIRE(is_parked(heap) && !is_held(&heap->lock));
    REQUIRE(hak__cache_bytes(&heap->cache) == 0); /* nothing stays in its bins */
    REQUIRE(hak__thread_heap == &hak__heap_ended);
    unit_return_remote(&object, 1);
    late_heaps = heaps_count();
}

static void *live_and_end(void *argument)
{
    pthread_setspecific(late_key, &late_rounds);
    return live_once(argument);
}

static void test_an_ended_thread_borrows(void **state)
{
    struct heap *used = NULL;
    (void)state;
    assert_int_equal(pthread_key_create(&late_key, live_after_the_end), 0);
    size_t count = heaps_count();
    thread_join(thread_start(live_and_end, &used));
    assert_int_equal(late_rounds, 3);
    assert_int_equal(late_heaps, count); /* the parked one was good enough */
    pthread_key_delete(late_key);
    hak__heap_collect(used, true);
    assert_true(unit_set_is_empty(&used->cache.slabs));
}

static void *count_ticks(void *argument)
{
    (void)argument;
    struct heap *heap = hak__heap_current();
    const uint64_t *ticks = &heap->cache.slabs.counters.values[COUNTER_TICKS];
    uint64_t before = *ticks;
    heap->cache.tick = 0;
    for (uint32_t i = 1; i <= 5 * TICK_OPERATIONS; i++) {
        REQUIRE(hak__heap_enter() == heap);
        hak__heap_leave(heap);
        REQUIRE(*ticks - before == i / TICK_OPERATIONS);
    }
    for (uint32_t i = 0; i < TICK_OPERATIONS; i++) {
        hak__heap_count_operation(heap);
    }
    REQUIRE(*ticks - before == 6);
    return NULL;
}

static void test_ticks(void **state)
{
    (void)state;
    hak__knobs.purge_delay_ms = 0; /* always due */
    thread_join(thread_start(count_ticks, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobodys_heaps),
        cmocka_unit_test(test_a_heap_goes_from_thread_to_thread),
        cmocka_unit_test(test_an_ended_thread_borrows),
        UNIT_TEST_WITH_KNOBS(test_ticks),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
