/* SPDX-License-Identifier: MIT */
/* superslab_pages.c: chooses huge or small pages for each superslab. The rules are in huge_pages.h.
 *
 *   claimed, earned -> HUGE -> a part is purged -> SPLIT -> all of it is purged -> HUGE
 *   claimed, not earned -> SMALL;  unmapped -> SMALL
 *
 * Why SPLIT: where huge pages are allowed, the kernel replaces small pages by huge ones, in the
 * background (khugepaged) or at a touch. Purged memory between them is then resident again. So a
 * superslab of which a part is purged has small pages until all of it is free and purged
 * (docs/decisions/0111).
 */
#include "region/superslab.h"

#include "os/os.h"
#include "region/window.h"

void hak__superslab_set_pages(size_t index, enum superslab_pages pages)
{
    struct superslab *superslab = superslab_at(index);
    size_t before = superslab->split;
    superslab->huge_pages = pages == SUPERSLAB_HUGE_PAGES;
    superslab->split = pages == SUPERSLAB_SPLIT;
    if (superslab->split != before) { /* a counter that may fall */
        atomic_add_relaxed(&hak__superslabs.split_count, (size_t)superslab->split - before);
    }
}

/* Each split superslab and each border costs mappings, and Linux allows a process 65,530. */
static bool superslab_may_split(size_t borders)
{
    return atomic_load_relaxed(&hak__superslabs.split_count) + borders < SPLIT_SUPERSLABS_MAX;
}

/* A superslab has small pages: watches it by rule 3 of huge_pages.h. `live` as there. */
static void superslab_watch(size_t first, size_t live, const struct superslab_wish *wish)
{
    struct superslab_part *part = superslab_part_of(first / SUPERSLAB_SLICES);
    uint32_t percent =
        wish->use == FOR_SPAN ? HUGE_PAGES_DENSE_SPANS_PERCENT : HUGE_PAGES_DENSE_PERCENT;
    if (wish->use != FOR_FILLED_SLAB) {
        hak__huge_pages_watch(&part->evidence, window_slice_address(first), SUPERSLAB_SIZE, live,
                              percent);
    }
}

void hak__superslab_choose_pages(size_t first, size_t claimed, const struct superslab_wish *wish)
{
    void *start = window_slice_address(first);
    size_t index = first / SUPERSLAB_SLICES, end = first + claimed, size = claimed * SLICE_SIZE;
    bool whole = first % SUPERSLAB_SLICES == 0 && end % SUPERSLAB_SLICES == 0;
    struct superslab_part *part = superslab_part_of(index);
    size_t live = part->claimed_slices * SLICE_SIZE, heap = hak__superslab_bytes_grown();
    bool earned = wish->use == FOR_FILLED_SLAB
                      ? hak__huge_pages_are_due(heap)
                      : hak__huge_pages_are_earned(&part->evidence, size, live, heap);
    size_t borders = atomic_load_relaxed(&hak__superslabs.borders_count);
    bool huge_pages = false;
    if (whole && earned && superslab_may_split(borders)) {
        huge_pages = hak__huge_pages_ask(start, size) == 0;
    } else if (first % SUPERSLAB_SLICES + claimed > SUPERSLAB_SLICES / 2) {
        /* Small pages, even if the machine prefers huge ones. The first half of a superslab needs
         * no call: no huge page fits into it, and the second half gets small pages. If the call
         * fails, the slices have the pages that the machine prefers. */
        hak__os_small(start, size);
    }
    if (huge_pages != part->huge_pages && superslab_at(index)->state == SUPERSLAB_NEW) {
        part->huge_pages = huge_pages;
        atomic_store_relaxed(&hak__superslabs.borders_count, borders + 1);
    }
    if (!huge_pages && whole) { /* of several, the last one is filled last */
        superslab_watch(end - SUPERSLAB_SLICES, live, wish);
    }
    if (lock_acquire_soon(&part->lock)) { /* else the slices cannot be published either */
        for (; index * SUPERSLAB_SLICES < end; index++) {
            hak__superslab_set_pages(index, huge_pages ? SUPERSLAB_HUGE_PAGES : SUPERSLAB_SMALL);
        }
        lock_release(&part->lock);
    }
}

bool hak__superslab_split(size_t index)
{
    struct lock *lock = &superslab_part_of(index)->lock;
    if (!lock_acquire_soon(lock)) {
        return false;
    }
    bool huge_pages = superslab_at(index)->huge_pages != 0;
    lock_release(lock);
    if (!huge_pages) {
        return true;
    }
    if (!superslab_may_split(0) ||
        hak__os_small(window_slice_address(index * SUPERSLAB_SLICES), SUPERSLAB_SIZE) != 0) {
        return false;
    }
    if (!lock_acquire_soon(lock)) {
        return false;
    }
    hak__superslab_set_pages(index, SUPERSLAB_SPLIT);
    lock_release(lock);
    return true;
}

void hak__superslab_begin(size_t slice, const struct superslab_wish *wish)
{
    size_t index = slice / SUPERSLAB_SLICES, heap = hak__superslab_bytes_grown();
    struct huge_pages_evidence *evidence = &wish->part->evidence;
    size_t live =
        (atomic_load_relaxed(&wish->part->claimed_slices) - SUPERSLAB_SLICES) * SLICE_SIZE;
    uint64_t signals = hak__lock_block_signals(); /* for HUGE_PAGES */
    /* A superslab that was just claimed has earned them. Another look would be one too many. */
    bool earned = wish->use == FOR_FILLED_SLAB ||
                          live + SUPERSLAB_SIZE <= 2 * atomic_load_relaxed(&evidence->filled)
                      ? hak__huge_pages_are_due(heap)
                      : hak__huge_pages_are_earned(evidence, SUPERSLAB_SIZE, live, heap);
    if (earned) {
        atomic_store_relaxed(&hak__huge_pages_begun, window_slice_address(slice));
    } else if (hak__superslab_split(index)) {
        superslab_watch(index * SUPERSLAB_SLICES, live, wish);
    }
    hak__os_restore_signals(signals);
}

void hak__superslab_join(size_t index)
{
    void *start = window_slice_address(index * SUPERSLAB_SLICES);
    if (hak__os_huge_pages(start, SUPERSLAB_SIZE) != 0) {
        return;
    }
    struct lock *lock = &superslab_part_of(index)->lock;
    if (!lock_acquire_soon(lock)) {
        hak__os_small(start, SUPERSLAB_SIZE);
        return;
    }
    hak__superslab_set_pages(index, SUPERSLAB_HUGE_PAGES);
    lock_release(lock);
}
