/* SPDX-License-Identifier: MIT */
/* test_cache_random.c: cache/: random sequences of everything a thread's cache does, against a
 * ledger: no object is lost, none is handed out twice; what a free list looks like when a program
 * has written into it. */
#include "../child.h"
#include "unit.h"

enum { HELD_MAX = 3000 };

struct held {
    unsigned char *object;
    uint32_t class_index;
    unsigned char mark;
};

static struct held held[HELD_MAX];
static size_t held_count;
static struct ledger ledger;

/* Two caches of one heap and one of another: objects of any may be freed into any, as remote frees
 * when the heap is another. */
enum { CACHES = 3 };
static struct cache *caches[CACHES];

static void allocate_one(uint64_t *random)
{
    static const size_t sizes[] = {16,   16,   32,   112,   112,         512,
                                   1024, 3000, 8192, 20000, MID_SIZE_MAX};
    uint32_t class_index = size_class_of(sizes[random_below(random, COUNT_OF(sizes))]);
    struct cache *cache = caches[random_below(random, CACHES)];
    size_t size = size_class_bytes(class_index);
    unsigned char *object = unit_cache_allocate(cache, class_index);
    assert_non_null(object);
    assert_int_equal(window_owner(window_slice_of(object)),
                     cache->key | owner_code_of_class(class_index));
    assert_true(slab_is_object(unit_slab_of(object), object));
    ledger_take(&ledger, object, size);
    unsigned char mark = (unsigned char)random_next(random);
    object[0] = object[size / 2] = object[size - 1] = mark;
    held[held_count++] = (struct held){object, class_index, mark};
}

static void free_one(uint64_t *random, bool newest)
{
    size_t index = newest ? held_count - 1 : random_below(random, held_count);
    struct held one = held[index];
    size_t size = size_class_bytes(one.class_index);
    held[index] = held[--held_count];
    assert_int_equal(one.object[0], one.mark);
    assert_int_equal(one.object[size / 2], one.mark);
    assert_int_equal(one.object[size - 1], one.mark);
    ledger_give(&ledger, one.object, size);
    struct slab *slab = unit_slab_of(one.object);
    struct cache *cache = caches[random_size(random, 2) % CACHES]; /* the first most */
    if (slab->owner == cache->slabs) {
        unit_cache_free(cache, one.class_index, one.object);
    } else {
        hak__remote_free(cache, window_slice_of(one.object), one.object);
    }
}

static void rare_operation(uint64_t *random)
{
    struct cache *cache = caches[random_below(random, CACHES)];
    switch (random_below(random, 5)) {
    case 0:
        hak__cache_trim(cache);
        break;
    case 1:
        hak__cache_flush(cache);
        break;
    case 2:
        hak__remote_flush(cache);
        break;
    case 3:
        hak__slab_drain(cache->slabs);
        break;
    default: /* budgets come and go */
        hak__knobs.cache_bytes = random_size(random, 24);
        hak__knobs.bin_bytes_max = (uint32_t)random_size(random, 17);
        break;
    }
}

