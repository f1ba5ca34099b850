/* SPDX-License-Identifier: MIT */
/* test_slab.c: slab/slab: carving, and what callers break. Refilling, returning and frees of other
 * threads are asked by model/, threads/ and protocol/.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "unit.h"

#include "slab/slab_lists.h"

enum { OBJECTS_MAX = 8192 };

static void *objects[OBJECTS_MAX];

static int setup(void **state)
{
    int failed = unit_start(state);
    hak__knobs.huge_threshold = UINT64_MAX; /* a test counts resident pages */
    return failed;
}

/* The first `wanted` of `objects` are the set's, in use; how many. */
static uint32_t take(struct slab_set *set, uint32_t class_index, uint32_t wanted)
{
    for (uint32_t count = 0; count < wanted;) {
        struct object_list list = unit_slab_refill(set, class_index, wanted - count);
        unit_list_tail(list);
        REQUIRE_SIZE(list.count, <=, wanted - count);
        for (struct object *object = list.head; object != NULL; object = object->next) {
            objects[count++] = object;
        }
    }
    return wanted;
}

static uint32_t take_slabs(struct slab_set *set, uint32_t class_index, uint32_t slabs)
{
    return take(set, class_index, slabs * hak__size_classes[class_index].objects_per_slab);
}

/* Returns the objects number `first` to `end` - 1 of those taken. */
static void give_some(uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        unit_return(&objects[i], 1);
    }
}

static void give_objects(uint32_t count)
{
    give_some(0, count);
}

/* Objects of 9 KiB, which start at multiples of 1 KiB in each slab, are spread over the sets of a
 * cache: those of neighbouring slabs begin in different lines of a page. */
TEST(slabs_have_colors)
{
    enum { SLABS = 16 };
    uint32_t class_index = size_class_of(9 * KIB);
    const struct size_class *size_class = &hak__size_classes[class_index];
    struct slab_set *set = unit_set_create();
    uint32_t count = take_slabs(set, class_index, SLABS);
    bool lines[4 * KIB / HAK_CACHE_LINE] = {false};
    uint32_t different = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct slab *slab = unit_slab_of(objects[i]);
        char *end = (char *)slab_start(slab) + slab->slice_count * SLICE_SIZE;
        assert_true((char *)objects[i] + size_class->object_size <= end);
        assert_true(is_aligned(objects[i], HAK_CACHE_LINE));
        assert_true(slab_is_object(slab, objects[i]));
        assert_false(slab_is_object(slab, (char *)objects[i] + HAK_CACHE_LINE));
        assert_true(slab->first < size_class->colors * HAK_CACHE_LINE);
        bool *line = &lines[(uintptr_t)objects[i] % (4 * KIB) / HAK_CACHE_LINE];
        different += !*line;
        *line = true;
    }
    assert_true(different >= 32); /* 4 without colors; 64 at most */
    give_objects(count);
    unit_set_destroy(set);
}

/* Whoever fills its bins from untouched memory and writes to what it gets does not wait for the
 * kernel in malloc. */
TEST(the_first_touch_is_the_programs)
{
    SKIP_IF(hak__os_page_size() != CARVE_BYTES);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct cache *cache = unit_cache_create();
        uint32_t capacity = hak__size_classes[class_index].objects_per_slab;
        size_t bytes = hak__size_classes[class_index].slab_slices * SLICE_SIZE;
        hak__superslab_purge();
        for (uint32_t i = 0; i < capacity; i++) {
            size_t touched = 0, *object;
            if (i != 0) {
                touched = hak__os_resident(slab_start(unit_slab_of(objects[0])), bytes);
            }
            objects[i] = object = unit_cache_allocate(cache, class_index);
            struct slab *slab = unit_slab_of(objects[i]);
            assert_ptr_equal(slab, unit_slab_of(objects[0]));
            assert_int_equal(hak__os_resident(slab_start(slab), bytes), touched);
            *object = 1;
        }
        unit_return(objects, capacity);
        unit_cache_destroy(cache);
    }
}

/* No peak is higher for the idle slabs that an arena keeps: those of another class go back
 * first. */
