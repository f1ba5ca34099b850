/* SPDX-License-Identifier: MIT */
/* test_window.c: region/window: where the window is, its tables, owner words.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "unit.h"

static size_t covered_superslabs(size_t slice_count)
{
    size_t superslabs = (slice_count + SUPERSLAB_SLICES - 1) / SUPERSLAB_SLICES;
    return bits_align_up(superslabs, TABLE_STEP_SUPERSLABS);
}

static int grow_tables(size_t slice_count)
{
    lock_acquire(&hak__growth_lock);
    int error = hak__window_grow_tables(slice_count);
    lock_release(&hak__growth_lock);
    return error;
}

static void check_accounts(void)
{
    assert_int_equal(hak__window_table_bytes() + hak__superslab_bytes_claimed() +
                         hak__metadata_bytes(),
                     hak__os_mapped_bytes());
}

static void check_last(size_t end)
{
    size_t last = end / SUPERSLAB_SLICES - 1;
    assert_int_equal(window_owner(end - 1), OWNER_NOBODY);
    assert_int_equal(nonzero_offset(window_slab_metadata(end - 1), HAK_CACHE_LINE), SIZE_MAX);
    assert_int_equal(nonzero_offset(superslab_at(last), sizeof(struct superslab)), SIZE_MAX);
}

static size_t tables_cover; /* superslabs */

/* First, while nothing has been claimed. */
TEST(tables_grow)
{
    REQUIRE(hak__superslab_take(0, 1, 1, FOR_SLAB).slice != SLICE_NONE);
    tables_cover = covered_superslabs(1);
    size_t last = tables_cover * SUPERSLAB_SLICES - 1;
    window_set_owner(last, 77);
    *(uint64_t *)(void *)window_slab_metadata(last) = 88;
    assert_int_equal(grow_tables(last + 1), 0); /* covers it already */
    for (size_t step = 0; step < 5; step++) {
        size_t more = tables_cover * SUPERSLAB_SLICES + 1 + step * step * 5000;
        assert_int_equal(grow_tables(more), 0);
        check_accounts();
        tables_cover = covered_superslabs(more);
        size_t end = tables_cover * SUPERSLAB_SLICES;
        for (size_t slice = last + 1; slice < end; slice++) {
            assert_int_equal(window_owner(slice), OWNER_NOBODY);
        }
        check_last(end);
    }
    assert_int_equal(window_owner(last), 77);
    assert_int_equal(*(uint64_t *)(void *)window_slab_metadata(last), 88);
    window_set_owner(last, OWNER_NOBODY);
    *(uint64_t *)(void *)window_slab_metadata(last) = 0;
}

/* The lowest byte of the lower table's last group when it covers `superslabs`. */
static uintptr_t last_group(size_t superslabs)
{
    return (uintptr_t)superslab_group((superslabs + SUPERSLAB_GROUP - 1) / SUPERSLAB_GROUP - 1);
}

/* Near a limit a lower table gives back what it has to spare, and grows by what is needed. */
TEST(spare_is_given_back)
{
    size_t page = hak__os_page_size(), more = tables_cover;
    uintptr_t used = bits_align_down(last_group(tables_cover), page), low, high;
    lock_acquire(&hak__growth_lock);
    bool given = hak__window_give_spare(tables_cover * SUPERSLAB_SLICES);
    assert_false(hak__window_give_spare(tables_cover * SUPERSLAB_SLICES));
    lock_release(&hak__growth_lock);
    assert_true(hak__window_pair(0, &low, &high));
    assert_int_equal(low, used);
    assert_true(unit_is_mapped(low) && (!given || !unit_is_mapped(low - 1)));
    void *stranger = unit_occupy(used - 2 * page, page); /* a page below can be had, no more */
    while (last_group(more) >= used) {
        more += SUPERSLAB_GROUP;
    }
    assert_int_equal(grow_tables(more * SUPERSLAB_SLICES), 0);
    assert_true(hak__window_pair(0, &low, &high));
    assert_int_equal(low, used - page);
    munmap(stranger, page);
    more += (size_t)32 * SUPERSLAB_GROUP;
    assert_int_equal(grow_tables(more * SUPERSLAB_SLICES), 0);
    tables_cover = covered_superslabs(more * SUPERSLAB_SLICES);
}

/* The upper tables of a large heap grow by huge pages, and by what is needed where these are not
 * to be had. Last of those that grow the tables. */
TEST_WITH_KNOBS(tables_of_huge_pages)
{
    SKIP_IF(hak__os_page_size() != ARCH_PAGE_SIZE_MIN);
    size_t slices = tables_cover * SUPERSLAB_SLICES, page_slices = HUGE_PAGE_SIZE / HAK_CACHE_LINE;
    assert_true(slices > page_slices);
    hak__knobs.huge_threshold = 0;
    const size_t more = TABLE_HUGE_HEAP_BYTES / SLICE_SIZE;
    hak__superslabs.claimed_slices += more; /* as if they were */
    uintptr_t next = (uintptr_t)window_slab_metadata(slices);
    uintptr_t end = bits_align_up(next + HAK_CACHE_LINE, HUGE_PAGE_SIZE);
    void *stranger = unit_occupy(end - hak__os_page_size(), hak__os_page_size());
    uint64_t calls = hak__os_calls[OS_CALL_HUGE_PAGES];
    assert_int_equal(grow_tables(slices + 1), 0); /* just what is needed, and none is whole */
    assert_int_equal(hak__os_calls[OS_CALL_HUGE_PAGES], calls);
    assert_true(unit_is_mapped(next));
    munmap(stranger, hak__os_page_size());
    assert_int_equal(grow_tables(slices + 3 * page_slices), 0);
    assert_int_equal(hak__os_calls[OS_CALL_HUGE_PAGES], calls + 1);
    end = bits_align_up((uintptr_t)window_slab_metadata(slices + 3 * page_slices), HUGE_PAGE_SIZE);
    assert_true(unit_is_mapped(end - 1) && !unit_is_mapped(end));
    assert_int_equal(nonzero_offset((void *)next, end - next), SIZE_MAX);
    hak__superslabs.claimed_slices -= more;
    assert_int_equal(grow_tables(slices + 3 * page_slices), 0);
    check_accounts();
}

CHILD(base)
{
    REQUIRE(hak__start());
    fprintf(stderr, "%zx", (size_t)hak__window.base);
}

TEST(the_place_is_random)
{
    struct child_end ends[3];
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        child_exec("base", NULL, NULL, &ends[i]);
        REQUIRE_EXIT(&ends[i], "^[0-9a-f]+$");
    }
    /* one pair may be equal, once in millions of runs */
    assert_true(strcmp(ends[0].text, ends[1].text) != 0 || strcmp(ends[1].text, ends[2].text) != 0);
}

TESTS(unit_start)
