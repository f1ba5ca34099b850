/* SPDX-License-Identifier: MIT */
/* test_realloc.c: hak_realloc, hak_reallocarray, hak_resize and hak_aligned_realloc: contents kept
 * over every pair of tiers, growth, failures. */
#include "../support.h"

#include "hakmem/heap.h"
#include "hakmem/profile.h"

TEST(size_zero_frees)
{
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        size_t before = stats_now().objects_in_use_count;
        for (unsigned shape = 0; shape < 3; shape++) {
            void *block = hak_malloc(tier_sizes[i]);
            assert_non_null(block);
            errno = ERRNO_UNTOUCHED;
            void *result = shape == 0   ? hak_realloc(block, 0)
                           : shape == 1 ? hak_reallocarray(block, 0, 8)
                                        : hak_reallocarray(block, hide_size(SIZE_MAX), 0);
            assert_null(hide(result));
            assert_int_equal(errno, ERRNO_UNTOUCHED);
        }
        assert_int_equal(stats_now().objects_in_use_count, before);
    }
}

TEST(all_pairs_of_tiers)
{
    for (size_t from = 0; from < COUNT_OF(tier_sizes); from++) {
        for (size_t to = 1; to < COUNT_OF(tier_sizes); to++) {
            size_t old_size = tier_sizes[from];
            size_t new_size = tier_sizes[to];
            uint64_t seed = from * 100 + to;
            void *neighbour = hak_malloc(old_size);
            void *block = hak_malloc(old_size);
            assert_non_null(neighbour);
            assert_non_null(block);
            size_t old_usable = hak_usable_size(block); /* what may be written must be kept, too */
            pattern_fill(block, old_usable, seed);
            errno = ERRNO_UNTOUCHED;
            block = hak_realloc(block, new_size);
            assert_non_null(block);
            assert_int_equal(errno, ERRNO_UNTOUCHED);
            assert_true(is_aligned(block, 16));
            size_t usable = hak_usable_size(block);
            assert_true(usable >= new_size);
            size_t kept = old_usable < new_size ? old_usable : new_size;
            kept = kept < 8 ? kept
                            : kept & ~(size_t)7; /* whole words: the pattern's last bytes differ */
            assert_int_equal(pattern_mismatch(block, kept, seed), SIZE_MAX);
            pattern_fill(block, usable, seed + 1);
            hak_free(neighbour);
            assert_int_equal(pattern_mismatch(block, usable, seed + 1), SIZE_MAX);
            hak_free(block);
        }
    }
}

#ifndef HAK_SECURE /* whose objects have a tail */
/* There is nothing below the least class: no reason to move. */
TEST(the_least_stays)
{
    char *block = hak_malloc(16);
    for (size_t size = 16; size >= 1; size--) {
        assert_ptr_equal(hak_realloc(block, size), block);
    }
    hak_free(block);
}
#endif

TEST(failure_keeps_the_block)
{
    static const size_t impossible[] = {
        SIZE_MAX,        SIZE_MAX - 15,   SIZE_MAX - 4096, (size_t)PTRDIFF_MAX,
        (size_t)1 << 63, (size_t)1 << 62, (size_t)1 << 48};
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        assert_non_null(block);
        size_t usable = hak_usable_size(block);
        pattern_fill(block, usable, i);
        for (size_t j = 0; j < COUNT_OF(impossible); j++) {
            errno = 0;
            assert_null(hide(hak_realloc(block, hide_size(impossible[j]))));
            assert_int_equal(errno, ENOMEM);
            errno = 0;
            assert_null(hide(hak_reallocarray(hide(block), hide_size(impossible[j]), 1)));
            assert_int_equal(errno, ENOMEM);
        }
        assert_int_equal(hak_usable_size(block), usable);
        assert_int_equal(pattern_mismatch(block, usable, i), SIZE_MAX);
        hak_free(block);
    }
    errno = 0;
    assert_null(hide(hak_realloc(NULL, hide_size(SIZE_MAX))));
    assert_int_equal(errno, ENOMEM);
}