TEST(kept_slabs)
{
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(20000);
    uint32_t slices = hak__size_classes[class_index].slab_slices;
    uint32_t most = SLABS_KEPT_SLICES / slices * slices;
    set->shared_threads = 1;
    give_objects(take_slabs(set, class_index, 2 * most / slices));
    assert_int_equal(set->shared_kept, most);
    struct slab *kept = set->kept[class_index];
    assert_int_equal(hak__slab_purge(set, kept, 0), 0); /* its list is none of partial slabs */
    assert_int_equal(kept->purged_count, 0);
    hak__slab_give_kept(set, UINT32_MAX);
    hak__superslab_purge(); /* the peak is that of now */
    give_objects(take_slabs(set, class_index, most / slices));
    size_t taken = unit_region_bytes_taken();
    uint32_t other = size_class_of(9000), others = hak__size_classes[other].slab_slices;
    uint32_t count = take_slabs(set, other, most / others);
    assert_int_equal(unit_region_bytes_taken(), taken);
    give_objects(count);
    hak__slab_give_kept(set, UINT32_MAX);
    unit_set_destroy(set);
}

/* Objects that come back to a slab do not keep its free pages; objects that are taken do, until the
 * next look. */
TEST(pages_of_a_list_that_grows)
{
    SKIP_IF(HAK_SECURE || hak__os_page_size() != ARCH_PAGE_SIZE_MIN);
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(3000), count = take_slabs(set, class_index, 1);
    struct slab *slab = unit_slab_of(objects[0]);
    give_some(1, count - 2);
    (void)hak__slab_purge(set, slab, 1);
    assert_int_equal(slab->purged_count, 0);
    struct object_list list = unit_slab_refill(set, class_index, 1);
    void *taken = list.head;
    assert_int_equal(list.count, 1);
    unit_return(&taken, 1); /* as many as before */
    (void)hak__slab_purge(set, slab, 1);
    assert_int_equal(slab->purged_count, 0);
    give_some(count - 2, count - 1);
    (void)hak__slab_purge(set, slab, 1);
    uint32_t purged_count = slab->purged_count;
    assert_true(purged_count != 0);
    (void)hak__slab_purge(set, slab, 1);
    assert_int_equal(slab->purged_count, purged_count);
    give_some(0, 1);
    give_some(count - 1, count);
    unit_set_destroy(set);
}

/* Objects that were purged are handed out again, each once, and no place beyond the last one. */
TEST(purged_objects_serve_again)
{
    SKIP_IF(HAK_SECURE || hak__os_page_size() != ARCH_PAGE_SIZE_MIN);
    static const size_t sizes[] = {48, 80, 1000, 3000, 9600, 65600};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct slab_set *set = unit_set_create();
        uint32_t class_index = size_class_of(sizes[i]), count = take_slabs(set, class_index, 1);
        struct slab *slab = unit_slab_of(objects[0]);
        void *last = objects[count - 1], *stays = objects[0];
        assert_int_equal(hak__slab_purge(set, slab, 0), 0); /* it has no free object */
        give_some(1, count);
        (void)hak__slab_purge(set, slab, 0);
        uint32_t pages = slab->slice_count * (uint32_t)(SLICE_SIZE / ARCH_PAGE_SIZE_MIN);
        size_t end = (uintptr_t)last - (uintptr_t)slab_start(slab) + size_class_bytes(class_index);
        uint32_t last_page = (uint32_t)((end - 1) / ARCH_PAGE_SIZE_MIN);
        for (uint32_t page = last_page; page < pages; page++) {
            uint8_t bits = window_slab_metadata(slab_slice(slab) + page / 8)->purged_pages;
            REQUIRE((bits >> page % 8 & 1) == (page == last_page ? 1 : 0));
        }
        size_t taken = unit_region_bytes_taken();
        struct object_list lent = hak__slab_lend(set, class_index, 1);
        assert_int_equal(lent.count, 1);
        unit_return_list(lent);
        take(set, class_index, count - 1);
        assert_int_equal(unit_region_bytes_taken(), taken);
        for (uint32_t j = 0; j < count - 1; j++) {
            REQUIRE(objects[j] != stays && (uintptr_t)objects[j] <= (uintptr_t)last);
            memset(objects[j], 1, sizes[i]);
        }
        assert_int_equal(slab->purged_count, 0);
        give_objects(count - 1);
        unit_return(&stays, 1);
        unit_set_destroy(set);
    }
}

