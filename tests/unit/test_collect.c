/* test_collect.c: heap/collect: what others do for a heap, ticks, reclaiming. */
#include "../threads/threads.h"
#include "unit.h"

#include "large/whale.h"

/* A heap that is live but belongs to no thread, with one object in use and alone in its slab. */
struct owner {
    struct heap *heap;
    void *object;
    struct slab *slab;
};

static struct owner owner_create(void)
{
    struct owner owner = {.heap = hak__heap_adopt()};
    REQUIRE(owner.heap != NULL);
    lock_acquire(&owner.heap->lock);
    struct object_list list = hak__slab_refill(&owner.heap->cache.slabs, 1);
    REQUIRE(list.count > 1);
    struct object_list others = {list.head->next, list.count - 1};
    owner.object = list.head;
    owner.slab = unit_slab_of(owner.object);
    hak__slab_return(&owner.heap->cache.slabs, owner.slab, others, unit_list_tail(others));
    lock_release(&owner.heap->lock);
    return owner;
}

static bool owner_has_slab(const struct owner *owner)
{
    return window_owner(slab_slice(owner->slab)) >> OWNER_CODE_BITS == owner->heap->id;
}

static void owner_free_remotely(struct owner *owner)
{
    unit_return_remote(&owner->object, 1);
    REQUIRE(owner_has_slab(owner));
}

static void test_collect(void **state)
{
    (void)state;
    struct owner owner = owner_create();
    struct span_cache *spans = &owner.heap->spans;
    struct counters *counters = &owner.heap->cache.slabs.counters;
    struct span span = hak__span_allocate(spans, counters, MIB, SLICE_SIZE);
    hak__span_free(spans, counters, window_slice_of(span.pointer));
    hak__heap_collect(owner.heap, false);
    assert_true(owner_has_slab(&owner)); /* in use */
    assert_int_equal(spans->slices, MIB / SLICE_SIZE);
    owner_free_remotely(&owner);
    hak__heap_collect(owner.heap, false);
    assert_false(owner_has_slab(&owner));
    assert_int_equal(spans->slices, 0); /* the second look at it */
    span = hak__span_allocate(spans, counters, MIB, SLICE_SIZE);
    hak__span_free(spans, counters, window_slice_of(span.pointer));
    hak__heap_collect(owner.heap, true);
    assert_int_equal(spans->slices, 0);
    hak__heap_park(owner.heap);
}

static void test_help(void **state)
{
    (void)state;
    struct owner owner = owner_create();
    struct heap *helper = hak__heap_adopt();
    owner_free_remotely(&owner);
    helper->cache.lagging = &owner.heap->cache.slabs;
    lock_acquire(&owner.heap->lock); /* somebody is at it: not waited for */
    hak__heap_help(helper);
    assert_null(helper->cache.lagging);
    assert_true(owner_has_slab(&owner));
    lock_release(&owner.heap->lock);
    helper->cache.lagging = &owner.heap->cache.slabs;
    hak__heap_count_operation(helper); /* what a thread does after a slow operation */
    assert_null(helper->cache.lagging);
    assert_false(owner_has_slab(&owner));
    assert_int_equal(owner.heap->lock.shared_state, 0);
    hak__heap_park(owner.heap);
    hak__heap_park(helper);
}

static void test_a_tick_that_is_due(void **state)
{
    (void)state;
    struct owner idle = owner_create(), busy = owner_create();
    struct heap *heap = hak__heap_adopt();
    hak__knobs.purge_delay_ms = 0; /* always due */
    owner_free_remotely(&idle);
    hak__remote_free(&heap->cache, window_slice_of(busy.object), busy.object);
    lock_acquire(&heap->lock);
    unit_cache_free(&heap->cache, 2, unit_cache_allocate(&heap->cache, 2));
    lock_release(&heap->lock);
    hak__heap_tick(heap);
    assert_false(owner_has_slab(&idle)); /* one that sleeps */
    assert_false(owner_has_slab(&busy)); /* the buffer was sent first */
    assert_true(hak__cache_objects(&heap->cache, 2) != 0);
    hak__heap_tick(heap);
    assert_int_equal(hak__cache_objects(&heap->cache, 2), 0); /* idle between two ticks */
    hak__heap_tick(heap);
    hak__heap_tick(heap);
    assert_int_equal(hak__superslab_bytes_dirty(), 0); /* all that was freed above */
    assert_true(heap->cache.slabs.counters.values[COUNTER_TICKS] == 4);
    hak__heap_park(heap);
    hak__heap_park(busy.heap);
    hak__heap_park(idle.heap);
}

