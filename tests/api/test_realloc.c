/* SPDX-License-Identifier: MIT */
/* test_realloc.c: hak_realloc and hak_reallocarray: contents kept over every pair of tiers, growth,
 * failures. */
#include "../support.h"

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

/* There is nothing below the least class: no reason to move. */
TEST(the_least_stays)
{
    char *block = hak_malloc(16);
    for (size_t size = 16; size >= 1; size--) {
        assert_ptr_equal(hak_realloc(block, size), block);
    }
    hak_free(block);
}

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

TESTS(NULL)