/* A pass that comes early leaves out slabs with so many objects in use that it gains little. */
TEST(dense_slabs_wait)
{
    SKIP_IF(HAK_SECURE || hak__os_page_size() != ARCH_PAGE_SIZE_MIN);
    struct slab_set *set = unit_set_create();
    uint32_t count = take_slabs(set, size_class_of(100), 1);
    struct slab *slab = unit_slab_of(objects[0]);
    give_some(17, count);
    for (uint32_t pass = 0; pass < 4; pass++) {
        (void)hak__slab_purge(set, slab, 1);
        assert_int_equal(slab->purged_count, 0);
    }
    give_some(16, 17);
    (void)hak__slab_purge(set, slab, 1);
    (void)hak__slab_purge(set, slab, 1);
    assert_true(slab->purged_count != 0);
    give_objects(16);
    unit_set_destroy(set);
}

/* A slab that was used up again is listed again by its first return. */
TEST(a_slab_that_is_used_up_again)
{
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(3000), count = take_slabs(set, class_index, 1);
    const struct slab *slab = unit_slab_of(objects[0]);
    for (uint32_t round = 0; round < 2; round++) {
        give_some(0, 1);
        assert_ptr_equal(set->partial[class_index], slab);
        take(set, class_index, 1);
        assert_null(set->partial[class_index]);
    }
    give_objects(count);
    unit_set_destroy(set);
}

/* The slab goes back although other threads freed some of its objects since a return looked. */
TEST(objects_of_other_threads_count)
{
    struct slab_set *set = unit_set_create();
    uint32_t count = take_slabs(set, size_class_of(3000), 1);
    give_some(0, 2);
    unit_return_remote(&objects[2], 2);
    assert_int_equal(hak__slab_drain(set), 1);
    give_some(4, count);
    unit_set_destroy(set);
}

/* Refills touch pages again only if nothing else is free, and still before they take a new slab. */
TEST(purged_slabs_come_last)
{
    SKIP_IF(HAK_SECURE || hak__os_page_size() != ARCH_PAGE_SIZE_MIN);
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(3000);
    uint32_t capacity = hak__size_classes[class_index].objects_per_slab;
    uint32_t count = take_slabs(set, class_index, 3);
    const struct slab *middle = unit_slab_of(objects[capacity]);
    struct slab *last = unit_slab_of(objects[count - 1]);
    void *kept[3];
    for (uint32_t i = 0; i < 3; i++) {
        give_some(i * capacity, (i + 1) * capacity - 1);
        kept[i] = objects[(i + 1) * capacity - 1];
    }
    assert_ptr_equal(set->partial[class_index], last);
    (void)hak__slab_purge(set, last, 0);
    assert_true(last->purged_count != 0);
    assert_ptr_equal(set->partial[class_index], middle);
    uint32_t others = 2 * (capacity - 1);
    for (uint32_t left = others; left != 0;) {
        struct object_list list = unit_slab_refill(set, class_index, left);
        for (struct object *object = list.head; object != NULL; object = object->next) {
            assert_true(unit_slab_of(object) != last);
            objects[--left] = object;
        }
    }
    size_t taken = unit_region_bytes_taken();
    struct object_list list = unit_slab_refill(set, class_index, 1);
    assert_ptr_equal(unit_slab_of(list.head), last);
    assert_int_equal(unit_region_bytes_taken(), taken);
    unit_return_list(list);
    give_some(0, others);
    for (uint32_t i = 0; i < 3; i++) {
        unit_return(&kept[i], 1);
    }
    unit_set_destroy(set);
}

static void return_to_a_kept_slab(void *remotely)
{
    struct slab_set *set = unit_set_create();
    set->shared_threads = 1;
    give_objects(take_slabs(set, size_class_of(3000), 1));
    assert_true(unit_slab_of(objects[0])->kept);
    if (remotely != NULL) {
        unit_return_remote(&objects[0], 1);
        hak__slab_drain(set);
    } else {
        unit_return(&objects[0], 1);
    }
}