static void test_a_tick_that_is_not_due(void **state)
{
    (void)state;
    static const uint32_t delays[] = {UINT32_MAX, 100000000};
    for (size_t i = 0; i < COUNT_OF(delays); i++) {
        struct owner owner = owner_create();
        struct heap *heap = hak__heap_adopt();
        uint64_t before = heap->cache.slabs.counters.values[COUNTER_TICKS];
        hak__knobs.purge_delay_ms = 0;
        hak__heap_tick(heap); /* the last purge pass of the process is now */
        hak__knobs.purge_delay_ms = delays[i];
        heap->trimmed_ms = hak__os_clock_ms();
        hak__remote_free(&heap->cache, window_slice_of(owner.object), owner.object);
        for (int tick = 0; tick < 4; tick++) {
            hak__heap_tick(heap);
        }
        if (!HAK_TINY_LIMITS) { /* there they wait for a millisecond only */
            assert_int_equal(hak__slab_free_objects(owner.slab), owner.slab->carved_count - 1);
        }
        heap->sent_ms -= REMOTE_DELAY_MS;
        hak__heap_tick(heap); /* batches are sent in any case */
        assert_int_equal(hak__slab_free_objects(owner.slab), owner.slab->carved_count);
        assert_true(owner_has_slab(&owner));
        assert_true(heap->cache.slabs.counters.values[COUNTER_TICKS] == before + 1);
        hak__heap_park(owner.heap);
        assert_false(owner_has_slab(&owner));
        hak__heap_park(heap);
    }
}

/* Other operations send what has been gathered; sending alone does not, or batches would stay
 * small. */
static void test_operations_send_batches(void **state)
{
    (void)state;
    struct owner owner = owner_create();
    struct heap *heap = hak__heap_adopt();
    heap->cache.tick = 0;
    heap->batches = 0;
    heap->sent_ms = hak__os_clock_ms();
    hak__knobs.purge_delay_ms = UINT32_MAX;
    hak__remote_free(&heap->cache, window_slice_of(owner.object), owner.object);
    uint32_t waiting = owner.slab->carved_count - 1;
    for (uint32_t i = 0; i < TICK_OPERATIONS && !HAK_TINY_LIMITS; i++) {
        hak__heap_count_batch(heap);
    }
    for (uint32_t i = 1; i < TICK_OPERATIONS; i++) {
        hak__heap_count_operation(heap);
    }
    assert_int_equal(hak__slab_free_objects(owner.slab), waiting);
    hak__heap_count_operation(heap);
    assert_int_equal(hak__slab_free_objects(owner.slab), waiting + 1);
    hak__heap_park(owner.heap);
    hak__heap_park(heap);
}

static void test_a_tick_after_the_delay(void **state)
{
    (void)state;
    struct heap *heap = hak__heap_adopt();
    const uint64_t *ticks = &heap->cache.slabs.counters.values[COUNTER_TICKS];
    uint64_t before = *ticks;
    hak__knobs.purge_delay_ms = 100;
    heap->trimmed_ms = hak__os_clock_ms();
    hak__heap_tick(heap);
    usleep(80000); /* over half of it */
    hak__heap_tick(heap);
    assert_true(*ticks == before + 1);
    hak__heap_park(heap);
}

static void *reclaim_as_a_thread(void *argument)
{
    bool unmap = *(bool *)argument;
    struct owner other = owner_create();
    struct heap *heap = hak__heap_enter();
    unit_cache_free(&heap->cache, 2, unit_cache_allocate(&heap->cache, 2));
    struct span span =
        hak__span_allocate(&heap->spans, &heap->cache.slabs.counters, MIB, SLICE_SIZE);
    hak__span_free(&heap->spans, &heap->cache.slabs.counters, window_slice_of(span.pointer));
    hak__heap_leave(heap);
    void *whale = hak__whale_allocate(3 * MIB, 4096, false).pointer;
    memset(whale, 1, 3 * MIB);
    REQUIRE(hak__whale_free(whale));
    size_t cached = hak__whale_totals().cached_bytes;
    hak__remote_free(&heap->cache, window_slice_of(other.object), other.object);
    size_t released = hak__heap_reclaim(unmap);
    REQUIRE(released >= cached && released > 0);
    REQUIRE_SIZE(hak__whale_totals().cached_bytes, ==, 0);
    REQUIRE_SIZE(hak__cache_bytes(&heap->cache), ==, 0);
    REQUIRE(heap->spans.slices == 0 && unit_set_is_empty(&heap->cache.slabs));
    REQUIRE(!owner_has_slab(&other));
    REQUIRE(!unit_is_mapped((uintptr_t)whale));
    REQUIRE(unmap || hak__superslab_bytes_dirty() == 0);
    REQUIRE(hak__heap_reclaim(unmap) == 0);
    hak__heap_park(other.heap);
    return NULL;
}

static void test_reclaim(void **state)
{
    (void)state;
    bool unmap = false;
    hak__knobs.whale_cache_bytes = 16 * MIB;
    thread_join(thread_start(reclaim_as_a_thread, &unmap));
    size_t slice = hak__superslab_take(SUPERSLAB_SLICES, 1).slice; /* a whole one to unmap */
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    unmap = true;
    thread_join(thread_start(reclaim_as_a_thread, &unmap));
    assert_false(unit_is_mapped((uintptr_t)window_slice_address(slice)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collect),
        cmocka_unit_test(test_help),
        UNIT_TEST_WITH_KNOBS(test_a_tick_that_is_due),
        UNIT_TEST_WITH_KNOBS(test_a_tick_that_is_not_due),
        UNIT_TEST_WITH_KNOBS(test_operations_send_batches),
        UNIT_TEST_WITH_KNOBS(test_a_tick_after_the_delay),
        UNIT_TEST_WITH_KNOBS(test_reclaim),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
