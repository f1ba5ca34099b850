/* SPDX-License-Identifier: MIT */
/* test_left.c: region/left and large/whale_left: what is noted, until when, and what happens to
 * noted memory when it is freed.
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include "core/gate.h"
#include "large/whale_left.h"

enum { SPAN = 300000 };
#define WHALE ((size_t)5 << 20)

static struct left_change change_of(const void *block, size_t offset, size_t size,
                                    enum left_kind kind, bool undone)
{
    size_t page = hak__os_page_size();
    uintptr_t from = bits_align_up((uintptr_t)block, page) + offset;
    return (struct left_change){from, from + size, kind, undone};
}

/* As override/left_calls.c does. */
static void note(const void *block, size_t offset, size_t size, enum left_kind kind, bool undone)
{
    struct left_change change = change_of(block, offset, size, kind, undone);
    hak__left_note(&change);
    hak__whale_left_note(&change);
}

static void close_page(const void *block, size_t offset)
{
    size_t page = hak__os_page_size();
    struct left_change change = change_of(block, offset, page, LEFT_PROTECTION, false);
    REQUIRE(mprotect((void *)change.from, page, PROT_NONE) == 0);
    note(block, offset, page, LEFT_PROTECTION, false);
}

static bool is_noted(const void *block, size_t size)
{
    size_t slice = window_slice_of(block);
    return hak__left_in(slice, window_slice_of((const char *)block + size - 1) - slice + 1);
}

static bool whale_is_noted(const void *whale)
{
    lock_acquire(&hak__whale_lock);
    bool noted = hak__whale_left_on((uintptr_t)whale);
    lock_release(&hak__whale_lock);
    return noted;
}

static uint64_t maps(void)
{
    return hak__os_calls[OS_CALL_MAP];
}

/* First: nothing is noted in a program that does none of it. */
TEST(nothing)
{
    size_t page = hak__os_page_size();
    void *own = support_map(4 * page);
    note(own, 0, page, LEFT_PROTECTION, false);
    note((void *)page, 0, SIZE_MAX / 4, LEFT_PROTECTION, true);
    assert_int_equal(hak__left_kinds, 0);
    munmap(own, 4 * page);
}

TEST(a_span_is_renewed)
{
    size_t page = hak__os_page_size();
    char *span = hak_malloc(SPAN), *beside = hak_malloc(SPAN);
    memset(beside, 'b', SPAN);
    close_page(span, 17 * page);
    assert_true(is_noted(span, SPAN));
    hak_free(span);
    assert_false(is_noted(span, SPAN));
    char *again[8];
    for (size_t i = 0; i < COUNT_OF(again); i++) {
        again[i] = hak_malloc(SPAN);
        memset(again[i], 'a', SPAN); /* one of them has the page */
    }
    assert_int_equal(beside[0] & beside[SPAN - 1], 'b');
    FREE_ALL(again, COUNT_OF(again));
    hak_free(beside);
}

TEST(undone_costs_nothing)
{
    size_t page = hak__os_page_size();
    void *span = hak_malloc(SPAN);
    note(span, page, 9 * page, LEFT_PROTECTION, false);
    note(span, page, 4 * page, LEFT_PROTECTION, true);
    assert_true(is_noted(span, SPAN)); /* five pages are still changed */
    note(span, 0, 20 * page, LEFT_PROTECTION, true);
    assert_false(is_noted(span, SPAN));
    uint64_t before = maps();
    hak_free(span);
    span = hak_malloc(SPAN);
    assert_int_equal(maps(), before);
    hak_free(span);
}

/* Slabs: the memory is renewed when the last object is back. */
TEST(a_slab_is_renewed)
{
    enum { SIZE = 12000, COUNT = 64 };
    char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(SIZE);
    }
    size_t page = hak__os_page_size();
    note(blocks[20], 0, page, LEFT_PROTECTION, false);
    size_t slice = window_slice_of((char *)blocks[20] + page - 1);
    assert_true(hak__left_in(slice, 1));
    FREE_ALL(blocks, COUNT);
    hak_trim(0);
    assert_false(hak__left_in(slice, 1));
}

TEST(a_whale_is_unmapped)
{
    size_t page = hak__os_page_size();
    char *whale = hak_malloc(WHALE), *other = hak_malloc(WHALE);
    memset(other, 'o', WHALE);
    close_page(whale, 3 * page);
    assert_true(whale_is_noted(whale));
    assert_false(whale_is_noted(other));
    char *moved = hak_realloc(other, 2 * WHALE); /* resized as ever */
    assert_int_equal(moved[WHALE - 1], 'o');
    hak_free(whale);
    assert_int_equal(hak__whale_totals().cached_bytes, 0);
    whale = hak_malloc(WHALE);
    assert_false(whale_is_noted(whale));
    memset(whale, 'w', WHALE);

    note(whale, page, page, LEFT_PROTECTION, false);
    note(whale, 0, page, LEFT_PROTECTION, true); /* another page */
    assert_true(whale_is_noted(whale));
    note(whale, 0, 3 * page, LEFT_PROTECTION, true);
    assert_false(whale_is_noted(whale));

    note(whale, page, page, LEFT_PROTECTION, false);
    char *grown = hak_realloc(whale, 3 * WHALE); /* by a copy */
    assert_int_equal(grown[WHALE - 1], 'w');
    assert_false(whale_is_noted(grown));
    hak_free(grown);
    hak_free(moved);
}

/* With two kinds, it is not known what is undone. */
TEST(two_kinds)
{
    size_t page = hak__os_page_size();
    char *span = hak_malloc(SPAN), *whale = hak_malloc(WHALE);
    for (int i = 0; i < 2; i++) {
        char *block = i == 0 ? span : whale;
        note(block, 0, page, LEFT_FORK, false);
        note(block, page, page, LEFT_PROTECTION, false);
        note(block, 0, 2 * page, LEFT_PROTECTION, true);
    }
    assert_true(is_noted(span, SPAN));
    assert_true(whale_is_noted(whale));
    hak_free(span);
    hak_free(whale);
}

/* A handler that has interrupted its own thread under the lock does not wait for ever, and what it
 * did is not forgotten. Last: from then on all whales are unmapped. */
TEST(the_lock_is_held)
{
    char *whale = hak_malloc(WHALE);
    memset(whale, 'w', WHALE);
    hak_trim(0);
    lock_acquire(&hak__whale_lock);
    uint32_t inside = hak__inside;
    note(whale, 0, hak__os_page_size(), LEFT_PROTECTION, false);
    assert_int_equal(hak__inside, inside);
    lock_release(&hak__whale_lock);
    hak_free(whale);
    assert_int_equal(hak__whale_totals().cached_bytes, 0);
}

TESTS(unit_start)