TEST(reallocarray_overflow)
{
    static const size_t factors[][2] = {{SIZE_MAX, 2},
                                        {2, SIZE_MAX},
                                        {(size_t)1 << 32, (size_t)1 << 32},
                                        {SIZE_MAX / 16 + 1, 16},
                                        {SIZE_MAX / 3 + 1, 3}};
    char *block = hak_reallocarray(NULL, 10, 10);
    assert_non_null(block);
    memset(block, 'x', 100);
    for (size_t i = 0; i < COUNT_OF(factors); i++) {
        errno = 0;
        assert_null(hide(
            hak_reallocarray(hide(block), hide_size(factors[i][0]), hide_size(factors[i][1]))));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(
            hide(hak_reallocarray(NULL, hide_size(factors[i][0]), hide_size(factors[i][1]))));
        assert_int_equal(errno, ENOMEM);
    }
    block = hak_reallocarray(block, 1000, 10);
    assert_non_null(block);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(block[i], 'x');
    }
    hak_free(block);
}

TEST(shrinking_gives_memory_back)
{
    SKIP_IF(SUPPORT_SANITIZED);
    size_t before = rss_bytes();
    for (size_t size = 64 * MIB; size >= 2 * MIB; size /= 4) {
        for (size_t small = 100; small < size; small *= 40) {
            char *block = hak_malloc(size);
            assert_non_null(block);
            memset(block, 1, size);
            block = hak_realloc(block, small);
            assert_non_null(block);
            hak_trim(0);
            REQUIRE_SIZE(rss_bytes(), <=, before + small + small / 4 + 4 * MIB);
            hak_free(block);
        }
    }
}

/* --- in place --- */

static bool resize(void *block, size_t size)
{
    errno = ERRNO_UNTOUCHED;
    bool done = hak_resize(block, size);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_true(!done || hak_usable_size(block) >= size);
    return done;
}

TEST(resize_grows_into_what_is_usable)
{
    for (size_t i = 1; i < COUNT_OF(tier_sizes); i++) {
        char *block = hak_malloc(tier_sizes[i]);
        assert_non_null(block);
        size_t usable = hak_usable_size(block);
        pattern_fill(block, usable, i);
        assert_true(resize(block, usable));
        assert_false(resize(block, hide_size(SIZE_MAX)));
        assert_false(resize(block, hide_size((size_t)PTRDIFF_MAX)));
        assert_false(resize(block, 0));
        assert_true(hak_usable_size(block) >= usable);
        assert_int_equal(pattern_mismatch(block, usable & ~(size_t)7, i), SIZE_MAX);
        hak_free_sized(block, usable);
    }
    assert_false(resize(NULL, 100));
}

/* Each block grows as far as it can, step by step, beside blocks that move out of its way or do
 * not; then it shrinks. */
TEST(resize_keeps_place_and_contents)
{
    size_t grown = 0;
    for (size_t i = 1; i < COUNT_OF(tier_sizes); i++) {
        size_t size = tier_sizes[i];
        char *block = hak_malloc(size), *neighbour = hak_malloc(size);
        assert_true(block != NULL && neighbour != NULL);
        pattern_fill(block, size, i);
        pattern_fill(neighbour, size, i + 1);
        size_t next = size + size / 3 + 1;
        for (; next < 16 * size + 100 && resize(block, next); next += next / 3 + 1) {
            memset(block + size, 'x', next - size); /* to its end */
            grown += size > 65664;
        }
        assert_int_equal(pattern_mismatch(block, size & ~(size_t)7, i), SIZE_MAX);
        assert_int_equal(pattern_mismatch(neighbour, size, i + 1), SIZE_MAX);
        for (next = size; next != 0; next /= 3) {
            assert_true(resize(block, next));
            assert_int_equal(pattern_mismatch(block, next & ~(size_t)7, i), SIZE_MAX);
        }
        assert_true(resize(block, 1));
        hak_free_sized(block, 1);
        hak_free(neighbour);
    }
#ifdef HAK_SECURE
    const bool secure = true; /* there are closed pages behind large blocks */
#else
    const bool secure = false;
#endif
    assert_true(grown != 0 || secure || SUPPORT_SLOW);
}

