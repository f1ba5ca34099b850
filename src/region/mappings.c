/* SPDX-License-Identifier: MIT */
/* mappings.c: see mappings.h. */
#include "region/mappings.h"

#include <errno.h>

#include "core/limits.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

size_t hak__mappings_huge;
static uint32_t shared_refused;    /* 1: the kernel has refused a mapping */
static uint32_t shared_refused_ms; /* clock at that time */

static bool mappings_were_refused(void)
{
    if (HAK_LIKELY(atomic_load_relaxed(&shared_refused) == 0)) {
        return false;
    }
    /* Milliseconds for which a refusal counts. Twice: a program that has unmapped something gets
     * huge blocks in mappings of their own later. Half: a huge block is tried, and all free memory
     * is gathered, twice as often in a program that has no mapping to spare. */
    if (hak__os_clock_ms() - atomic_load_relaxed(&shared_refused_ms) < 10000) {
        return true;
    }
    atomic_store_relaxed(&shared_refused, 0u);
    return false;
}

bool hak__mappings_are_short(void)
{
    const struct superslab_table *table = &hak__superslabs;
    /* a split superslab and a closed range may cost two, a border and a hole one */
    size_t count = atomic_load_relaxed(&hak__mappings_huge) +
                   2 * (atomic_load_relaxed(&table->split_count) + hak__os_closed_ranges()) +
                   atomic_load_relaxed(&table->borders_count) +
                   atomic_load_relaxed(&table->holes_count);
    return count >= MAPPINGS_MAX || hak__os_is_discarding() || mappings_were_refused();
}

bool hak__mappings_have_holes(void)
{
    return atomic_load_relaxed(&hak__superslabs.holes_count) >= SPLIT_SUPERSLABS_MAX;
}

/* True if the slice before `first` is claimed: then its mapping can be extended. Under GROWTH. */
static bool mappings_follows(size_t first)
{
    return first % SUPERSLAB_SLICES != 0 ||
           (first != 0 && window_contains_slice(first - 1) &&
            atomic_load_relaxed(&superslab_at(first / SUPERSLAB_SLICES - 1)->state) ==
                SUPERSLAB_CLAIMED);
}

/* Extends a mapping where a new one was refused. 0: done, so it is not memory that is short. If the
 * mapping's last page is closed by its protection (secure form), the new ones are closed, too, and
 * to open them takes the mapping that was refused. */
static int mappings_extend(void *start, size_t size)
{
    int error = hak__os_extend(start, size);
    if (error == 0 && !hak__os_is_readable((uintptr_t)start)) {
        (void)hak__os_unmap(start, size);
        return -ENOMEM;
    }
    if (error == 0) {
        atomic_store_relaxed(&shared_refused_ms, hak__os_clock_ms());
        atomic_store_relaxed(&shared_refused, 1u);
    }
    return error;
}

int hak__mappings_claim(size_t first, size_t count)
{
    void *start = window_slice_address(first);
    int error = hak__os_map_at(start, count * SLICE_SIZE);
    return error == -ENOMEM && mappings_follows(first) ? mappings_extend(start, count * SLICE_SIZE)
                                                       : error;
}

bool hak__mappings_probe(void)
{
    size_t page = hak__os_page_size();
    uint64_t signals = hak__lock_block_signals();
    lock_acquire(&hak__growth_lock);
    size_t first = hak__superslab_first.frontier;
    void *start = window_slice_address(first);
    int error = first * SLICE_SIZE == hak__window.size ? -EEXIST : hak__os_map_at(start, page);
    if (error == -ENOMEM && mappings_follows(first)) {
        error = mappings_extend(start, page);
    }
    if (error == 0) {
        hak__os_discard(start, page);
    }
    lock_release(&hak__growth_lock);
    hak__os_restore_signals(signals);
    return mappings_were_refused();
}
