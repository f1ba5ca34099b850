/* SPDX-License-Identifier: MIT */
/* test_sized_free.c: the sized frees and the call-site pair free what they are told, and keep
 * errno. */
#include "../support.h"

TEST(null_does_nothing)
{
    errno = ERRNO_UNTOUCHED;
    hak_free_sized(NULL, 0);
    hak_free_sized(NULL, 100);
    hak_free_sized(NULL, hide_size(SIZE_MAX));
    hak_free_aligned_sized(NULL, 64, 100);
    hak_free_aligned_sized(NULL, 0, 0);
    hak_free_at(NULL, 0, 1);
    hak_free_at(NULL, 100, 1);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

/* Every way to get a block of `size` bytes that free_sized may take. */
static void *block_make(size_t size, unsigned way)
{
    switch (way) {
    case 0:
        return hak_malloc(size);
    case 1:
        return hak_calloc(1, size);
    case 2:
        return hak_realloc(NULL, size);
    case 3:
        return hak_realloc(hak_malloc(size / 2), size == 0 ? 1 : size);
    case 4:
        return hak_realloc(hak_malloc(size * 2 + 5), size == 0 ? 1 : size);
    case 5:
        return hak_realloc(hak_memalign(256, size / 3), size == 0 ? 1 : size);
    default:
        return hak_alloc_at(size, 0x5173 + way);
    }
}

static void size_check(size_t size)
{
    enum { WAYS = 7, COPIES = 3 };
    for (unsigned way = 0; way < WAYS; way++) {
        void *blocks[COPIES];
        for (unsigned i = 0; i < COPIES; i++) {
            blocks[i] = block_make(size, way);
            assert_non_null(blocks[i]);
            memset(blocks[i], (int)i, size);
        }
        errno = ERRNO_UNTOUCHED;
        size_t given = size == 0 && way >= 3 && way <= 5 ? 1 : size;
        hak_free_sized(blocks[1], given);
        hak_free_at(blocks[0], given, 42);
        hak_free_at(blocks[2], 0, 42);
        assert_int_equal(errno, ERRNO_UNTOUCHED);
    }
}

TEST(every_way_of_allocating)
{
    struct hak_stats before = stats_now();
    for (size_t size = 0; size <= 2100; size += SUPPORT_SLOW ? 3 : 1) {
        size_check(size);
    }
    for (size_t size = 2100; size <= 70000; size += 333) {
        size_check(size);
    }
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        size_check(tier_sizes[i]);
    }
    struct hak_stats after = stats_now();
    assert_int_equal(after.objects_in_use_count, before.objects_in_use_count);
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
}

TESTS(NULL)
