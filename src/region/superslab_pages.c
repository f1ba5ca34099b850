/* superslab_pages.c: which pages a superslab has. See superslab.h.
 *
 *   claimed, earned -> HUGE -> a part goes back -> SPLIT -> all in use, or nothing there -> HUGE
 *   claimed, not earned -> SMALL;  unmapped -> SMALL
 *
 * The kernel joins small pages where huge ones are welcome, in the background (khugepaged) or at a
 * touch, and what had been given back between them is resident again. So a superslab of which a
 * part goes back has small pages until no part of it is away: then huge ones are welcome anew, as
 * they are once it is wholly clean (docs/decisions/0064).
 */
#include "region/superslab.h"

#include "base/bits.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/huge.h"
#include "region/window.h"

static bool superslab_is_dense(size_t index)
{
    void *start = window_slice_address(index * SUPERSLAB_SLICES);
    return hak__os_resident_percent(start, SUPERSLAB_SIZE) >= HUGE_DENSE_PERCENT;
}

/* Huge pages save most of the faults' time, but what nobody touches is resident in them. Whether
 * the program touches what it takes is seen in superslabs of small pages, the last but one (in the
 * last are slabs still being carved): when most of it is resident the next superslabs get huge
 * pages, but for one now and then, to look again; half way to the next the last itself is looked
 * at. What one-slice slabs claim is nearly always dense; of longer runs, buffers, many a program
 * fills little, so both kinds are asked that there are. Under GROWTH. */
static bool superslab_earns_huge(void)
{
    struct superslab_table *table = &hak__superslabs;
    size_t row = table->count / 2 < HUGE_IN_A_ROW_MIN ? HUGE_IN_A_ROW_MIN : table->count / 2;
    if (hak__superslab_bytes_claimed() < hak__knobs.huge_threshold || table->huge_in_a_row >= row ||
        hak__os_page_size() != HUGE_OS_PAGE_SIZE) {
        return false;
    }
    for (size_t kind = 0; kind < 2; kind++) {
        size_t probe = table->small_pages[kind][table->huge_in_a_row >= row / 2];
        if (probe != 0 && !superslab_is_dense(probe - 1)) {
            return false;
        }
    }
    return true;
}

/* It has huge pages now, all of which are resident at a touch: no evidence. Under GROWTH. */
static void superslab_forget_probe(size_t index)
{
    for (size_t kind = 0; kind < 2; kind++) {
        size_t *small_pages = hak__superslabs.small_pages[kind];
        small_pages[0] = small_pages[0] == index + 1 ? 0 : small_pages[0];
        small_pages[1] = small_pages[1] == index + 1 ? small_pages[0] : small_pages[1];
    }
}

/* Neighbours of the superslab whose pages are others than its own would be. Under REGION. */
static size_t superslab_borders(size_t index, bool huge)
{
    size_t borders = 0, count = hak__superslabs.count;
    if (index < count) { /* else it is counted when the table reaches it */
        borders += index != 0 && (superslab_at(index - 1)->huge != 0) != huge;
        borders += index + 1 < count && (superslab_at(index + 1)->huge != 0) != huge;
    }
    return borders;
}

/* Its pages are others than those of the superslab before it. */
static bool superslab_differs(size_t index)
{
    return index != 0 && superslab_at(index)->huge != superslab_at(index - 1)->huge;
}

void hak__superslab_reach(size_t index)
{
    struct superslab_table *table = &hak__superslabs;
    if (index < table->count) {
        return;
    }
    table->page_borders += superslab_differs(table->count);
    if (index != table->count) { /* those between are nobody's, of small pages */
        table->page_borders += superslab_differs(index);
    }
    hak__superslab_index_reach(index);
    table->count = index + 1;
}

void hak__superslab_set_pages(size_t index, enum superslab_pages pages)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    bool huge = pages == SUPERSLAB_HUGE;
    if ((superslab->huge != 0) != huge) {
        table->page_borders += superslab_borders(index, huge);
        table->page_borders -= superslab_borders(index, !huge);
        superslab->huge = huge;
    }
    superslab->split = pages == SUPERSLAB_SPLIT;
    if (index < table->count) { /* else the index does not reach to it yet */
        hak__superslab_index_maps(index);
    }
}

