/* SPDX-License-Identifier: MIT */
/* test_flush.c: cache/flush and cache/refill: the first frees, limits that fall, the budget of all
 * threads, what a refill may take, abandoning. */
#include "../child.h"
#include "unit.h"

static struct cache *cache;

static int create_cache(void **state)
{
    unit_save_knobs(state);
    hak__knobs.bin_bytes_max = BIN_BYTES_MAX;
    hak__knobs.cache_bytes = UINT64_MAX / 2;
    hak__knobs.cache_bytes_total = UINT64_MAX / 2;
    cache = unit_cache_create();
    return 0;
}

static int destroy_cache(void **state)
{
    unit_restore_knobs(state);
    unit_cache_destroy(cache);
    return hak__cache_charged.word == 0 ? 0 : -1;
}

#define FLUSH_TEST(name) TEST_WITH(name, create_cache, destroy_cache)

static uint32_t limit_for(uint32_t class_index, uint32_t bytes)
{
    uint32_t limit = bytes / size_class_bytes(class_index);
    limit = limit < BIN_OBJECTS_MIN ? BIN_OBJECTS_MIN : limit;
    return limit > BIN_OBJECTS_MAX ? BIN_OBJECTS_MAX : limit;
}

/* What the limits may cost, by the definition in cache.h: their bytes and one slab each. */
static uint64_t charge_for(uint32_t class_index, uint32_t limit)
{
    const struct size_class *size_class = &hak__size_classes[class_index];
    uint64_t bytes = (uint64_t)limit * size_class->object_size;
    return limit == 0 ? 0 : bytes + size_class->slab_slices * SLICE_SIZE;
}

static void check_cache(void)
{
    uint64_t charged = 0;
    size_t bytes = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct bin *bin = &cache->bins[class_index];
        struct object_list list = {bin->head, bin_count(bin)};
        unit_list_tail(list);
        assert_int_equal(hak__cache_objects(cache, class_index), list.count);
        bytes += (size_t)list.count * size_class_bytes(class_index);
        charged += charge_for(class_index, bin->limit);
    }
    assert_int_equal(hak__cache_bytes(cache), bytes);
    assert_true(cache->charged == charged);
    assert_true(hak__cache_charged.word == cache->charged_told); /* the only cache here */
}

enum { OBJECTS_MAX = 128 * 1024 };
static void *objects[OBJECTS_MAX];

static void allocate_all(uint32_t class_index, uint32_t count)
{
    REQUIRE(count <= OBJECTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
        REQUIRE(objects[i] != NULL);
    }
}

static void free_all(uint32_t class_index, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        unit_cache_free(cache, class_index, objects[i]);
    }
}

/* The first frees of a class are slow: an object that was freed a few frees before is noticed. */
static void free_again(void *object)
{
    uint32_t class_index = unit_slab_of(object)->class_index;
    struct bin *bin = &cache->bins[class_index];
    object_set_free(object, bin->head, cache->mark);
    bin->head = object;
    if (--bin->room < 0) {
        hak__cache_overflow(cache, class_index);
    }
}

FLUSH_TEST(the_first_frees_are_checked)
{
    static const size_t sizes[] = {16, 64, 100}; /* bins of larger objects hold too few */
    static const uint32_t counts[] = {8, 300};   /* after these, refills leave more than a limit */
    SKIP_IF(HAK_TINY_LIMITS);
    for (size_t i = 0; i < COUNT_OF(counts) * COUNT_OF(sizes); i++) {
        uint32_t class_index = size_class_of(sizes[i / 2]), count = counts[i % 2];
        struct bin *bin = &cache->bins[class_index];
        allocate_all(class_index, count);
        uint32_t held = bin_count(bin);
        for (uint32_t j = 0; j < FREES_CHECKED; j++) {
            for (uint32_t k = 0; k < j; k++) {
                REQUIRE_DEATH(free_again, objects[k], "^hakmem: fatal: double free");
            }
            free_again(objects[j]);
            assert_int_equal(bin_count(bin), held + j + 1);
            assert_true(bin->room <= 0); /* so that the next free is slow */
            check_cache();
        }
        for (uint32_t j = FREES_CHECKED; j < count; j++) {
            free_again(objects[j]);
        }
        assert_true(bin->limit >= limit_for(class_index, BIN_BYTES_START));
        check_cache();
        hak__cache_flush(cache);
    }
}

