/* SPDX-License-Identifier: MIT */
/* test_flush.c: cache/flush: the first frees, limits that fall, budgets, and what a free list looks
 * like when a program has written into it. */
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

/* What limits may cost, by the definition in cache.h: their bytes and one slab each. */
static void check_cache(void)
{
    uint64_t charged = 0;
    size_t bytes = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct size_class *size_class = &hak__size_classes[class_index];
        const struct bin *bin = &cache->bins[class_index];
        struct object_list list = {bin->head, bin_count(bin)};
        unit_list_tail(list);
        assert_int_equal(hak__cache_objects(cache, class_index), list.count);
        bytes += (size_t)list.count * size_class->object_size;
        if (bin->limit != 0) {
            charged += (uint64_t)bin->limit * size_class->object_size;
            charged += size_class->slab_slices * SLICE_SIZE;
        }
    }
    assert_int_equal(hak__cache_bytes(cache), bytes);
    assert_true(cache->charged == charged);
    assert_true(hak__cache_charged.word == cache->charged_told); /* the only cache here */
}

enum { OBJECTS_MAX = 2000 };
static void *objects[OBJECTS_MAX];

static void allocate_all(uint32_t class_index, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
        REQUIRE(objects[i] != NULL);
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
    uint32_t class_index = size_class_of(64), count = 8;
    SKIP_IF(HAK_TINY_LIMITS);
    allocate_all(class_index, count);
    for (uint32_t j = 0; j < count; j++) {
        for (uint32_t k = 0; k < j && j < FREES_CHECKED; k++) {
            REQUIRE_DEATH(free_again, objects[k], "^hakmem: fatal: double free");
        }
        free_again(objects[j]);
        check_cache();
    }
}

/* Of one thread, and of all: what others have counts for the second. */
FLUSH_TEST(budgets)
{
    const uint64_t others = 512 * KIB;
    for (int of_all = 0; of_all < 2; of_all++) {
        hak__knobs.cache_bytes = of_all ? UINT64_MAX / 2 : MIB;
        hak__knobs.cache_bytes_total = of_all ? MIB + others : UINT64_MAX / 2;
        hak__cache_charged.word += of_all ? others : 0;
        uint64_t most = 0;
        for (uint32_t round = 0; round < 8 * CLASS_COUNT; round++) {
            uint32_t class_index = 1 + round / 8 % (CLASS_COUNT - 1);
            uint32_t fit = (uint32_t)(2 * MIB / size_class_bytes(class_index));
            uint32_t count = fit < OBJECTS_MAX ? fit : OBJECTS_MAX;
            allocate_all(class_index, count);
            for (uint32_t i = 0; i < count; i++) {
                unit_cache_free(cache, class_index, objects[i]);
            }
            assert_true(cache->charged <= MIB && hak__cache_bytes(cache) <= MIB + MIB / 8);
            most = cache->charged > most ? cache->charged : most;
        }
        assert_true(most >= (HAK_TINY_LIMITS ? 1 : MIB / 2));
        hak__cache_charged.word -= of_all ? others : 0;
        check_cache();
        hak__cache_flush(cache);
    }
}

static void refill_a_bin_with_a_wrong_count(void *argument)
{
    cache->bins[5].room--; /* a list that ends too early */
    unit_cache_refill(cache, 5);
}

static void flush_too_many(void *argument)
{
    uint32_t class_index = size_class_of(MID_SIZE_MAX);
    allocate_all(class_index, 3);
    unit_return(objects, 1); /* freed another way meanwhile */
    for (int i = 1; i < 5; i++) {
        unit_fill_bin(cache, class_index, unit_list_of(&objects[i % 2], 1));
        hak__cache_flush(cache);
    }
}

/* Other lists that a program has broken: death/test_corrupted_list. */
FLUSH_TEST(broken_lists)
{
    /* at level 2 the list itself is looked at before */
    REQUIRE_DEATH(flush_too_many, NULL,
                  HAK_LEVEL >= 2 ? "corrupted free list"
                                 : "double free .more objects freed than the slab holds.");
    if (HAK_LEVEL >= 1) {
        REQUIRE_DEATH(refill_a_bin_with_a_wrong_count, NULL, "hakmem: fatal: ");
    }
}

/* Of an untouched page the first object comes alone, and then few: other threads take the rest.
 * Only the refills after that are large. */
TEST_ANEW(first_refills_are_small)
{
    enum { SIZE = 64 };
    SKIP_IF(HAK_SECURE);
    REQUIRE(hak__start());
    cache = unit_cache_create();
    uint32_t class_index = size_class_of(SIZE), count = 0;
    objects[count++] = unit_cache_allocate(cache, class_index);
    REQUIRE_SIZE(bin_count(&cache->bins[class_index]), ==, 0);
    objects[count++] = unit_cache_allocate(cache, class_index);
    uint32_t most = REFILL_BYTES_START / 4 / SIZE;
    most = most < 2 ? 2 : most;
    REQUIRE_SIZE(bin_count(&cache->bins[class_index]), ==, most - 1);
    while (bin_count(&cache->bins[class_index]) != 0) {
        objects[count++] = unit_cache_allocate(cache, class_index);
    }
    objects[count++] = unit_cache_allocate(cache, class_index);
    REQUIRE_SIZE(bin_count(&cache->bins[class_index]) + 1, >=, HAK_LEVEL >= 2 ? 2 : 4 * most);
    while (count != 0) {
        unit_cache_free(cache, class_index, objects[--count]);
    }
    unit_cache_destroy(cache);
}

TESTS(unit_start)