/* Each border is a mapping, of which a process may have 65,530. Under REGION. */
static bool superslab_may_turn(size_t index, size_t borders_max)
{
    bool huge = superslab_at(index)->huge == 0;
    size_t now = superslab_borders(index, !huge), then = superslab_borders(index, huge);
    return then <= now || hak__superslabs.page_borders + then - now <= borders_max;
}

static size_t superslab_borders_max(void)
{
    size_t most = PAGE_BORDERS_MIN + hak__superslabs.count / PAGE_BORDERS_PER;
    return most < PAGE_BORDERS_MAX ? most : PAGE_BORDERS_MAX;
}

void hak__superslab_choose_pages(size_t first, uint32_t claimed, uint32_t count)
{
    struct superslab_table *table = &hak__superslabs;
    size_t index = first / SUPERSLAB_SLICES;
    void *start = window_slice_address(first);
    bool whole = claimed == SUPERSLAB_SLICES;
    bool huge = whole && superslab_earns_huge() && hak__huge_ask_untouched(start) == 0;
    /* Whatever the machine prefers. The first half by itself has no room for a huge page, and gets
     * none by the second. An error leaves what the machine prefers. */
    if (!huge && first % SUPERSLAB_SLICES + claimed > SUPERSLAB_SLICES / 2) {
        hak__os_small(start, claimed * SLICE_SIZE);
    }
    lock_acquire(&hak__region_lock);
    hak__superslab_set_pages(index, huge ? SUPERSLAB_HUGE : SUPERSLAB_SMALL);
    lock_release(&hak__region_lock);
    if (huge) {
        table->huge_in_a_row++;
        superslab_forget_probe(index);
    } else if (whole) {
        size_t *small_pages = table->small_pages[count > 1];
        small_pages[0] = small_pages[1];
        small_pages[1] = index + 1;
        table->huge_in_a_row = 0;
    }
}

/* The superslabs from the result on to `index` have huge pages; it alone, unless that would be a
 * border too many. Under REGION. */
static size_t superslab_split_first(size_t index)
{
    size_t first = index;
    if (!superslab_may_turn(index, superslab_borders_max())) {
        while (first != 0 && superslab_at(first - 1)->huge != 0) {
            first--;
        }
    }
    return first;
}

bool hak__superslab_split(size_t index)
{
    /* GROWTH: none before it is unmapped meanwhile. Nobody is waited for: there is a next pass. */
    bool growth = lock_try(&hak__growth_lock);
    lock_acquire(&hak__region_lock);
    bool huge = superslab_at(index)->huge != 0;
    size_t first = huge ? superslab_split_first(index) : index;
    bool may_split = huge && (first == index || growth);
    lock_release(&hak__region_lock);
    if (may_split && hak__os_small(window_slice_address(first * SUPERSLAB_SLICES),
                                   (index + 1 - first) * SUPERSLAB_SIZE) == 0) {
        huge = false;
        /* after the call: who takes a slice until then makes all of them dirty */
        lock_acquire(&hak__region_lock);
        for (; first <= index; first++) {
            hak__superslab_set_pages(first, SUPERSLAB_SPLIT);
        }
        lock_release(&hak__region_lock);
    }
    if (growth) {
        lock_release(&hak__growth_lock);
    }
    return !huge;
}

bool hak__superslab_may_join(size_t index)
{
    return superslab_is_to_join(superslab_at(index)) &&
           superslab_may_turn(index, superslab_borders_max() / 2);
}

void hak__superslab_join(size_t index)
{
    /* GROWTH: it is not unmapped meanwhile. Nobody is waited for: there is a next pass. */
    if (!hak__huge_is_quick() || !lock_try(&hak__growth_lock)) {
        return;
    }
    lock_acquire(&hak__region_lock);
    bool may_join = hak__superslab_may_join(index);
    if (may_join) { /* before the call: who takes a slice then makes all of them dirty */
        hak__superslab_set_pages(index, SUPERSLAB_HUGE);
    }
    lock_release(&hak__region_lock);
    if (may_join) {
        hak__os_huge(window_slice_address(index * SUPERSLAB_SLICES), SUPERSLAB_SIZE);
    }
    lock_release(&hak__growth_lock);
}
