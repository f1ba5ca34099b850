/* SPDX-License-Identifier: MIT */
/* test_size_class.c: core/size_class: each size, each table entry, each alignment. */
#include "unit.h"

/* Up to here there are eight classes in a doubling; those of powers of two have the skew. */
#define EIGHT_STEPS_MAX ((size_t)7680)

TEST(every_size_has_the_smallest_class_that_holds_it)
{
    for (size_t size = 0; size <= MID_SIZE_MAX; size++) {
        uint32_t class_index = size_class_of(size);
        assert_in_range(class_index, 1, ROUND_CLASS_FIRST - 1);
        assert_true(size_class_bytes(class_index) >= size);
        assert_true(class_index == 1 || size_class_bytes(class_index - 1) < size);
    }
    assert_int_equal(size_class_of(0), 1);
    assert_int_equal(size_class_of(MID_SIZE_MAX), ROUND_CLASS_FIRST - 1);
}

TEST(waste_is_bounded)
{
    for (size_t size = 1; size <= MID_SIZE_MAX; size++) {
        size_t waste = size_class_bytes(size_class_of(size)) - size;
        if (size <= TINY_SIZE_MAX) {
            assert_true(waste < OBJECT_ALIGNMENT);
        } else if (size <= EIGHT_STEPS_MAX) {
            assert_true(7 * waste <= size);
        } else {
            assert_true(10 * waste <= 3 * size);
        }
    }
}

/* The sizes that the few classes were chosen for: 10,000 and its halves and doubles, and powers of
 * two with a header. */
TEST(usual_sizes_waste_little)
{
    for (size_t size = 1250; size <= 40000; size *= 2) {
        assert_true(25 * (size_class_bytes(size_class_of(size)) - size) <= size);
    }
    assert_int_equal(size_class_bytes(size_class_of(1024 + 8)), 1024 + 16);
    for (size_t size = 2048; size <= MID_SIZE_MAX; size *= 2) {
        assert_int_equal(size_class_bytes(size_class_of(size)), size + MID_SKEW);
        assert_int_equal(size_class_bytes(size_class_of(size + MID_SKEW)), size + MID_SKEW);
    }
}

/* What programs read first of each object is at another line of a page than in its neighbours. */
TEST(neighbours_start_at_other_lines)
{
    for (uint32_t class_index = 1; class_index < ROUND_CLASS_FIRST; class_index++) {
        const struct size_class *size_class = &hak__size_classes[class_index];
        uint32_t size = size_class->object_size, starts[64] = {0};
        if (size <= EIGHT_STEPS_MAX && size != 2048 + MID_SKEW && size != 4096 + MID_SKEW) {
            continue;
        }
        for (uint32_t i = 0; i < size_class->objects_per_slab; i++) {
            uint32_t line = i * size / HAK_CACHE_LINE % 64;
            assert_int_equal(starts[line]++, 0);
        }
        assert_true(size_class->colors > 1);
    }
}

TEST(tables_are_consistent)
{
    assert_int_equal(hak__size_classes[0].object_size, 0);
    assert_int_equal(hak__size_classes[0].objects_per_slab, 0);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct size_class *size_class = &hak__size_classes[class_index];
        size_t slab_bytes = size_class->slab_slices * SLICE_SIZE;
        assert_true(class_index == ROUND_CLASS_FIRST ||
                    size_class->object_size > hak__size_classes[class_index - 1].object_size);
        assert_int_equal(size_class->object_size % OBJECT_ALIGNMENT, 0);
        assert_true(size_class->slab_slices >= 1 && size_class->slab_slices <= SLAB_SLICES_MAX);
        assert_int_equal(size_class->objects_per_slab, slab_bytes / size_class->object_size);
        assert_true(size_class->objects_per_slab >= 4);
        assert_true(slab_bytes % size_class->object_size <=
                    slab_bytes / (size_class->slab_slices < SLAB_SLICES_MAX ? 12 : 9));
        size_t lines_left = slab_bytes % size_class->object_size / HAK_CACHE_LINE;
        bool colored = class_index > TINY_CLASS_COUNT && class_index < ROUND_CLASS_FIRST;
        size_t colors = !colored ? 1 : lines_left + 1 < 64 ? lines_left + 1 : 64;
        assert_int_equal(size_class->colors, colors);
        /* a slice less would hold too few objects, or lose more at its end */
        size_t shorter = slab_bytes - SLICE_SIZE;
        assert_true(shorter / size_class->object_size < 4 ||
                    shorter % size_class->object_size > shorter / 12);
        if (class_index < ROUND_CLASS_FIRST) {
            assert_int_equal(size_class_of(size_class->object_size), class_index);
        } else {
            size_t size = size_class->object_size, alignment = size & (~size + 1);
            assert_int_equal(
                size_class_of_aligned(size, alignment < SLICE_SIZE ? alignment : SLICE_SIZE),
                class_index);
        }
    }
    assert_int_equal(size_class_bytes(TINY_CLASS_COUNT), TINY_SIZE_MAX);
    assert_int_equal(size_class_bytes(ROUND_CLASS_FIRST - 1), MID_SIZE_MAX);
}

