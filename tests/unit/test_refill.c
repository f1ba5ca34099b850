/* SPDX-License-Identifier: MIT */
/* test_refill.c: cache/refill: what an empty bin is filled from.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "unit.h"

static struct cache *cache;

static int create_cache(void **state)
{
    unit_save_knobs(state);
    hak__knobs.cache_bytes = UINT64_MAX / 2;
    cache = unit_cache_create();
    return 0;
}

static int destroy_cache(void **state)
{
    unit_restore_knobs(state);
    unit_cache_destroy(cache);
    return 0;
}

#define REFILL_TEST(name) TEST_WITH(name, create_cache, destroy_cache)

static uint32_t list_length(const struct object *object)
{
    uint32_t length = 0;
    for (; object != NULL; object = object->next) {
        length++;
    }
    return length;
}

/* A slab with `count` objects, all but the first free in it. */
static struct slab *slab_with_free_objects(uint32_t class_index, void **objects, uint32_t count)
{
    for (size_t i = 0; i < count; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
    }
    struct slab *slab = unit_slab_of(objects[0]);
    assert_int_equal(slab->carved_count, count);
    unit_return(objects + 1, count - 1);
    return slab;
}

/* What a refill may not take stays in the slab, for the heap's other threads. */
REFILL_TEST(a_refill_leaves_the_rest)
{
    for (size_t power = SLICE_SIZE / 8; power <= MID_SIZE_MAX; power *= 2) {
        void *objects[15];
        uint32_t class_index = size_class_of(power);
        struct bin *bin = &cache->bins[class_index];
        uint32_t count = hak__size_classes[class_index].objects_per_slab;
        assert_in_range(count, SLAB_OBJECTS_MIN, COUNT_OF(objects));
        const struct slab *slab = slab_with_free_objects(class_index, objects, count);
        uint32_t taken = hak__cache_refill_most(cache, class_index);
        taken = taken < count - 1 ? taken : count - 1;
        assert_ptr_equal(unit_cache_refill(cache, class_index), objects[1]);
        assert_int_equal(bin_count(bin), taken - 1);
        assert_int_equal(list_length(bin->head), taken - 1);
        assert_int_equal(slab->free_count, count - 1 - taken);
        assert_int_equal(slab->listed, taken != count - 1);
        unit_cache_free(cache, class_index, objects[1]);
        unit_cache_free(cache, class_index, objects[0]);
    }
}

/* Two threads of one heap: each takes a part of what the slab has, and either may free it. */
REFILL_TEST(two_caches_of_one_heap)
{
    void *objects[SLAB_OBJECTS_MIN];
    struct cache *mate = unit_cache_create_on(cache->slabs);
    uint32_t class_index = size_class_of(MID_SIZE_MAX);
    const uint64_t *counters = cache->slabs->counters.values;
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = unit_cache_allocate(i % 2 == 0 ? cache : mate, class_index);
        assert_ptr_equal(unit_slab_of(objects[i]), unit_slab_of(objects[0]));
    }
    assert_true(counters[COUNTER_SLAB_FROM_REGION] == 1);
    assert_int_equal(mate->key, cache->key);
    for (size_t i = 0; i < COUNT_OF(objects); i++) { /* the other's */
        unit_cache_free(i % 2 == 0 ? mate : cache, class_index, objects[i]);
    }
    uint32_t in_slab = hak__slab_free_objects(unit_slab_of(objects[0]));
    assert_int_equal(hak__cache_objects(cache, class_index) +
                         hak__cache_objects(mate, class_index) + in_slab,
                     COUNT_OF(objects));
    assert_int_equal(cache->remote_waiting + mate->remote_waiting, 0);
    hak__cache_flush(cache);
    assert_true(counters[COUNTER_SLAB_TO_REGION] == 0); /* the other's bin holds the slab */
    unit_cache_destroy_on(mate);
    assert_true(counters[COUNTER_SLAB_TO_REGION] == 1);
}

static void refill_a_bin_with_a_wrong_count(void *argument)
{
    cache->bins[5].room--; /* a list that ends too early */
    unit_cache_refill(cache, 5);
}

REFILL_TEST(a_list_that_ended_too_early)
{
    SKIP_IF(HAK_LEVEL == 0);
    REQUIRE_DEATH(refill_a_bin_with_a_wrong_count, NULL, "hakmem: fatal: ");
}

static void refill_without_memory(void *argument)
{
    struct rlimit limit;
    (void)argument;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = address_space_bytes();
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    while (hak__superslab_take(0, 1, 1).slice != SLICE_NONE) {
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        REQUIRE(unit_cache_refill(cache, class_index) == NULL);
        REQUIRE(cache->bins[class_index].head == NULL);
        REQUIRE(bin_count(&cache->bins[class_index]) == 0);
    }
}

REFILL_TEST(no_memory)
{
    if (SUPPORT_SANITIZED) {
        skip();
    }
    REQUIRE_LIFE(refill_without_memory, NULL, NULL);
}

TESTS(unit_start)
