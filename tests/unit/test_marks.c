/* SPDX-License-Identifier: MIT */
/* test_marks.c: region/object, cache/remote: of two lists that hold one object, one hands it out,
 * even if two threads take it at the same moment. What stays with the thread that frees it. */
#include "../child.h"
#include "unit.h"

#include "slab/slab_remote.h"

/* Two threads of one arena, and one of another. */
static struct cache *first, *second, *stranger;

static int create_caches(void **state)
{
    unit_save_knobs(state);
    hak__knobs.cache_bytes = UINT64_MAX / 2;
    first = unit_cache_create();
    second = unit_cache_create_on(first->slabs);
    stranger = unit_cache_create();
    return 0;
}

static int destroy_caches(void **state)
{
    unit_restore_knobs(state);
    unit_cache_destroy(stranger);
    unit_cache_destroy_on(second);
    unit_cache_destroy(first);
    return 0;
}

#define MARK_TEST(name) TEST_WITH(name, create_caches, destroy_caches)

static struct object *pop(struct cache *cache, uint32_t class_index)
{
    return bin_pop(cache, &cache->bins[class_index], class_index);
}

/* Frees the object in the cache's thread, whose bin is empty and has room for one. */
static void put(struct cache *cache, uint32_t class_index, struct object *object)
{
    cache->bins[class_index] = (struct bin){NULL, 1, 1};
    if (cache == stranger) {
        REQUIRE(hak__remote_keep(cache, class_index, object));
    } else {
        unit_cache_free(cache, class_index, object);
    }
}

/* Both threads free one object, and then take it: the second reads the mark before the first has
 * taken it away. */
static void in_two_bins(struct cache *one, struct cache *other, size_t size)
{
    uint32_t class_index = size_class_of(size);
    struct object *object = unit_slab_refill(first->slabs, class_index, 1).head;
    put(one, class_index, object);
    put(other, class_index, object);
    uintptr_t mark = object->mark;
    bool one_has = pop(one, class_index) == object;
    object->mark = mark;
    bool other_has = pop(other, class_index) == object;
    assert_int_equal(one_has + other_has, 1);
    one->bins[class_index] = other->bins[class_index] = (struct bin){NULL, 0, 0};
    unit_return((void *[]){object}, 1);
}

MARK_TEST(threads_of_two_arenas)
{
    in_two_bins(first, stranger, 5000);
    in_two_bins(stranger, first, 5000);
}

static void take_over(void *list)
{
    hak__cache_take_over(stranger, *(struct object_list *)list);
}

/* One thread's bin has the object, and so has a list that a thread of another arena borrows. */
MARK_TEST(a_bin_and_a_borrowed_list)
{
    uint32_t class_index = size_class_of(5000);
    struct object *object = unit_slab_refill(first->slabs, class_index, 1).head;
    struct object_list list = {object, 1};
    put(first, class_index, object);
    hak__cache_take_over(stranger, list);
    assert_true(object_is_marked(object, stranger->mark));
    assert_null(pop(first, class_index));
    unit_set_mark(object, first->mark); /* the other order */
    assert_ptr_equal(pop(first, class_index), object);
    REQUIRE_DEATH(take_over, &list, "corrupted free list .double free");
    first->bins[class_index] = (struct bin){NULL, 0, 0};
    unit_return((void *[]){object}, 1);
}

static void flush(void *cache)
{
    hak__cache_flush(cache);
}

/* Two threads have freed it. One has got it back when the other returns what its bins have. */
MARK_TEST(a_flush_beside_the_owner)
{
    uint32_t class_index = size_class_of(5000);
    struct cache *freers[][2] = {{first, stranger}, {stranger, first}, {first, second}};
    for (size_t i = 0; i < COUNT_OF(freers); i++) {
        struct object *object = unit_slab_refill(first->slabs, class_index, 1).head;
        put(freers[i][0], class_index, object);
        put(freers[i][1], class_index, object);
        assert_ptr_equal(pop(freers[i][1], class_index), object);
        REQUIRE_DEATH(flush, freers[i][0], "corrupted free list .double free");
        freers[i][0]->bins[class_index] = freers[i][1]->bins[class_index] =
            (struct bin){NULL, 0, 0};
        unit_return((void *[]){object}, 1);
    }
}

static void refill_and_take(void *class_index)
{
    unit_cache_refill(first, *(uint32_t *)class_index);
}

/* A thread sends the object to its slab, another has it in its bin and takes it. */
MARK_TEST(a_bin_and_a_remote_free)
{
    uint32_t class_index = size_class_of(64);
    void *other = unit_slab_refill(first->slabs, class_index, 1).head; /* the slab stays in use */
    struct object *object = unit_slab_refill(first->slabs, class_index, 1).head;
    put(second, class_index, object);
    hak__remote_free(stranger, window_slice_of(object), object);
    assert_ptr_equal(pop(second, class_index), object);
    second->bins[class_index] = (struct bin){NULL, 0, 0};
    hak__remote_flush(stranger);
    REQUIRE_DEATH(refill_and_take, &class_index, "corrupted free list .double free");
    unit_return(&other, 1);
}

/* An object that shares no cache line stays with the thread that freed it while its bin has room,
 * is its next allocation, and goes to its slab's remote word with the rest of the bin. */
MARK_TEST(whole_lines_are_kept)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct object *objects[2] = {unit_slab_refill(first->slabs, class_index, 1).head,
                                     unit_slab_refill(first->slabs, class_index, 1).head};
        bool kept = size_class_bytes(class_index) > TINY_SIZE_MAX;
        stranger->bins[class_index] = (struct bin){NULL, 1, 1};
        assert_int_equal(hak__remote_keep(stranger, class_index, objects[0]), kept);
        if (kept) {
            assert_false(hak__remote_keep(stranger, class_index, objects[1])); /* no room */
            assert_ptr_equal(pop(stranger, class_index), objects[0]);
            put(stranger, class_index, objects[0]);
            stranger->bins[class_index].limit--; /* was not charged */
            stranger->bins[class_index].room--;
            hak__cache_flush(stranger);
            hak__remote_flush(stranger);
            assert_int_equal(slab_remote_count(unit_slab_of(objects[0])), 1);
        } else {
            unit_return((void *[]){objects[0]}, 1);
        }
        stranger->bins[class_index] = (struct bin){NULL, 0, 0};
        unit_return((void *[]){objects[1]}, 1);
    }
    hak__slab_drain(first->slabs);
}

static void free_remotely(void *object)
{
    hak__remote_free(stranger, window_slice_of(object), object);
}

/* Another thread has freed it, too, and its slab went back meanwhile. */
MARK_TEST(its_slab_is_gone)
{
    void *object = unit_slab_refill(first->slabs, size_class_of(40000), 1).head;
    unit_return(&object, 1);
    assert_int_equal(window_owner(window_slice_of(object)), OWNER_NOBODY);
    REQUIRE_DEATH(free_remotely, object, "double free");
}

TESTS(unit_start)