TEST(the_fast_functions_agree)
{
    assert_int_equal(size_class_of_tiny(0), 0); /* the bin that is always empty */
    for (size_t size = 1; size <= TINY_SIZE_MAX; size++) {
        assert_int_equal(size_class_of_tiny(size), size_class_of(size));
    }
    for (size_t size = TINY_SIZE_MAX + 1; size <= MID_SIZE_MAX; size++) {
        assert_int_equal(size_class_of_mid(size), size_class_of(size));
    }
}

/* The definition, by looking at every class; slabs start at slices, or lines behind. */
static uint32_t naive_class_of_aligned(size_t size, size_t alignment)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        size_t bytes = hak__size_classes[class_index].object_size;
        bool kept = hak__size_classes[class_index].colors == 1 || alignment <= HAK_CACHE_LINE;
        if (bytes >= size && bytes % alignment == 0 && alignment <= SLICE_SIZE && kept) {
            return class_index;
        }
    }
    return CLASS_COUNT;
}

TEST(aligned_classes)
{
    for (size_t alignment = 1; alignment <= 2 * SLICE_SIZE; alignment *= 2) {
        for (size_t size = 0; size <= MID_SIZE_MAX + 2; size += 1 + size / 97) {
            assert_int_equal(size_class_of_aligned(size, alignment),
                             naive_class_of_aligned(size, alignment));
        }
        for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
            size_t bytes = size_class_bytes(class_index);
            for (size_t size = bytes - 1; size <= bytes + 1; size++) {
                assert_int_equal(size_class_of_aligned(size, alignment),
                                 naive_class_of_aligned(size, alignment));
            }
        }
    }
}

/* Less than a quarter of the request rounded up to its alignment, and of the request itself where
 * that is four times the alignment. */
TEST(aligned_objects_waste_less_than_a_quarter)
{
    for (size_t alignment = 128; alignment <= SLICE_SIZE; alignment *= 2) {
        for (size_t size = 1; size <= ROUND_SIZE_MAX; size++) {
            uint32_t class_index = size_class_of_aligned(size, alignment);
            assert_in_range(class_index, 1, CLASS_COUNT - 1);
            size_t bytes = size_class_bytes(class_index);
            size_t rounded = (size + alignment - 1) / alignment * alignment;
            assert_true(bytes >= rounded && bytes % alignment == 0);
            assert_true(4 * (bytes - rounded) < rounded);
            assert_true(size < 4 * alignment || 4 * (bytes - size) < size);
            assert_int_equal(hak__size_classes[class_index].colors, 1);
        }
    }
}

TEST(aligned_extremes)
{
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(size_class_of_aligned(SIZE_MAX, (size_t)1 << i), CLASS_COUNT);
        assert_int_equal(size_class_of_aligned(MID_SIZE_MAX + 1, (size_t)1 << i), CLASS_COUNT);
        uint32_t of_nothing = size_class_of_aligned(0, (size_t)1 << i);
        assert_int_equal(of_nothing < CLASS_COUNT, (size_t)1 << i <= SLICE_SIZE);
    }
}

TEST(where_objects_start)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        uint64_t reciprocal = hak__size_reciprocals[class_index];
        size_t size = size_class_bytes(class_index), number = 0, rest = 0;
        uint32_t count = hak__size_classes[class_index].objects_per_slab;
        for (size_t offset = 0; offset < (count + 1) * size; offset++) {
            bool starts = rest == 0 && number < count;
            assert_int_equal(size_class_starts(offset, reciprocal, count), starts);
            rest = rest + 1 == size ? 0 : rest + 1;
            number += rest == 0;
        }
        for (uint32_t bits = 20; bits < 64; bits++) { /* what lies outside of the slab */
            size_t offset = (size_t)1 << bits;
            for (size_t distance = 0; distance <= 2 * size; distance += OBJECT_ALIGNMENT / 2) {
                assert_false(size_class_starts(offset + distance, reciprocal, count));
                assert_false(size_class_starts(0 - distance - 1, reciprocal, count));
                assert_false(size_class_starts(0 - offset - distance, reciprocal, count));
            }
        }
    }
}

TESTS(NULL)
