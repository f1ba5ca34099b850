/* SPDX-License-Identifier: MIT */
/* test_size_class.c: core/size_class: each table entry, and where objects start. The class of each
 * alignment shows in what api/test_aligned asks. */
#include "unit.h"

/* What programs read first of each object lies at 24 of the 64 lines of a page, or more. */
TEST(objects_start_at_many_lines)
{
    for (uint32_t class_index = TINY_CLASS_COUNT + 1; class_index < ROUND_CLASS_FIRST;
         class_index++) {
        const struct size_class *size_class = &hak__size_classes[class_index];
        uint64_t starts = 0;
        for (uint32_t i = 0; i < size_class->objects_per_slab; i++) {
            for (uint32_t color = 0; color < size_class->colors; color++) {
                uint32_t line = i * (size_class->object_size / HAK_CACHE_LINE) + color;
                starts |= UINT64_C(1) << line % 64;
            }
        }
        assert_in_range(bits_count(starts), 24, 64);
        assert_true(size_class->colors > 1);
    }
}

/* What a request takes of its slab, if all of the slab's pages are resident: at most a tenth of the
 * sizes take more than an eighth too much, and none more than 16 %. */
TEST(mid_sizes_waste_an_eighth)
{
    uint32_t above = 0, sizes = 0;
    for (size_t size = TINY_SIZE_MAX + 1; size <= MID_SIZE_MAX; size++) {
        const struct size_class *size_class = &hak__size_classes[size_class_of_mid(size)];
        size_t taken = size_class->slab_slices * SLICE_SIZE / size_class->objects_per_slab;
        above += 8 * taken > 9 * size;
        sizes += 1;
        REQUIRE_SIZE(100 * taken, <=, 116 * size);
    }
    REQUIRE_SIZE(10 * above, <=, sizes);
}

TEST(tables_are_consistent)
{
    assert_int_equal(hak__size_classes[0].objects_per_slab, 0);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct size_class *size_class = &hak__size_classes[class_index];
        size_t slab_bytes = size_class->slab_slices * SLICE_SIZE, size = size_class->object_size;
        assert_true(class_index == ROUND_CLASS_FIRST || size > size_class[-1].object_size);
        assert_int_equal(size % OBJECT_ALIGNMENT, 0);
        assert_in_range(size_class->slab_slices, 1, SLAB_SLICES_MAX);
        assert_int_equal(size_class->objects_per_slab, slab_bytes / size);
        assert_true(size_class->objects_per_slab >= 4);
        assert_in_range(size_class->colors, 1, slab_bytes % size / HAK_CACHE_LINE + 1);
    }
}

/* hak__mid_class is written by hand. An entry that names too large a class wastes memory, and one
 * that names too small a class hands out too little. */
TEST(mid_sizes_have_the_smallest_class_that_holds_them)
{
    for (size_t size = TINY_SIZE_MAX + 1; size <= MID_SIZE_MAX; size++) {
        uint32_t smallest = TINY_CLASS_COUNT + 1;
        while (hak__size_classes[smallest].object_size < size) {
            smallest++;
        }
        if (size_class_of_mid(size) != smallest) {
            print_error("hak__mid_class has class %u for %zu bytes\n", size_class_of_mid(size),
                        size);
        }
        assert_int_equal(size_class_of_mid(size), smallest);
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
