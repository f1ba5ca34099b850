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
    static const size_t sizes[] = {(size_t)PTRDIFF_MAX,
                                   (size_t)PTRDIFF_MAX + 1,
                                   (size_t)PTRDIFF_MAX - 1,
                                   (size_t)PTRDIFF_MAX - 4095,
                                   (size_t)PTRDIFF_MAX - MIB,
                                   SIZE_MAX,
                                   SIZE_MAX - 1,
                                   SIZE_MAX - 15,
                                   SIZE_MAX - 16,
                                   SIZE_MAX - 4095,
                                   SIZE_MAX - 4096,
                                   SIZE_MAX - 65535,
                                   SIZE_MAX - 4 * MIB,
                                   SIZE_MAX / 2 + GIB,
                                   (size_t)1 << 62,
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

/* A window of live blocks: each lives while later ones are made and filled, then its contents are
 * checked. */
enum { WINDOW = 48 };

struct window {
    void *blocks[WINDOW];
    size_t sizes[WINDOW];
    size_t next;
};

static void window_retire(struct window *window, size_t index)
{
    if (window->blocks[index] != NULL) {
        size_t usable = hak_usable_size(window->blocks[index]);
        assert_int_equal(pattern_mismatch(window->blocks[index], usable, window->sizes[index]),
                         SIZE_MAX);
        hak_free(window->blocks[index]);
        window->blocks[index] = NULL;
    }
}

static void window_allocate(struct window *window, size_t size)
{
    size_t index = window->next++ % WINDOW;
    window_retire(window, index);
    void *block = hak_malloc(size);
    assert_non_null(block);
    assert_true(is_aligned(block, 16));
    size_t usable = hak_usable_size(block);
    assert_true(usable >= size);
    assert_true(usable >= hak_good_size(size)); /* a reused span or whale may be longer */
    if (size <= 64 * KIB) {
        assert_int_equal(usable, hak_good_size(size));
    }
    pattern_fill(block, usable, size);
    window->blocks[index] = block;
    window->sizes[index] = size;
}

static void window_drain(struct window *window)
{
    for (size_t i = 0; i < WINDOW; i++) {
        window_retire(window, i);
    }
}

TEST(every_size_to_70000)
{
    struct window window = {{NULL}, {0}, 0};
    for (size_t size = 0; size <= 70000; size += SUPPORT_SLOW && size > 2048 ? 7 : 1) {
        window_allocate(&window, size);
    }
    window_drain(&window);
}

TESTS(NULL)
