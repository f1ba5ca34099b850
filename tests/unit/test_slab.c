/* SPDX-License-Identifier: MIT */
/* test_slab.c: slab/slab: carving, refilling, returning, giving empty slabs back; random use
 * against a ledger. The remote half is in test_slab_remote.c.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "unit.h"

enum { OBJECTS_MAX = 8192 };

static void *objects[OBJECTS_MAX];

static int setup(void **state)
{
    int failed = unit_start(state);
    hak__knobs.huge_threshold = UINT64_MAX; /* a test counts resident pages */
    return failed;
}

/* Appends a refill's objects, `most` of them; the new count. */
static uint32_t refill_part_into(struct slab_set *set, uint32_t class_index, uint32_t most,
                                 uint32_t count)
{
    struct object_list list = unit_slab_refill(set, class_index, most);
    unit_list_tail(list);
    REQUIRE_SIZE(list.count, <=, most);
    for (struct object *object = list.head; object != NULL; object = object->next) {
        REQUIRE(count < OBJECTS_MAX);
        objects[count++] = object;
    }
    return count;
}

static uint32_t refill_into(struct slab_set *set, uint32_t class_index, uint32_t count)
{
    return refill_part_into(set, class_index, UINT32_MAX, count);
}

/* All objects of one new slab. */
static uint32_t fill_slab(struct slab_set *set, uint32_t class_index)
{
    uint32_t count = 0;
    while (count < hak__size_classes[class_index].objects_per_slab) {
        count = refill_into(set, class_index, count);
    }
    return count;
}

static bool owns(const struct slab_set *set, size_t slice)
{
    return window_owner(slice) >> OWNER_CODE_BITS == set->key >> OWNER_CODE_BITS;
}

/* Objects of 9 KiB, which start at multiples of 1 KiB in each slab, are spread over the sets of a
 * cache: those of neighbouring slabs begin in different lines of a page. */
TEST(slabs_have_colors)
{
    enum { SLABS = 16 };
    uint32_t class_index = size_class_of(9 * KIB);
    const struct size_class *size_class = &hak__size_classes[class_index];
    struct slab_set *set = unit_set_create();
    uint32_t count = 0;
    while (count < SLABS * size_class->objects_per_slab) {
        count = refill_into(set, class_index, count);
    }
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
    for (uint32_t i = 0; i < count; i++) {
        unit_return(&objects[i], 1);
    }
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
        hak__superslab_purge(true);
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

TEST(owner_words_and_heads)
{
    static const size_t sizes[] = {16, 7680, 8192, 10240, 16384, 20480, 32768, MID_SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct slab_set *set = unit_set_create();
        uint32_t class_index = size_class_of(sizes[i]);
        uint32_t count = refill_into(set, class_index, 0);
        struct slab *slab = unit_slab_of(objects[0]);
        size_t slice = slab_slice(slab);
        uint8_t slices = hak__size_classes[class_index].slab_slices;
        assert_int_equal(slab->slice_count, slices);
        assert_int_equal(slice % SUPERSLAB_SLICES + slices <= SUPERSLAB_SLICES, 1);
        for (uint8_t j = 0; j < slices; j++) {
            assert_int_equal(window_owner(slice + j), set->key | owner_code_of_class(class_index));
            assert_ptr_equal(slab_of_slice(slice + j), slab);
        }
        unit_return(objects, count);
        for (uint8_t j = 0; j < slices; j++) {
            assert_int_equal(window_owner(slice + j), OWNER_NOBODY);
        }
        unit_set_destroy(set);
    }
}

TEST(is_object)
{
    static const size_t sizes[] = {16, 112, 3072, 8192, 20480};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct slab_set *set = unit_set_create();
        uint32_t count = refill_part_into(set, size_class_of(sizes[i]), 1, 0);
        count = refill_part_into(set, size_class_of(sizes[i]), 1, count);
        struct slab *slab = unit_slab_of(objects[0]);
        for (size_t offset = 0; offset < slab->slice_count * SLICE_SIZE; offset += 8) {
            size_t behind = offset - slab->first;
            size_t size = size_class_bytes(slab->class_index);
            bool expected = offset >= slab->first && behind % size == 0 && behind / size < count;
            assert_int_equal(slab_is_object(slab, slab_start(slab) + offset), expected);
        }
        assert_false(slab_is_object(slab, slab_start(slab) + 1));
        unit_return(objects, count);
        unit_set_destroy(set);
    }
}

