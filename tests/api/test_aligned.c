/* SPDX-License-Identifier: MIT */
/* test_aligned.c: the seven aligned allocators: every alignment to 1 GiB, bad ones, huge sizes. */
#include "../support.h"

#define ALIGNMENT_MAX GIB

static void *aligned_by_posix(size_t alignment, size_t size)
{
    void *result = (void *)1;
    errno = ERRNO_UNTOUCHED;
    int error = hak_posix_memalign(&result, alignment < 8 ? 8 : alignment, size);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    REQUIRE(error == 0);
    return result;
}

static void *aligned_by_c11(size_t alignment, size_t size)
{
    return hak_aligned_alloc(alignment, size);
}

static void *aligned_by_memalign(size_t alignment, size_t size)
{
    return hak_memalign(alignment, size);
}

static void *aligned_by_calloc(size_t alignment, size_t size)
{
    return size % 2 == 0 ? hak_aligned_calloc(alignment, 2, size / 2)
                         : hak_aligned_calloc(alignment, size, 1);
}

static void *(*const allocators[])(size_t, size_t) = {aligned_by_posix, aligned_by_c11,
                                                      aligned_by_memalign, aligned_by_calloc};

static void block_check(void *block, size_t alignment, size_t size)
{
    assert_non_null(block);
    assert_true(is_aligned(block, alignment));
    assert_true(is_aligned(block, 16));
    assert_true(hak_usable_size(block) >= size);
    assert_true(hak_owns(block));
}

TEST(all_alignments)
{
    enum { BLOCKS = 3 };
    for (size_t alignment = 1; alignment <= ALIGNMENT_MAX; alignment *= 2) {
        const size_t sizes[] = {0,     17,        1000,
                                70000, alignment, alignment < 8 * MIB ? alignment + 1 : 9};
        for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(allocators); i++) {
            void *blocks[BLOCKS];
            size_t size = sizes[i % COUNT_OF(sizes)], filled = size > 8 * MIB ? 4096 : size;
            for (unsigned j = 0; j < BLOCKS; j++) {
                errno = ERRNO_UNTOUCHED;
                blocks[j] = allocators[i / COUNT_OF(sizes)](alignment, size);
                block_check(blocks[j], alignment, size);
                assert_int_equal(errno, ERRNO_UNTOUCHED);
                pattern_fill(blocks[j], filled, j);
            }
            for (unsigned j = 0; j < BLOCKS; j++) {
                assert_int_equal(pattern_mismatch(blocks[j], filled, j), SIZE_MAX);
                hak_free(blocks[j]);
            }
        }
    }
}

/* In memory that was used before. */
TEST(calloc_is_zero)
{
    for (size_t alignment = 1; alignment <= 8 * MIB; alignment *= 16) {
        for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
            size_t size = tier_sizes[i];
            for (size_t round = 0; round < 2; round++) {
                unsigned char *block = hak_aligned_calloc(alignment, 1, size);
                block_check(block, alignment, size);
                for (size_t j = 0; j < size; j++) {
                    REQUIRE(block[j] == 0);
                }
                memset(block, 0xa5, size);
                hak_free(block);
            }
        }
    }
}

TEST(calloc_failures)
{
    errno = 0;
    assert_null(hide(hak_aligned_calloc(hide_size(48), 1, 100)));
    assert_int_equal(errno, EINVAL);
    for (size_t alignment = 1; alignment <= GIB; alignment *= 32) {
        errno = 0;
        assert_null(hide(hak_aligned_calloc(alignment, hide_size(SIZE_MAX / 3 + 1), 3)));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(hide(hak_aligned_calloc(alignment, hide_size(SIZE_MAX), 1)));
        assert_int_equal(errno, ENOMEM);
    }
}

/* A quarter at most of the request rounded up to its alignment, and of any request of four times
 * its alignment; above 32 KiB the rest of the last slice, which stays untouched. Blocks side by
 * side, each filled. */
