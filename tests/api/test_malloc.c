/* SPDX-License-Identifier: MIT */
/* test_malloc.c: hak_malloc and hak_free: sizes, alignment, errno, usable bytes, contents. */
#include "../support.h"

static int compare_addresses(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t) * (void *const *)a;
    uintptr_t right = (uintptr_t) * (void *const *)b;
    return (left > right) - (left < right);
}

TEST(zero_sizes_are_distinct)
{
    enum { COUNT = 5000 };
    void **blocks = support_map(COUNT * sizeof *blocks);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hide(hak_malloc(0));
        assert_non_null(blocks[i]);
        assert_true(is_aligned(blocks[i], 16));
    }
    qsort(blocks, COUNT, sizeof *blocks, compare_addresses);
    for (size_t i = 1; i < COUNT; i++) {
        assert_ptr_not_equal(blocks[i - 1], blocks[i]);
    }
    FREE_ALL(blocks, COUNT);
    munmap(blocks, COUNT * sizeof *blocks);
}

TEST(impossible_sizes_fail)
{
    static const size_t sizes[] = {PTRDIFF_MAX, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096,
                                   (size_t)1 << 48};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        errno = 0;
        assert_null(hide(hak_malloc(hide_size(sizes[i]))));
        assert_int_equal(errno, ENOMEM);
    }
    void *block = hak_malloc(100); /* and life goes on */
    assert_non_null(block);
    hak_free(block);
}

static void check_and_free(void *block)
{
    size_t usable = hak_usable_size(block);
    assert_int_equal(pattern_mismatch(block, usable, usable), SIZE_MAX);
    hak_free(block);
}

/* Each block is filled to its end, and lives while later ones are made. Every other is calloc's,
 * and zero although what was freed before was not. */
TEST(every_size_to_70000)
{
    enum { ALIVE = 48 };
    void *blocks[ALIVE];
    size_t count = 0;
    for (size_t size = 0; size <= 70000; size += SUPPORT_SLOW && size > 2048 ? 7 : 1, count++) {
        void **block = &blocks[count % ALIVE];
        if (count >= ALIVE) {
            check_and_free(*block);
        }
        *block = count % 2 == 0 ? hak_malloc(size) : hak_calloc(1, size);
        assert_non_null(*block);
        assert_true(is_aligned(*block, 16) && usable_is_good(*block, size));
        assert_true(count % 2 == 0 || nonzero_offset(*block, size) == SIZE_MAX);
        pattern_fill(*block, hak_usable_size(*block), hak_usable_size(*block));
    }
    for (size_t i = 0; i < ALIVE; i++) {
        check_and_free(blocks[i]);
    }
}

TEST(null_is_freed)
{
    errno = ERRNO_UNTOUCHED;
    hak_free(NULL);
    hak_free_sized(NULL, hide_size(SIZE_MAX));
    hak_free_aligned_sized(NULL, 64, 100);
    hak_free_aligned_sized(NULL, 0, 0);
    hak_free_at(NULL, 0, 1);
    hak_free_at(NULL, 100, 1);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

TESTS(NULL)