/* What is more than asked for stays in the slab, counted and listed; what comes from other threads
 * is then the owner's. */
TEST(refill_leaves_the_rest_in_the_slab)
{
    struct slab_set *set = unit_set_create();
    const uint64_t *counters = set->counters.values;
    uint32_t class_index = size_class_of(256);
    uint32_t count = fill_slab(set, class_index), left = 9;
    struct slab *slab = unit_slab_of(objects[0]);
    for (int remotely = 0; remotely < 2; remotely++) {
        void *const *freed = objects + 1;
        if (remotely != 0) {
            unit_return_remote(freed, left);
        } else {
            unit_return(freed, left);
        }
        for (uint32_t most = 1; left != 0; most++) { /* 1, 2, 3, and 3 of 4 */
            uint32_t expected = most < left ? most : left;
            struct object_list list = unit_slab_refill(set, class_index, most);
            unit_list_tail(list);
            assert_int_equal(list.count, expected);
            for (struct object *object = list.head; object != NULL; object = object->next) {
                assert_ptr_equal(object, *freed++);
            }
            left -= expected;
            struct object_list rest = {slab->free_list, slab->free_count};
            unit_list_tail(rest);
            assert_int_equal(slab->free_count, left);
            assert_int_equal(hak__slab_free_objects(slab), left);
            assert_int_equal(slab->listed, left != 0);
            assert_ptr_equal(set->partial[class_index], left != 0 ? slab : NULL);
        }
        left = 9;
    }
    assert_true(counters[COUNTER_REFILL_FREE_LIST] == 4 + 3);
    assert_true(counters[COUNTER_REFILL_REMOTE] == 1);
    assert_true(counters[COUNTER_SLAB_FROM_REGION] == 1);
    unit_return(objects, count);
    unit_set_destroy(set);
}

/* The slabs in the middle and at the ends of a class's list leave it in every order. */
TEST(slabs_leave_their_list)
{
    enum { SLABS = 4 };
    static const size_t orders[][SLABS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 1, 3, 0}};
    uint32_t class_index = unit_small_slab_class();
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        struct slab_set *set = unit_set_create();
        uint32_t count = 0;
        while (count < SLABS * 8) {
            count = refill_into(set, class_index, count);
        }
        for (size_t j = 0; j < SLABS; j++) {
            unit_return(objects + j * 8, 1); /* all listed */
        }
        for (size_t j = 0; j < SLABS; j++) {
            size_t first = orders[i][j] * 8;
            size_t slice = window_slice_of(objects[first]);
            unit_return(objects + first + 1, 7);
            assert_false(owns(set, slice));
            hak__slab_set_check(set);
            size_t listed = 0;
            for (struct slab *slab = set->partial[class_index]; slab != NULL; slab = slab->next) {
                assert_true(slab->listed && owns(set, slab_slice(slab)));
                assert_true(slab->next == NULL || slab->next->previous == slab);
                listed++;
            }
            assert_int_equal(listed, SLABS - 1 - j);
        }
        unit_set_destroy(set);
    }
}

