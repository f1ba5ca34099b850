/* SPDX-License-Identifier: MIT */
/* test_slab_pages.c: slab/slab_pages: pages of free objects go back while others of the slab live.
 *
 * ctest: no-qemu no-secure
 */
#include "../child.h"
#include "unit.h"

#include <string.h>

enum { SLABS = 3, ROUNDS = 8, OBJECTS_MAX = SLABS * SLICE_SIZE / OBJECT_ALIGNMENT };

static const size_t sizes[] = {16, 48, 500, 1040, 1152, 3000, 4000, 9000, 20000, 65000};

static unsigned char *objects[OBJECTS_MAX]; /* NULL: free */
static uint64_t random_state = 1;

static unsigned char pattern_of(const void *object)
{
    return (unsigned char)((uintptr_t)object >> 4 | 1);
}

/* Fills all free places, and writes all of each new object. */
static void fill(struct slab_set *set, uint32_t class_index, uint32_t count)
{
    struct object_list list = {NULL, 0};
    struct object *object = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (objects[i] != NULL) {
            continue;
        }
        if (list.count == 0) {
            list = unit_slab_refill(set, class_index,
                                    1 + (uint32_t)random_below(&random_state, count));
            assert_int_not_equal(list.count, 0);
            object = list.head;
        }
        list.count--;
        objects[i] = (unsigned char *)object;
        object = object->next;
        memset(objects[i], pattern_of(objects[i]), size_class_bytes(class_index));
    }
    assert_int_equal(list.count, 0); /* there are as many places as free objects */
}

/* An object that was handed out twice, or lost a page, has another pattern. */
static void check(uint32_t class_index, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t size = size_class_bytes(class_index);
        for (size_t at = 0; objects[i] != NULL && at < size; at += at + 16 < size ? 16 : 1) {
            assert_int_equal(objects[i][at], pattern_of(objects[i]));
        }
    }
}

static void give(uint32_t number)
{
    struct object *object = (struct object *)(void *)objects[number];
    object_set_free(object, NULL, object_mark_of(unit_slab_of(object)->owner->key));
    unit_return_list((struct object_list){object, 1});
    objects[number] = NULL;
}

/* Keeps one in `kept`, and the last object of each slab. */
static void thin(uint32_t count, uint32_t kept)
{
    for (uint32_t i = 0; i < count; i++) {
        if (objects[i] != NULL && random_below(&random_state, kept) != 0) {
            struct slab *slab = unit_slab_of((struct object *)(void *)objects[i]);
            if (slab->free_count + slab->purged_count + 1u < slab->carved_count) {
                give(i);
            }
        }
    }
}

static uint32_t purge(struct slab_set *set, uint32_t count)
{
    uint32_t purged = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (objects[i] != NULL) {
            struct slab *slab = unit_slab_of((struct object *)(void *)objects[i]);
            (void)hak__slab_purge(set, slab, 0);
            purged += slab->purged_count;
        }
    }
    return purged;
}

TEST(each_object_has_its_bytes)
{
    SKIP_IF(hak__os_page_size() != 4096);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct slab_set *set = unit_set_create();
        uint32_t class_index = size_class_of(sizes[s]), purged = 0;
        uint32_t count = SLABS * hak__size_classes[class_index].objects_per_slab;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            fill(set, class_index, count);
            check(class_index, count);
            hak__slab_set_check(set);
            assert_int_equal(set->counters.values[COUNTER_SLAB_FROM_REGION], SLABS);
            thin(count, round % 2 == 0 ? 4 : 1000);
            purged += purge(set, count);
            hak__slab_set_check(set);
            check(class_index, count);
        }
        assert_int_not_equal(purged, 0);
        for (uint32_t i = 0; i < count; i++) {
            if (objects[i] != NULL) {
                give(i);
            }
        }
        unit_set_destroy(set);
    }
}

static void free_again(void *remotely)
{
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(500);
    uint32_t count = hak__size_classes[class_index].objects_per_slab;
    fill(set, class_index, count);
    void *object = objects[count / 2];
    for (uint32_t i = 2; i < count; i++) {
        give(i);
    }
    REQUIRE(purge(set, 2) != 0);
    object_set_free(object, NULL, object_mark_of(set->key)); /* as a bin does */
    if (remotely != NULL) {
        unit_return_remote(&object, 1);
        unit_slab_refill(set, class_index, count);
        unit_slab_refill(set, class_index, count);
    } else {
        unit_return_list((struct object_list){object, 1});
    }
}

/* A purged object has no mark any more, and is free all the same. */
TEST(double_free)
{
    SKIP_IF(hak__os_page_size() != 4096);
    REQUIRE_DEATH(free_again, NULL, "double free");
    REQUIRE_DEATH(free_again, state, "double free");
}

TESTS(unit_start)
