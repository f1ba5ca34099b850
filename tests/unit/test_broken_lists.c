/* SPDX-License-Identifier: MIT */
/* test_broken_lists.c: cache/flush: what a free list looks like when a program has written into it.
 */
#include "../child.h"
#include "unit.h"

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