TEST(empty_slabs_go_to_their_superslab)
{
    static size_t slices[20];
    size_t taken = unit_region_bytes_taken();
    struct slab_set *set = unit_set_create();
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        uint32_t count = fill_slab(set, unit_small_slab_class());
        slices[i] = window_slice_of(objects[0]);
        memcpy(objects + 100 + 8 * i, objects, count * sizeof objects[0]);
    }
    const uint64_t *counters = set->counters.values;
    assert_true(counters[COUNTER_SLAB_FROM_REGION] == COUNT_OF(slices));
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        unit_return(objects + 100 + 8 * i, 8);
        assert_false(owns(set, slices[i]));
        assert_true(counters[COUNTER_SLAB_TO_REGION] == i + 1);
    }
    assert_int_equal(unit_region_bytes_taken(), taken);
    struct slab_set *other = unit_set_create(); /* another heap gets the lowest */
    uint32_t count = refill_into(other, size_class_of(100), 0);
    assert_int_equal(window_slice_of(objects[0]), slices[0]);
    assert_true(owns(other, slices[0]));
    unit_return(objects, count);
    unit_set_destroy(other);
    count = refill_into(set, size_class_of(SLICE_SIZE / 2), 0); /* two slices */
    assert_true(counters[COUNTER_SLAB_FROM_REGION] == COUNT_OF(slices) + 1);
    unit_return(objects, count);
    assert_true(counters[COUNTER_SLAB_TO_REGION] == COUNT_OF(slices) + 1);
    unit_set_destroy(set);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

static void random_return(struct ledger *ledger, uint64_t *random, uint32_t *count)
{
    /* a run of objects that happen to be of one slab, as the cache would return them */
    uint32_t first = (uint32_t)random_below(random, *count), length = 0;
    struct slab *slab = unit_slab_of(objects[first]);
    size_t size = size_class_bytes(slab->class_index);
    uint32_t most = 1 + (uint32_t)random_size(random, 6);
    while (length < most && first + length < *count &&
           unit_slab_of(objects[first + length]) == slab) {
        assert_true(slab_is_object(slab, objects[first + length]));
        assert_int_equal(pattern_mismatch(objects[first + length], 16, first + length), SIZE_MAX);
        ledger_give(ledger, objects[first + length++], size);
    }
    unit_return(objects + first, length);
    *count -= length;
    for (uint32_t i = first, last = *count + length; i < first + length && i < *count; i++) {
        objects[i] = objects[--last]; /* the last ones fill the gap and are marked anew */
        pattern_fill(objects[i], 16, i);
    }
}

