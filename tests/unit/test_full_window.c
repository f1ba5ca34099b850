/* SPDX-License-Identifier: MIT */
/* test_full_window.c: many huge allocations side by side are one mapping, but count as many. When
 * hakmem's own addresses are used up, too, more of them can be had all the same: a program with
 * 1,000,000 blocks of 2.1 MB got NULL at the 321,121st.
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include "region/mappings.h"

static bool is_in_window(const void *block)
{
    return (uintptr_t)block - hak__window.base < hak__window.size;
}

TEST(mappings_count_as_short_and_no_address_is_left)
{
    size_t size = hak__window.size;
    REQUIRE(hak_malloc(100) != NULL);
    mappings_add_huge(MAPPINGS_MAX);
    char *spans[64];
    size_t count = 0;
    hak__window.size = bits_align_up(hak__superslab_first.frontier, SUPERSLAB_SLICES) * SLICE_SIZE;
    while (count < COUNT_OF(spans) && is_in_window(spans[count] = hak_malloc(3 * MIB))) {
        count++; /* what was free in the window */
    }
    char *last = count == COUNT_OF(spans) ? NULL : spans[count];
    assert_non_null(last);
    memset(last, 'x', 3 * MIB);
    char *cleared = hak_calloc(3, MIB);
    assert_non_null(cleared);
    for (size_t i = 0; i < 3 * MIB; i += 512) {
        assert_int_equal(cleared[i], 0);
    }
    last = hak_realloc(last, 5 * MIB);
    assert_non_null(last);
    assert_int_equal(last[3 * MIB - 1], 'x');
    mappings_remove_huge(MAPPINGS_MAX);
    hak__window.size = size;
    hak_free(cleared);
    hak_free(last);
    while (count != 0) {
        hak_free(spans[--count]);
    }
}

TESTS(unit_start)