/* A purged object has no mark any more, and is free all the same. */
static void free_a_purged_object(void *remotely)
{
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(500), count = take_slabs(set, class_index, 1);
    struct slab *slab = unit_slab_of(objects[0]);
    void *object = objects[count / 2];
    for (uint32_t i = 2; i < count; i++) {
        memset(objects[i], 1, 500);
        unit_return(&objects[i], 1);
    }
    (void)hak__slab_purge(set, slab, 0);
    REQUIRE(slab->purged_count != 0);
    object_set_free(object, NULL, object_mark_of(set->key)); /* as a bin does */
    if (remotely != NULL) {
        unit_return_remote(&object, 1);
        unit_slab_refill(set, class_index, count);
        unit_slab_refill(set, class_index, count);
    } else {
        unit_return_list((struct object_list){object, 1});
    }
}

static void return_twice_in_a_row(void *argument)
{
    (void)argument;
    take_slabs(unit_set_create(), size_class_of(3000), 1);
    give_some(5, 6);
    give_some(5, 6);
}

static void return_too_many(void *argument)
{
    (void)argument;
    uint32_t count = take_slabs(unit_set_create(), size_class_of(3000), 1);
    give_some(1, count);
    unit_return(&objects[1], 2);
}

/* A free list leads to a place at which no object of the slab starts, or to one that is in use. */
static void purge_a_broken_list(void *in_use)
{
    struct slab_set *set = unit_set_create();
    uint32_t count = take_slabs(set, size_class_of(500), 2) / 2;
    give_some(2, count);
    give_some(count + 2, 2 * count);
    struct object *first = objects[5], *wrong = objects[in_use != NULL ? 0 : count + 5];
    if (in_use != NULL) {
        *wrong = (struct object){objects[6], 0};
    }
    object_link(first, wrong);
    (void)hak__slab_purge(set, unit_slab_of(first), 0);
}

/* As above, where a refill takes a part of the list. */
static void refill_from_a_broken_list(void *without_mark)
{
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(500), count = take_slabs(set, class_index, 2) / 2;
    give_some(2, count);
    give_some(count + 2, 2 * count);
    struct object *first = objects[2 * count - 1];
    if (without_mark != NULL) {
        first->mark = 1;
    } else {
        object_link(first, objects[5]);
    }
    (void)hak__slab_refill(set, class_index, 1);
}

/* As above, in a list that comes back to a slab with purged pages. */
static void return_a_broken_list(void *argument)
{
    (void)argument;
    struct slab_set *set = unit_set_create();
    uint32_t count = take_slabs(set, size_class_of(500), 2) / 2;
    give_some(3, count);
    struct slab *slab = unit_slab_of(objects[0]);
    (void)hak__slab_purge(set, slab, 0);
    REQUIRE(slab->purged_count != 0);
    object_set_free(objects[count + 5], NULL, object_mark_of(set->key));
    object_set_free(objects[1], objects[count + 5], object_mark_of(set->key));
    unit_return_list((struct object_list){objects[1], 2});
}

TEST(what_callers_break)
{
    static const char too_many[] = "double free \\(more objects freed than the slab holds\\)";
    REQUIRE_DEATH(return_to_a_kept_slab, NULL, too_many);
    REQUIRE_DEATH(return_to_a_kept_slab, state, too_many);
    REQUIRE_DEATH(return_too_many, NULL, too_many);
    REQUIRE_DEATH(return_twice_in_a_row, NULL, "fatal: double free: ");
    REQUIRE_DEATH(refill_from_a_broken_list, NULL, "corrupted free list");
    REQUIRE_DEATH(refill_from_a_broken_list, state, "corrupted free list");
    if (hak__os_page_size() == 4096) {
        REQUIRE_DEATH(free_a_purged_object, NULL, "double free");
        REQUIRE_DEATH(free_a_purged_object, state, "double free");
        REQUIRE_DEATH(purge_a_broken_list, NULL, "corrupted free list \\(double free");
        REQUIRE_DEATH(purge_a_broken_list, state, "corrupted free list \\(double free");
        REQUIRE_DEATH(return_a_broken_list, NULL, "corrupted free list \\(double free");
    }
}

/* A slab in the middle of a list leaves it after its links were overwritten. */
static void unlink_overwritten(void *argument)
{
    static struct slab_set set;
    static struct slab elsewhere, slab = {.class_index = 3};
    (void)argument;
    slab_list(&set, &slab);
    slab.next = slab.previous = &elsewhere;
    slab_unlist(&set, &slab);
}

TEST(links_that_were_overwritten)
{
    REQUIRE_DEATH(unlink_overwritten, NULL, "^hakmem: fatal: the tables of slabs were overwritten");
}

TESTS(setup)