/* The learner lowers the option while the program runs: limits above it fall at once, the objects
 * go back at the next frees. */
FLUSH_TEST(a_lower_bound_lowers_limits)
{
    uint32_t class_index = size_class_of(16);
    struct bin *bin = &cache->bins[class_index];
    for (int round = 0; round < 5; round++) {
        allocate_all(class_index, 2000);
        free_all(class_index, 2000);
    }
    uint32_t freed = 0, count = 100;
    allocate_all(class_index, count);
    while (freed < count && (freed == 0 || bin_count(bin) <= 3)) { /* a flush leaves half of few */
        unit_cache_free(cache, class_index, objects[freed++]);
    }
    uint32_t limit = bin->limit;
    assert_true(limit > 3 && bin_count(bin) > 3);
    hak__cache_lower_limits(cache); /* the option stands where it was */
    assert_int_equal(bin->limit, limit);
    hak__knobs.bin_bytes_max = 48;
    hak__cache_lower_limits(cache);
    assert_int_equal(bin->limit, 3);
    check_cache();
    for (int round = 0; round < 100 && bin_count(bin) > 3; round++) {
        unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    }
    assert_in_range(bin_count(bin), 0, 3);
    while (freed < count) {
        unit_cache_free(cache, class_index, objects[freed++]);
    }
    check_cache();
}

FLUSH_TEST(the_budget_of_all_threads)
{
    SKIP_IF(HAK_TINY_LIMITS); /* a refill brings more than the first limit */
    uint32_t class_index = size_class_of(64);
    uint64_t step = charge_for(class_index, limit_for(class_index, BIN_BYTES_START));
    hak__knobs.cache_bytes_total = step + 1000;
    hak__cache_charged.word += 1001; /* somebody else's */
    unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    assert_int_equal(cache->bins[class_index].limit, 0);
    hak__cache_charged.word -= 1;
    unit_cache_free(cache, class_index, unit_cache_allocate(cache, class_index));
    assert_int_equal(cache->bins[class_index].limit, limit_for(class_index, BIN_BYTES_START));
    hak__cache_charged.word -= 1000;
    check_cache();
}

static uint32_t list_length(const struct object *object)
{
    uint32_t length = 0;
    for (; object != NULL; object = object->next) {
        length++;
    }
    return length;
}

/* A slab with `count` objects, all but the first free in it. */
static struct slab *slab_with_free_objects(uint32_t class_index, void **own, uint32_t count)
{
    for (size_t i = 0; i < count; i++) {
        own[i] = unit_cache_allocate(cache, class_index);
    }
    struct slab *slab = unit_slab_of(own[0]);
    assert_int_equal(slab->carved_count, count);
    unit_return(own + 1, count - 1);
    return slab;
}

/* What a refill may not take stays in the slab, for the heap's other threads. */
FLUSH_TEST(a_refill_leaves_the_rest)
{
    for (size_t power = SLICE_SIZE / 8; power <= MID_SIZE_MAX; power *= 2) {
        void *own[15];
        uint32_t class_index = size_class_of(power);
        struct bin *bin = &cache->bins[class_index];
        uint32_t count = hak__size_classes[class_index].objects_per_slab;
        assert_in_range(count, SLAB_OBJECTS_MIN, COUNT_OF(own));
        const struct slab *slab = slab_with_free_objects(class_index, own, count);
        uint32_t taken = hak__cache_refill_most(cache, class_index);
        taken = taken < count - 1 ? taken : count - 1;
        assert_ptr_equal(unit_cache_refill(cache, class_index), own[1]);
        assert_int_equal(bin_count(bin), taken - 1);
        assert_int_equal(list_length(bin->head), taken - 1);
        assert_int_equal(slab->free_count, count - 1 - taken);
        assert_int_equal(slab->listed, taken != count - 1);
        unit_cache_free(cache, class_index, own[1]);
        unit_cache_free(cache, class_index, own[0]);
    }
}