TEST_WITH_KNOBS(random_use)
{
    uint64_t random = 13;
    size_t taken = unit_region_bytes_taken();
    ledger = ledger_create();
    caches[0] = unit_cache_create();
    caches[1] = unit_cache_create_on(caches[0]->slabs);
    caches[2] = unit_cache_create();
    for (size_t step = 0; step < (SUPPORT_SLOW ? 30000 : 400000); step++) {
        size_t most = step / 5000 % 2 == 0 ? HELD_MAX : 50;
        size_t odds = step / 2500 % 2 == 0 ? 2 : 3; /* phases that only grow, or stay */
        if (held_count == 0 || (held_count < most && random_below(&random, odds) != 0)) {
            allocate_one(&random);
        } else {
            free_one(&random, random_below(&random, 2) == 0);
        }
        assert_int_equal(ledger.shared_count, held_count);
        if (random_below(&random, 300) == 0) {
            rare_operation(&random);
        }
    }
    while (held_count != 0) {
        free_one(&random, true);
    }
    for (size_t i = 0; i < CACHES; i++) {
        hak__remote_flush(caches[i]);
    }
    unit_cache_destroy(caches[2]);
    unit_cache_destroy_on(caches[1]);
    unit_cache_destroy(caches[0]);
    ledger_destroy(&ledger);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

/* Just these objects of one class in the bin of a fresh cache. */
static struct object *bin_of(struct cache *cache, uint32_t class_index, uint32_t count)
{
    void *objects[32];
    for (uint32_t i = 0; i < count; i++) {
        objects[i] = unit_cache_allocate(cache, class_index);
    }
    unit_fill_bin(cache, class_index, unit_list_of(objects, count));
    return objects[0];
}

static void flush_a_circle(void *argument)
{
    struct cache *cache = unit_cache_create();
    struct object *head = bin_of(cache, 4, 6);
    head->next->next->next = head; /* a double free did this */
    hak__cache_flush(cache);
}

/* The bin holds more than the flush looks at together. */
static struct object *bin_of_more(struct cache *cache, uint32_t count)
{
    struct object *head = bin_of(cache, 4, count);
    cache->bins[4].room -= (int32_t)(3 * FLUSH_PART_OBJECTS);
    return head;
}

static void flush_a_circle_and_more(void *argument)
{
    struct cache *cache = unit_cache_create();
    struct object *head = bin_of_more(cache, 6);
    head->next->next->next->next = head;
    hak__cache_flush(cache);
}

static void flush_a_circle_as_long(void *argument)
{
    struct cache *cache = unit_cache_create();
    struct object_list list = {bin_of_more(cache, FLUSH_PART_OBJECTS), FLUSH_PART_OBJECTS};
    unit_list_tail(list)->next = list.head;
    hak__cache_flush(cache);
}

static void flush_one_twice_at_the_end(void *argument)
{
    struct cache *cache = unit_cache_create();
    struct object_list list = {bin_of_more(cache, FLUSH_PART_OBJECTS), FLUSH_PART_OBJECTS};
    struct object *last = unit_list_tail(list);
    last->next = last;
    hak__cache_flush(cache);
}

static void flush_a_wild_pointer(void *argument)
{
    struct cache *cache = unit_cache_create();
    bin_of(cache, 4, 6)->next = (struct object *)(void *)(uintptr_t)64;
    hak__cache_flush(cache);
}

static void flush_a_short_list(void *argument)
{
    struct cache *cache = unit_cache_create();
    struct object *head = bin_of(cache, 4, 6);
    head->next->next->next = NULL;
    hak__cache_flush(cache);
}

static void flush_too_many(void *argument)
{
    struct cache *cache = unit_cache_create();
    uint32_t class_index = size_class_of(MID_SIZE_MAX);
    struct object *objects[2] = {bin_of(cache, class_index, 3)};
    void *object = objects[0];
    objects[1] = objects[0]->next;
    unit_return(&object, 1); /* freed another way meanwhile */
    for (int i = 1; i < 5; i++) {
        unit_fill_bin(cache, class_index, unit_list_of((void *[]){objects[i % 2]}, 1));
        hak__cache_flush(cache);
    }
}

TEST(broken_lists)
{
    REQUIRE_DEATH(flush_a_circle, NULL, "corrupted free list .double free.*64 bytes");
    REQUIRE_DEATH(flush_a_circle_and_more, NULL, "corrupted free list .double free.*64 bytes");
    REQUIRE_DEATH(flush_a_circle_as_long, NULL, "corrupted free list .double free.*64 bytes");
    REQUIRE_DEATH(flush_one_twice_at_the_end, NULL, "corrupted free list .double free.*64 bytes");
    REQUIRE_DEATH(flush_a_wild_pointer, NULL, "corrupted free list .written after free.*64 bytes");
    REQUIRE_DEATH(flush_a_short_list, NULL, "corrupted free list .written after free");
    /* at level 2 the list itself is looked at before */
    REQUIRE_DEATH(flush_too_many, NULL,
                  HAK_LEVEL >= 2 ? "corrupted free list"
                                 : "double free .more objects freed than the slab holds.");
}

TESTS(unit_start)