TEST(waste_is_a_quarter_at_most)
{
    enum { BLOCKS = 3 };
    for (size_t alignment = 128; alignment <= 4096; alignment *= 2) {
        for (size_t size = 1024; size <= 65536;
             size += size % 256 == 0 ? 1 : (SUPPORT_SLOW ? 1023 : 255)) {
            size_t rounded = (size + alignment - 1) / alignment * alignment;
            size_t most = size >= 4 * alignment ? size + size / 4 : rounded + rounded / 4;
            most = size > 32768 ? 65536 : most;
            void *blocks[BLOCKS];
            for (unsigned j = 0; j < BLOCKS; j++) {
                blocks[j] = allocators[j % COUNT_OF(allocators)](alignment, size);
                block_check(blocks[j], alignment, size);
                REQUIRE_SIZE(hak_usable_size(blocks[j]), <=, most);
                pattern_fill(blocks[j], hak_usable_size(blocks[j]), j);
            }
            for (unsigned j = 0; j < BLOCKS; j++) {
                assert_int_equal(pattern_mismatch(blocks[j], hak_usable_size(blocks[j]), j),
                                 SIZE_MAX);
                hak_free(blocks[j]);
            }
        }
    }
}

TEST(bad_alignments)
{
    static const size_t not_powers[] = {0,  3,  5,   6,    7,    9,       12,
                                        24, 48, 100, 4095, 4097, 3 * MIB, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(not_powers); i++) {
        void *result = (void *)0x1234;
        size_t alignment = hide_size(not_powers[i]);
        errno = ERRNO_UNTOUCHED;
        assert_int_equal(hak_posix_memalign(&result, alignment, 64), EINVAL);
        assert_int_equal(hak_posix_memalign(&result, alignment, 0), EINVAL);
        assert_ptr_equal(result, (void *)0x1234);
        assert_int_equal(errno, ERRNO_UNTOUCHED);
        errno = 0;
        assert_null(hide(hak_aligned_alloc(alignment, 64)));
        assert_int_equal(errno, EINVAL);
    }
    for (size_t alignment = 1; alignment < sizeof(void *); alignment *= 2) {
        void *result = (void *)0x1234; /* a power of two, but no multiple of a pointer's size */
        assert_int_equal(hak_posix_memalign(&result, alignment, 64), EINVAL);
        assert_ptr_equal(result, (void *)0x1234);
    }
}

TEST(memalign_rounds_the_alignment_up)
{
    static const size_t pairs[][2] = {{0, 16}, {3, 16}, {17, 32}, {4097, 8192}, {3 * MIB, 4 * MIB}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        errno = ERRNO_UNTOUCHED;
        void *block = hak_memalign(hide_size(pairs[i][0]), 100);
        block_check(block, pairs[i][1], 100);
        assert_int_equal(errno, ERRNO_UNTOUCHED);
        hak_free(block);
    }
    errno = 0; /* nothing to round up to */
    assert_null(hide(hak_memalign(hide_size(((size_t)1 << 63) + 1), 100)));
    assert_int_equal(errno, EINVAL);
}

static void require_enomem(void *result)
{
    assert_null(hide(result));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
}

TEST(impossible_sizes_fail)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096, SIZE_MAX - GIB,
                                   PTRDIFF_MAX};
    errno = 0;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t size = hide_size(sizes[i]);
        for (size_t alignment = 8; alignment <= ALIGNMENT_MAX; alignment *= 8) {
            void *result = (void *)0x1234;
            require_enomem(hak_aligned_alloc(alignment, size));
            require_enomem(hak_memalign(alignment, size));
            errno = ERRNO_UNTOUCHED;
            assert_int_equal(hak_posix_memalign(&result, alignment, size), ENOMEM);
            assert_ptr_equal(result, (void *)0x1234);
            assert_int_equal(errno, ERRNO_UNTOUCHED);
            errno = 0;
        }
        require_enomem(hak_valloc(size));
        require_enomem(hak_pvalloc(size));
    }
    for (unsigned bits = 48; bits < 64;
         bits++) { /* a fine alignment that no address space can give */
        void *result = (void *)0x1234;
        require_enomem(hak_aligned_alloc(hide_size((size_t)1 << bits), 1));
        assert_null(hide(hak_memalign(hide_size((size_t)1 << bits), 1)));
        assert_true(errno == ENOMEM ||
                    (errno == EINVAL && bits >= 62)); /* glibc's limit of a bad alignment */
        errno = 0;
        assert_int_equal(hak_posix_memalign(&result, hide_size((size_t)1 << bits), 1), ENOMEM);
        assert_ptr_equal(result, (void *)0x1234);
    }
}

TESTS(NULL)