static void refill_a_bin_with_a_wrong_count(void *argument)
{
    cache->bins[5].room--; /* a list that ends too early */
    unit_cache_refill(cache, 5);
}

FLUSH_TEST(a_list_that_ended_too_early)
{
    SKIP_IF(HAK_LEVEL == 0);
    REQUIRE_DEATH(refill_a_bin_with_a_wrong_count, NULL, "hakmem: fatal: ");
}

/* A free into a full bin returns a part of it, whatever the bin holds. */
FLUSH_TEST(a_full_bin_returns_a_part)
{
    static const size_t sizes[] = {32, 2000};
    const uint64_t *flushed = &cache->counters.values[COUNTER_FREE_FLUSHED_OBJECTS];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint32_t class_index = size_class_of(sizes[i]), of_most = 0;
        uint32_t most = i == 0 ? FLUSH_OBJECTS_MAX : FLUSH_LARGE_OBJECTS_MAX;
        allocate_all(class_index, 40000);
        for (uint32_t j = 0; j < 40000; j++) {
            uint64_t before = *flushed;
            unit_cache_free(cache, class_index, objects[j]);
            assert_true(*flushed - before <= most);
            of_most += *flushed - before == most;
        }
        assert_true(of_most != 0 || i == 1); /* a bin of large ones may hold fewer */
        check_cache();
    }
}

/* After fork: nothing is looked at, everything counts as empty; the cache can be used again. */
FLUSH_TEST(abandon)
{
    uint32_t class_index = size_class_of(1024);
    uint32_t capacity = hak__size_classes[class_index].objects_per_slab;
    struct cache *other = unit_cache_create();
    void *foreign[2] = {unit_cache_allocate(other, 1), unit_cache_allocate(other, 1)};
    struct slab *foreign_slab = unit_slab_of(foreign[0]);
    allocate_all(class_index, capacity);
    struct slab *slab = unit_slab_of(objects[0]);
    free_all(class_index, capacity - 1);
    hak__remote_free(cache, window_slice_of(foreign[0]), foreign[0]);
    hak__cache_charged.word -= cache->charged_told; /* as fork's child counts anew */
    hak__cache_abandon(cache);
    assert_int_equal(hak__cache_bytes(cache), 0);
    assert_true(cache->charged == 0);
    for (size_t i = 0; i < REMOTE_ENTRIES; i++) {
        assert_int_equal(cache->remote[i].link, 0);
        assert_int_equal(remote_count(&cache->remote[i]), 0);
    }
    hak__remote_flush(cache);
    assert_int_equal(foreign_slab->shared_remote, 0);
    hak__remote_free(cache, window_slice_of(foreign[1]), foreign[1]);
    hak__remote_flush(cache);
    assert_int_equal(hak__slab_free_objects(foreign_slab), 1);
    /* by hand what is lost in a child: the objects that were in the bins */
    unit_cache_free(other, 1, foreign[0]);
    uint32_t lost = 0;
    for (uint32_t i = 0; i < capacity; i++) {
        const struct object *object = slab->free_list;
        while (object != NULL && object != objects[i]) {
            object = object->next;
        }
        if (object == NULL) {
            objects[lost++] = objects[i];
        }
    }
    assert_int_equal(lost, capacity - hak__slab_free_objects(slab));
    unit_return(objects, lost);
    unit_cache_destroy(other);
    check_cache();
}

TESTS(unit_start)
