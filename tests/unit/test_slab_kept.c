/* SPDX-License-Identifier: MIT */
/* test_slab_kept.c: slab/slab_kept: what a heap does with its idle slabs.
 *
 * ctest: no-qemu no-secure
 */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

enum { SIZE = 3000, OTHER_SIZE = 600, OBJECTS_MAX = 20000 };

static struct object *objects[OBJECTS_MAX];

static struct slab_set *set_create(void)
{
    struct slab_set *set = unit_set_create();
    set->shared_threads = 1;
    return set;
}

static void set_destroy(struct slab_set *set)
{
    hak__slab_give_kept(set, UINT32_MAX);
    assert_int_equal(set->shared_kept, 0);
    unit_set_destroy(set);
}

/* Takes all objects of `slabs` new slabs. Returns their number. */
static uint32_t take_slabs(struct slab_set *set, uint32_t class_index, uint32_t slabs)
{
    uint32_t count = 0, wanted = slabs * hak__size_classes[class_index].objects_per_slab;
    REQUIRE_SIZE(wanted, <=, OBJECTS_MAX);
    while (count < wanted) {
        struct object_list list = unit_slab_refill(set, class_index, wanted - count);
        unit_list_tail(list);
        for (struct object *object = list.head; object != NULL; object = object->next) {
            objects[count++] = object;
        }
    }
    return count;
}

static void give_objects(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        unit_return_list((struct object_list){objects[i], 1});
    }
}

static uint64_t slabs_taken(const struct slab_set *set)
{
    return set->counters.values[COUNTER_SLAB_FROM_REGION];
}

/* Slices in the lists of kept slabs. */
static uint32_t kept_slices(const struct slab_set *set)
{
    uint32_t slices = 0;
    for (uint32_t i = 0; i < SLABS_KEPT_LISTS; i++) {
        for (const struct slab *slab = set->kept[i]; slab != NULL; slab = slab->next) {
            REQUIRE(slab->kept && !slab->listed && slab->class_index % SLABS_KEPT_LISTS == i);
            slices += slab->slice_count;
        }
    }
    return slices;
}

static uint32_t slices_of(uint32_t class_index)
{
    return hak__size_classes[class_index].slab_slices;
}

/* What goes up and down comes from the kept slabs: the region is asked the first time only. */
TEST(up_and_down)
{
    struct slab_set *set = set_create();
    uint32_t class_index = size_class_of(SIZE), slabs = SLABS_KEPT_SLICES / slices_of(class_index);
    size_t taken = unit_region_bytes_taken();
    for (uint32_t round = 0; round < 10; round++) {
        uint32_t count = take_slabs(set, class_index, slabs);
        assert_int_equal(set->shared_kept, 0);
        assert_int_equal(slabs_taken(set), slabs);
        hak__slab_set_check(set);
        give_objects(count);
        assert_int_equal(set->shared_kept, slabs * slices_of(class_index));
        assert_int_equal(kept_slices(set), set->shared_kept);
        hak__slab_set_check(set);
    }
    set_destroy(set);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

TEST(no_more_than_the_most)
{
    struct slab_set *set = set_create();
    uint32_t class_index = size_class_of(SIZE), slices = slices_of(class_index);
    size_t taken = unit_region_bytes_taken();
    uint32_t slabs = 2 * SLABS_KEPT_SLICES / slices;
    give_objects(take_slabs(set, class_index, slabs));
    assert_int_equal(set->shared_kept, SLABS_KEPT_SLICES / slices * slices);
    assert_int_equal(unit_region_bytes_taken() - taken, set->shared_kept * SLICE_SIZE);
    set_destroy(set);
}

/* A trim gives back what was not needed since the last one. */
TEST(trim)
{
    struct slab_set *set = set_create();
    uint32_t class_index = size_class_of(SIZE), slices = slices_of(class_index);
    uint32_t slabs = SLABS_KEPT_SLICES / slices;
    give_objects(take_slabs(set, class_index, slabs));
    hak__slab_trim_kept(set);
    assert_int_equal(set->shared_kept, slabs * slices); /* they were taken since the start */
    give_objects(take_slabs(set, class_index, 1));
    hak__slab_trim_kept(set);
    assert_int_equal(set->shared_kept, slices); /* one was needed, the others were not */
    hak__slab_trim_kept(set);
    assert_int_equal(set->shared_kept, 0);
    set_destroy(set);
}

/* No peak is higher for kept slabs: those of another class go back first. */
TEST(room_for_another_class)
{
    struct slab_set *set = set_create();
    uint32_t class_index = size_class_of(SIZE), other = size_class_of(OTHER_SIZE);
    uint32_t slabs = SLABS_KEPT_SLICES / slices_of(class_index);
    uint32_t others = slabs * slices_of(class_index) / slices_of(other);
    hak__superslab_purge(true); /* the peak is that of now */
    give_objects(take_slabs(set, class_index, slabs));
    size_t most = unit_region_bytes_taken();
    uint32_t count = take_slabs(set, other, others);
    assert_int_equal(unit_region_bytes_taken(), most);
    give_objects(count);
    set_destroy(set);
}

/* A span needs adjacent slices, between which kept slabs may lie: all of them go back first, unless
 * the span comes out of the cache. */
static void *keep_beside_spans(void *argument)
{
    enum { COUNT = 2000, SPAN_BYTES = 800000 };
    const struct slab_set *set = &hak__thread_current()->heap->slabs;
    void *span = NULL;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            REQUIRE((objects[i] = hak_malloc(SIZE)) != NULL);
        }
        FREE_ALL(objects, COUNT);
        uint32_t kept = set->shared_kept;
        REQUIRE(kept != 0);
        hak_free(span);
        REQUIRE((span = hak_malloc(SPAN_BYTES)) != NULL);
        REQUIRE(set->shared_kept == (round == 0 ? 0 : kept));
    }
    hak_free(span);
    return argument;
}

TEST(room_for_a_span)
{
    uint32_t delay = hak__knobs.purge_delay_ms;
    hak__knobs.purge_delay_ms = UINT32_MAX; /* no tick gives kept slabs back */
    thread_join(thread_start(keep_beside_spans, NULL));
    hak__knobs.purge_delay_ms = delay;
}

static void free_again(void *remotely)
{
    struct slab_set *set = set_create();
    give_objects(take_slabs(set, size_class_of(SIZE), 1));
    void *object = objects[0];
    assert_true(unit_slab_of(object)->kept);
    if (remotely != NULL) {
        unit_return_remote(&object, 1);
        hak__slab_drain(set);
    } else {
        unit_return_list((struct object_list){object, 1});
    }
}

/* Whoever frees an object of a kept slab is told. */
TEST(double_free)
{
    REQUIRE_DEATH(free_again, NULL, "double free");
    REQUIRE_DEATH(free_again, state, "double free");
}

TESTS(unit_start)
