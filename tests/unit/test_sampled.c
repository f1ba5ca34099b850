/* SPDX-License-Identifier: MIT */
/* test_sampled.c: large/sampled: slices of sampled objects. */
#include "unit.h"

#include "large/sampled.h"

static size_t owner_of(const void *pointer)
{
    return window_owner(window_slice_of(pointer));
}

/* Fills three slices of each class, and empties them in another order. */
TEST(every_class)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        size_t bytes = size_class_bytes(class_index), usable = size_class_usable(class_index);
        size_t capacity = bytes < SLICE_SIZE ? SLICE_SIZE / bytes : 1, count = 3 * capacity;
        size_t slices = (bytes + SLICE_SIZE - 1) / SLICE_SIZE;
        unsigned char **objects = support_map(count * sizeof *objects);
        for (size_t i = 0; i < count; i++) {
            objects[i] = hak__sampled_allocate(class_index, usable);
            assert_non_null(objects[i]);
            assert_int_equal((uintptr_t)objects[i] % (bytes & (~bytes + 1)), 0);
            assert_int_equal(owner_of(objects[i]), OWNER_SAMPLED);
            assert_int_equal(hak__sampled_usable(objects[i]), usable);
            memset(objects[i], (int)(i % 251), usable);
        }
        assert_int_equal(hak__sampled_totals().objects_count, count);
        assert_int_equal(hak__sampled_totals().objects_bytes, count * bytes);
        assert_int_equal(hak__sampled_totals().slices_count, 3 * slices);
        for (size_t i = 0; i < count; i++) { /* no two overlap */
            assert_int_equal(objects[i][0], i % 251);
            assert_int_equal(objects[i][usable - 1], i % 251);
        }
        for (size_t i = 0; i < count; i++) {
            hak__sampled_free(objects[(i * 7919 + 3) % count]); /* 7919 is prime */
        }
        assert_int_equal(hak__sampled_totals().objects_count, 0);
        assert_int_equal(hak__sampled_totals().objects_bytes, 0);
        assert_int_equal(hak__sampled_totals().slices_count, 0);
        munmap(objects, count * sizeof *objects);
    }
}

/* A slice with room is used before another one is taken. */
TEST(room_is_used)
{
    uint32_t class_index = size_class_of(4000);
    size_t capacity = SLICE_SIZE / size_class_bytes(class_index);
    void *objects[32] = {NULL};
    assert_in_range(2 * capacity, 4, COUNT_OF(objects));
    for (size_t i = 0; i < 2 * capacity; i++) {
        objects[i] = hak__sampled_allocate(class_index, 4000);
        assert_non_null(objects[i]);
    }
    hak__sampled_free(objects[1]);
    hak__sampled_free(objects[capacity + 1]);
    void *again[2] = {hak__sampled_allocate(class_index, 4000),
                      hak__sampled_allocate(class_index, 4000)};
    assert_true((again[0] == objects[1] && again[1] == objects[capacity + 1]) ||
                (again[1] == objects[1] && again[0] == objects[capacity + 1]));
    assert_int_equal(hak__sampled_totals().slices_count, 2);
    for (size_t i = 0; i < 2 * capacity; i++) {
        hak__sampled_free(objects[i]);
    }
    assert_int_equal(hak__sampled_totals().slices_count, 0);
}

TESTS(unit_start)
