/* SPDX-License-Identifier: MIT */
/* superslab_sums.c: bytes of superslabs, and their peak. See superslab.h. */
#include "region/superslab.h"

#include "os/os.h"

bool hak__superslab_copy(size_t index, struct superslab *copy)
{
    struct lock *lock = &superslab_part_of(index)->lock;
    if (!lock_acquire_soon(lock)) {
        return false;
    }
    *copy = *superslab_at(index);
    lock_release(lock);
    return true;
}

size_t hak__superslab_taken(void)
{
    size_t claimed = atomic_load_relaxed(&hak__superslabs.claimed_slices);
    size_t free = atomic_load_relaxed(superslab_parts() == 1 ? &hak__superslab_first.free_slices
                                                             : &hak__superslabs.free_slices);
    return claimed > free ? claimed - free : 0; /* they are read at different moments */
}

void hak__superslab_note_peak(void)
{
    struct superslab_table *table = &hak__superslabs;
    size_t bytes = hak__superslab_taken() * SLICE_SIZE + atomic_load_relaxed(&table->huge_bytes);
    size_t peak = atomic_load_relaxed(&table->peak_bytes);
    while (bytes > peak) {
        if (atomic_cas_acquire(&table->peak_bytes, &peak, bytes)) {
            atomic_store_relaxed(&table->peak_ms, hak__os_clock_uncalled_ms());
            break;
        }
    }
}

void hak__superslab_note_huge(size_t bytes)
{
    atomic_store_relaxed(&hak__superslabs.huge_bytes, bytes);
    hak__superslab_note_peak();
}

size_t hak__superslab_peak_bytes(void)
{
    return atomic_load_relaxed(&hak__superslabs.peak_bytes);
}

uint64_t hak__superslab_peak_ago_ms(void)
{
    uint64_t peak_ms = atomic_load_relaxed(&hak__superslabs.peak_ms);
    uint64_t now_ms = hak__os_clock_uncalled_ms();
    return peak_ms == 0 ? UINT64_MAX : now_ms > peak_ms ? now_ms - peak_ms : 0;
}

void hak__superslab_reset_peak(void)
{
    atomic_store_relaxed(&hak__superslabs.peak_bytes, (size_t)0);
    hak__superslab_note_peak();
}

size_t hak__superslab_bytes_claimed(void)
{
    return atomic_load_relaxed(&hak__superslabs.claimed_slices) * SLICE_SIZE;
}

size_t hak__superslab_bytes_grown(void)
{
    size_t claimed = atomic_load_relaxed(&hak__superslabs.claimed_slices);
    size_t inherited = hak__superslabs.inherited_slices;
    return claimed > inherited ? (claimed - inherited) * SLICE_SIZE : 0;
}

size_t hak__superslab_bytes_dirty(void)
{
    size_t slices = 0;
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        slices += atomic_load_relaxed(&hak__superslab_parts[i]->dirty_free_slices);
    }
    return slices * SLICE_SIZE;
}

size_t hak__superslab_bytes_free(void)
{
    size_t slices = 0;
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        slices += atomic_load_relaxed(&hak__superslab_parts[i]->free_slices);
    }
    return slices * SLICE_SIZE;
}

size_t hak__superslab_bytes_touched(void)
{
    size_t dirty =
        atomic_load_relaxed(superslab_parts() == 1 ? &hak__superslab_first.dirty_free_slices
                                                   : &hak__superslabs.dirty_free_slices);
    return (hak__superslab_taken() + dirty) * SLICE_SIZE;
}

void hak__superslab_set_growth(size_t bytes)
{
    struct superslab_table *table = &hak__superslabs;
    atomic_store_relaxed(&table->growth_due, hak__superslab_bytes_touched() + bytes);
    atomic_store_relaxed(&table->grown, 0u);
}