TEST(resize_gives_memory_back)
{
    SKIP_IF(SUPPORT_SANITIZED);
    /* With tiny limits the secure form soon runs out of mappings. Then a large block lies in whole
     * superslabs, which it keeps when it shrinks. */
    SKIP_IF(HAK_LEVEL >= 2);
    size_t before = rss_bytes();
    char *blocks[] = {hak_malloc(64 * MIB), hak_malloc(2 * MIB)};
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        memset(blocks[i], 1, hak_usable_size(blocks[i]));
        assert_true(resize(blocks[i], 100 * KIB));
    }
    hak_trim(0);
    REQUIRE_SIZE(rss_bytes(), <=, before + 4 * MIB);
    FREE_ALL(blocks, COUNT_OF(blocks));
}

/* While samples are taken, each block that may be one. */
TEST(resize_of_samples)
{
    assert_int_equal(hak_profile_start(1), 0);
    for (size_t round = 0; round < (SUPPORT_SLOW ? 5 : 50); round++) {
        for (size_t i = 1; i < COUNT_OF(tier_sizes); i++) {
            size_t size = tier_sizes[i];
            char *block = hak_malloc(size);
            assert_non_null(block);
            assert_true(resize(block, size));
            assert_true(resize(block, size / 2 + 1));
            hak_free_sized(block, size / 2 + 1);
        }
    }
    hak_profile_stop();
}

/* --- aligned --- */

TEST(aligned_realloc_of_all_pairs)
{
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 64) {
        for (size_t from = 0; from < COUNT_OF(tier_sizes); from++) {
            for (size_t to = 1; to < COUNT_OF(tier_sizes); to++) {
                size_t old_size = tier_sizes[from], new_size = tier_sizes[to];
                void *block = from % 3 == 0 ? hak_malloc(old_size)
                                            : hak_aligned_realloc(NULL, alignment, old_size);
                assert_non_null(block);
                pattern_fill(block, old_size, from);
                errno = ERRNO_UNTOUCHED;
                block = hak_aligned_realloc(block, alignment, new_size);
                assert_int_equal(errno, ERRNO_UNTOUCHED);
                assert_non_null(block);
                assert_true(is_aligned(block, alignment) && is_aligned(block, 16));
                assert_true(hak_usable_size(block) >= new_size);
                size_t kept = old_size < new_size ? old_size : new_size;
                assert_int_equal(pattern_mismatch(block, kept & ~(size_t)7, from), SIZE_MAX);
                hak_free_aligned_sized(block, alignment, new_size);
            }
        }
    }
}

TEST(aligned_realloc_failures)
{
    static const size_t not_powers[] = {0, 3, 48, SIZE_MAX};
    size_t before = stats_now().objects_in_use_count;
    void *block = hak_aligned_alloc(256, 1000);
    assert_non_null(block);
    pattern_fill(block, 1000, 1);
    for (size_t i = 0; i < COUNT_OF(not_powers); i++) {
        errno = 0;
        assert_null(hide(hak_aligned_realloc(hide(block), hide_size(not_powers[i]), 2000)));
        assert_int_equal(errno, EINVAL);
    }
    errno = 0;
    assert_null(hide(hak_aligned_realloc(hide(block), 256, hide_size(SIZE_MAX))));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(pattern_mismatch(block, 1000, 1), SIZE_MAX);
    assert_null(hide(hak_aligned_realloc(block, 256, 0))); /* frees it */
    assert_int_equal(stats_now().objects_in_use_count, before);
}

/* A block of a heap stays in the heap. */
TEST(aligned_realloc_in_a_heap)
{
    hak_heap *heap = hak_heap_create(NULL);
    char *block = hak_heap_malloc(heap, 100);
    assert_non_null(block);
    pattern_fill(block, 100, 1);
    assert_false(resize(block, 5000));
    block = hak_aligned_realloc(block, 512, 5000);
    assert_true(block != NULL && is_aligned(block, 512) && hak_heap_owns(heap, block));
    assert_int_equal(pattern_mismatch(block, 96, 1), SIZE_MAX);
    hak_heap_free(heap, block);
    hak_heap_destroy(heap);
}

TESTS(NULL)
