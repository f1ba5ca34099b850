/* test_refill.c: cache/refill: what an empty bin is filled from. */
#include "../child.h"
#include "unit.h"

static struct cache *cache;

static int create_cache(void **state)
{
    (void)state;
    cache = unit_cache_create();
    return 0;
}

static int destroy_cache(void **state)
{
    (void)state;
    unit_cache_destroy(cache);
    return 0;
}

#define REFILL_TEST(test) cmocka_unit_test_setup_teardown(test, create_cache, destroy_cache)

static uint32_t list_length(const struct object *object)
{
    uint32_t length = 0;
    for (; object != NULL; object = object->next) {
        length++;
    }
    return length;
}

static void test_the_first_refill(void **state)
{
    (void)state;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct bin *bin = &cache->bins[class_index];
        size_t size = size_class_bytes(class_index);
        uint32_t batch = size >= CARVE_BYTES ? 1 : (uint32_t)(CARVE_BYTES / size);
        char *object = hak__cache_refill(cache, class_index);
        assert_true(is_aligned(object, SLICE_SIZE)); /* the first of a new slab */
        assert_int_equal(list_length(bin->head), batch - 1);
        assert_int_equal(bin_count(bin), batch - 1);
        assert_true(batch == 1 || (char *)bin->head == object + size);
        assert_true(cache->missed[class_index] && cache->active[class_index]);
        assert_int_equal(bin->limit, 0); /* a refill is no reason to keep more */
        assert_int_equal(hak__cache_objects(cache, class_index), batch - 1);
        unit_cache_free(cache, class_index, object);
    }
    assert_true(cache->slabs.counters.values[COUNTER_REFILL_CARVE] == CLASS_COUNT - 1);
    assert_int_equal(cache->charged != 0, 1);
    for (uint32_t class_index = 0; class_index < CLASS_COUNT; class_index += CLASS_COUNT - 1) {
        assert_false(class_index == 0 && cache->missed[class_index]);
    }
}

static void test_the_reserve_comes_first(void **state)
{
    (void)state;
    uint32_t class_index = size_class_of(512);
    void *objects[3];
    for (size_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
    }
    struct bin *bin = &cache->bins[class_index];
    while (bin->head != NULL) { /* what else the refill brought is held by nobody here */
        unit_cache_allocate(cache, class_index);
    }
    cache->reserves[class_index] = unit_list_of(objects, COUNT_OF(objects));
    uint64_t carved = cache->slabs.counters.values[COUNTER_REFILL_CARVE];
    assert_int_equal(hak__cache_objects(cache, class_index), 3);
    assert_int_equal(hak__cache_bytes(cache), 3 * 512);
    assert_ptr_equal(hak__cache_refill(cache, class_index), objects[0]);
    assert_ptr_equal(bin->head, objects[1]);
    assert_int_equal(bin_count(bin), 2);
    assert_int_equal(cache->reserves[class_index].count, 0);
    assert_null(cache->reserves[class_index].head);
    assert_true(cache->slabs.counters.values[COUNTER_REFILL_RESERVE] == 1);
    assert_true(cache->slabs.counters.values[COUNTER_REFILL_CARVE] == carved);
    /* give everything back: all objects of the one slab */
    struct slab *slab = unit_slab_of(objects[0]);
    bin->head = NULL;
    bin->room = (int32_t)bin->limit;
    for (uint32_t i = 0; i < slab->carved_count; i++) {
        unit_cache_free(cache, class_index, slab_start(slab) + i * 512);
    }
}

static void test_slabs_are_used_up_before_new_ones(void **state)
{
    (void)state;
    uint32_t class_index = size_class_of(2048);
    uint32_t capacity = hak__size_classes[class_index].objects_per_slab;
    static void *objects[1024];
    assert_true(2 * capacity <= COUNT_OF(objects));
    for (uint32_t i = 0; i < 2 * capacity; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
        assert_ptr_equal(unit_slab_of(objects[i]), unit_slab_of(objects[i - i % capacity]));
    }
    assert_ptr_not_equal(unit_slab_of(objects[0]), unit_slab_of(objects[capacity]));
    for (uint32_t i = 0; i < 2 * capacity; i++) {
        unit_cache_free(cache, class_index, objects[i]);
    }
}

static void refill_without_memory(void *argument)
{
    struct rlimit limit;
    (void)argument;
    hak__slab_pool_empty();
    while (hak__superslab_bytes_free() != 0) {
        hak__superslab_take(1, 1);
    }
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = address_space_bytes();
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        REQUIRE(hak__cache_refill(cache, class_index) == NULL);
        REQUIRE(cache->bins[class_index].head == NULL);
        REQUIRE(bin_count(&cache->bins[class_index]) == 0);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    if (SUPPORT_SANITIZED) {
        skip();
    }
    REQUIRE_LIFE(refill_without_memory, NULL, NULL);
}

static void refill_a_bin_with_a_wrong_count(void *argument)
{
    (void)argument;
    cache->bins[5].room--; /* a list that ends too early */
    hak__cache_refill(cache, 5);
}

static void test_a_list_that_ended_too_early(void **state)
{
    (void)state;
    if (HAK_LEVEL == 0) {
        skip();
    }
    REQUIRE_DEATH(refill_a_bin_with_a_wrong_count, NULL, "hakmem: fatal: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REFILL_TEST(test_the_first_refill),
        REFILL_TEST(test_the_reserve_comes_first),
        REFILL_TEST(test_slabs_are_used_up_before_new_ones),
        REFILL_TEST(test_no_memory),
        REFILL_TEST(test_a_list_that_ended_too_early),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
