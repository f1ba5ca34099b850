/* SPDX-License-Identifier: MIT */
/* test_query.c: hak_owns, hak_good_size, hak_usable_size: questions that must never crash. */
#include "../support.h"

static int global_variable;

TEST(owns_every_byte)
{
    errno = ERRNO_UNTOUCHED;
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        char *block = hak_malloc(tier_sizes[i]);
        assert_non_null(block);
        size_t usable = hak_usable_size(block);
        size_t step = usable < 100000 ? 1 : 4093;
        for (size_t offset = 0; offset < usable; offset += step) {
            assert_true(hak_owns(block + offset));
        }
        assert_true(hak_owns(block + usable - 1));
        hak_free(block);
    }
    char *aligned = hak_memalign(64 * MIB, 5 * MIB);
    assert_non_null(aligned);
    assert_true(hak_owns(aligned));
    assert_true(hak_owns(aligned + 5 * MIB - 1));
    hak_free(aligned);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

TEST(owns_nothing_else)
{
    static const uintptr_t odd[] = {0, 4096, UINTPTR_MAX, (uintptr_t)1 << 62, (uintptr_t)1 << 47};
    int local = 0;
    char *mapped = support_map(MIB);
    assert_false(hak_owns(NULL));
    assert_false(hak_owns(&local));
    assert_false(hak_owns(&global_variable));
    assert_false(hak_owns("text"));
    assert_false(hak_owns(&errno));
    assert_false(hak_owns(mapped));
    assert_false(hak_owns(mapped + MIB - 1));
    assert_false(hak_owns((const void *)(uintptr_t)&hak_version));
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        assert_false(hak_owns((const void *)odd[i]));
    }
    munmap(mapped, MIB);
}

TEST(good_size_is_a_rounding)
{
    errno = ERRNO_UNTOUCHED;
    size_t last = 0;
    for (size_t size = 0; size <= 5 * MIB; size += size < 70000 ? 1 : 509) {
        size_t good = hak_good_size(size);
        assert_true(good >= size && good >= last);
        assert_int_equal(hak_good_size(good), good);
        /* At most two thirteenths are lost, and 15 bytes; above the mid tier at most a slice. */
        size_t waste = size <= 65664 ? size * 2 / 13 + 16 : 65536;
        assert_true(good - size <= waste);
        last = good;
    }
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

TEST(good_size_of_the_impossible)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1,
                                   (size_t)1 << 63};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(hak_good_size(hide_size(sizes[i])), SIZE_MAX);
    }
    for (unsigned bits = 0; bits < 47; bits++) {
        size_t good = hak_good_size((size_t)1 << bits);
        assert_true(good >= (size_t)1 << bits && good < (size_t)1 << 62);
    }
}

TEST(usable_size)
{
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak_usable_size(NULL), 0);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        assert_non_null(block);
        size_t usable = hak_usable_size(block);
        assert_true(usable_is_good(block, tier_sizes[i]));
        memset(block, 0xff, usable); /* as programs under _FORTIFY_SOURCE=3 do */
        assert_int_equal(hak_usable_size(block), usable);
        void *same = hak_realloc(block, usable == 0 ? 1 : usable);
        assert_ptr_equal(hide(same), hide(block)); /* nothing to do */
        hak_free(same);
    }
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

TESTS(NULL)