TEST(random_use)
{
    static const size_t sizes[] = {16, 48, 112, 1024, 2048, 5120, 8192, 13312, 32768, MID_SIZE_MAX};
    uint64_t random = 6;
    uint32_t count = 0;
    size_t taken = unit_region_bytes_taken();
    struct ledger ledger = ledger_create();
    struct slab_set *set = unit_set_create();
    for (size_t step = 0; step < (SUPPORT_SLOW ? 5000 : 30000); step++) {
        size_t most = step / 1000 % 2 == 0 ? OBJECTS_MAX / 2 : 100; /* fills up and empties */
        if (count == 0 || (count < most && random_below(&random, 3) != 0)) {
            uint32_t class_index = size_class_of(sizes[random_below(&random, COUNT_OF(sizes))]);
            uint32_t before = count;
            uint32_t limit = 1 + (uint32_t)random_size(&random, 8);
            count = refill_part_into(set, class_index, limit, count);
            assert_true(count > before);
            for (uint32_t i = before; i < count; i++) {
                assert_int_equal(unit_slab_of(objects[i])->class_index, class_index);
                ledger_take(&ledger, objects[i], size_class_bytes(class_index));
                pattern_fill(objects[i], 16, i);
            }
        } else {
            random_return(&ledger, &random, &count);
        }
        assert_int_equal(ledger.shared_count, count);
    }
    while (count != 0) {
        random_return(&ledger, &random, &count);
    }
    ledger_destroy(&ledger);
    unit_set_destroy(set);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

static void return_too_many(void *argument)
{
    struct slab_set *set = unit_set_create();
    uint32_t count = refill_into(set, size_class_of(64), 0);
    unit_return(objects, count - 1);
    unit_return(objects, 2); /* one of them a second time */
}

static void return_twice_in_a_row(void *argument)
{
    struct slab_set *set = unit_set_create();
    uint32_t count = refill_into(set, size_class_of(64), 0);
    unit_return(objects + 3, count - 5);
    unit_return(objects + 2, 1);
    unit_return(objects + 2, 1);
}

static void corrupt_a_free_object(void *argument)
{
    struct slab_set *set = unit_set_create();
    uint32_t count = refill_into(set, size_class_of(64), 0);
    unit_return(objects, count - 1);
    ((struct object *)objects[3])->next = (struct object *)(void *)((char *)objects[5] + 8);
    unit_slab_refill(set, size_class_of(64), 1); /* walks the rest at level 2 */
}

/* Anything, not only what looks like a link. */
static void return_beside_a_corrupted_object(void *argument)
{
    struct slab_set *set = unit_set_create();
    uint32_t count = refill_into(set, size_class_of(64), 0);
    unit_return(objects, 3);
    memset(objects[1], 'A', 16);
    unit_return(objects + 3, count - 3); /* with it the slab is empty */
}

TEST(what_callers_break)
{
    REQUIRE_DEATH(return_too_many, NULL,
                  "double free .more objects freed than the slab holds.*64 bytes");
    REQUIRE_DEATH(return_twice_in_a_row, NULL, "double free.*64 bytes");
    if (HAK_LEVEL >= 2) {
        REQUIRE_DEATH(corrupt_a_free_object, NULL, "corrupted free list.*64 bytes");
        REQUIRE_DEATH(return_beside_a_corrupted_object, NULL, "corrupted free list.*64 bytes");
    }
}

TEST(memory_not_needed_is_not_touched)
{
    unsigned char resident[SLICE_SIZE / 4096];
    size_t page = hak__os_page_size(), touched = 0;
    hak__superslab_purge(true);
    struct slab_set *set = unit_set_create();
    uint32_t count = refill_into(set, 1, 0);
    assert_int_equal(mincore(slab_start(unit_slab_of(objects[0])), SLICE_SIZE, resident), 0);
    for (size_t i = 0; i < SLICE_SIZE / page; i++) {
        touched += resident[i] & 1;
    }
    assert_int_equal(touched, (CARVE_BYTES + page - 1) / page);
    unit_return(objects, count);
    unit_set_destroy(set);
}

TEST(a_full_slab_is_listed_again_by_a_return)
{
    struct slab_set *set = unit_set_create();
    uint32_t class_index = size_class_of(1024);
    uint32_t count = fill_slab(set, class_index);
    struct slab *full = unit_slab_of(objects[0]);
    assert_false(full->listed);
    assert_null(set->partial[class_index]);
    uint32_t more = refill_part_into(set, class_index, 1, count);
    struct slab *second = unit_slab_of(objects[count]);
    assert_ptr_not_equal(second, full);
    assert_ptr_equal(set->partial[class_index], second);
    unit_return(objects + 7, 1);
    assert_true(full->listed);
    assert_ptr_equal(set->partial[class_index], full); /* its object is the warmest */
    assert_ptr_equal(full->next, second);
    hak__slab_set_check(set);
    struct object_list list = unit_slab_refill(set, class_index, UINT32_MAX);
    assert_ptr_equal(list.head, objects[7]);
    assert_int_equal(list.count, 1);
    assert_false(full->listed);
    assert_ptr_equal(set->partial[class_index], second);
    assert_null(second->previous);
    unit_return(objects + count, more - count);
    unit_return(objects, count);
    unit_set_destroy(set);
}

static void refill_without_memory(void *argument)
{
    struct rlimit limit;
    struct slab_set *set = unit_set_create();
    (void)argument;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = address_space_bytes();
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    while (hak__superslab_take(0, 1, 1).slice != SLICE_NONE) {
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct object_list list = unit_slab_refill(set, class_index, UINT32_MAX);
        REQUIRE(list.head == NULL && list.count == 0);
    }
    REQUIRE(unit_set_is_empty(set));
    limit.rlim_cur = before;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    REQUIRE(unit_slab_refill(set, 5, UINT32_MAX).count != 0);
}

TEST(no_memory)
{
    if (SUPPORT_SANITIZED) {
        skip();
    }
    REQUIRE_LIFE(refill_without_memory, NULL, NULL);
}

TESTS(setup)
