/* SPDX-License-Identifier: MIT */
/* test_calloc.c: hak_calloc: zero bytes whatever lay there before, overflow, untouched memory stays
 * free.
 *
 * ctest: no-qemu
 */
#include "../support.h"

/* Clearing what was used sparsely does not make all of it resident. First: after tables that were
 * filled the next ones may get huge pages. */
TEST(sparse_tables_stay_sparse)
{
    SKIP_IF(SUPPORT_SANITIZED);
    for (size_t size = MIB; size <= 16 * MIB; size *= 4) {
        hak_trim(0);
        size_t before = rss_bytes();
        for (unsigned i = 0; i < 20; i++) {
            char *block = hide(hak_calloc(1, size));
            assert_non_null(block);
            for (size_t offset = 0; offset < size; offset += 16 * 4096) {
                assert_int_equal(block[offset], 0);
                block[offset] = 1;
            }
            hak_free(block);
            REQUIRE_SIZE(rss_bytes(), <=, before + size / 4 + MIB / 4);
        }
    }
}

TEST(overflow_fails)
{
    static const size_t factors[][2] = {{SIZE_MAX, 2},
                                        {(size_t)1 << 32, (size_t)1 << 32},
                                        {16, SIZE_MAX / 16 + 1},
                                        {1, SIZE_MAX},
                                        {(size_t)PTRDIFF_MAX / 8 + 1, 8}};
    for (size_t i = 0; i < COUNT_OF(factors); i++) {
        errno = 0;
        assert_null(hide(hak_calloc(hide_size(factors[i][0]), hide_size(factors[i][1]))));
        assert_int_equal(errno, ENOMEM);
    }
}

TEST(zero_products_are_distinct)
{
    errno = ERRNO_UNTOUCHED;
    void *a = hide(hak_calloc(0, 0));
    void *b = hide(hak_calloc(0, 100));
    void *c = hide(hak_calloc(hide_size(SIZE_MAX), 0));
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_true(a != b && b != c && a != c);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    hak_free(a);
    hak_free(b);
    hak_free(c);
}

/* Only some pages of the block are dirty, and it was grown by realloc: page tricks must not keep
 * them. */
TEST(zero_after_sparse_use)
{
    for (size_t size = 64 * KIB; size <= 16 * MIB; size = size * 2 + 4096) {
        char *block = hak_malloc(size);
        assert_non_null(block);
        for (size_t offset = 0; offset < size; offset += 3 * 4096 + 8) {
            block[offset] = 1;
        }
        block = hak_realloc(block, size + size / 2);
        assert_non_null(block);
        block[size + size / 2 - 1] = 1;
        hak_free(block);
        for (size_t i = 0; i < 3; i++) {
            size_t again = i == 0 ? size : i == 1 ? size + size / 2 : size / 2;
            block = hak_calloc(again, 1);
            assert_non_null(block);
            assert_int_equal(nonzero_offset(block, again), SIZE_MAX);
            memset(block, 1, again);
            hak_free(block);
        }
    }
}

int main(void)
{
    support_small_pages();
    return tests_run(NULL, NULL);
}
