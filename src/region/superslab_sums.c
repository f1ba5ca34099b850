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

static size_t sums_in_use(void)
{
    return hak__superslab_taken() * SLICE_SIZE + atomic_load_relaxed(&hak__superslabs.huge_bytes);
}

/* The most of the present period and of the one before. */
static size_t use_most(const struct superslab_use *use)
{
    size_t now = atomic_load_relaxed(&use[0].most), before = atomic_load_relaxed(&use[1].most);
    return now > before ? now : before;
}

static void use_note(struct superslab_use *use, size_t bytes)
{
    size_t least[2], most = use_most(use), grown = bytes > most ? bytes - most : 0;
    for (uint32_t i = 0; i < 2; i++) {
        least[i] = atomic_load_relaxed(&use[i].least) + grown;
        if (grown != 0) {
            atomic_store_relaxed(&use[i].least, least[i]);
        }
    }
    if (grown != 0) {
        atomic_store_relaxed(&use[0].most, bytes);
    }
    if (bytes < least[0]) {
        atomic_store_relaxed(&use[0].least, bytes);
    }
    least[0] = least[0] < least[1] ? least[0] : least[1];
    if (bytes > least[0] && bytes - least[0] > atomic_load_relaxed(&use[0].reused)) {
        atomic_store_relaxed(&use[0].reused, bytes - least[0]);
    }
}

void hak__superslab_turn_use(bool anew)
{
    struct superslab_use *use = hak__superslabs.use;
    size_t bytes = sums_in_use();
    use_note(use, bytes); /* growth since the last fall is no reuse */
    atomic_store_relaxed(&use[1].most, anew ? bytes : atomic_load_relaxed(&use[0].most));
    atomic_store_relaxed(&use[1].least, anew ? bytes : atomic_load_relaxed(&use[0].least));
    atomic_store_relaxed(&use[1].reused, anew ? 0 : atomic_load_relaxed(&use[0].reused));
    atomic_store_relaxed(&use[0].most, bytes);
    atomic_store_relaxed(&use[0].least, bytes);
    atomic_store_relaxed(&use[0].reused, (size_t)0);
}

size_t hak__superslab_expected(void)
{
    const struct superslab_use *use = hak__superslabs.use;
    size_t now = atomic_load_relaxed(&use[0].reused), before = atomic_load_relaxed(&use[1].reused);
    return (now > before ? now : before) + RESERVE_BYTES;
}

bool hak__superslab_has_fallen(void)
{
    return use_most(hak__superslabs.use) >= sums_in_use() + hak__superslab_expected() + BURST_BYTES;
}

void hak__superslab_note_fall(size_t slices)
{
    size_t bytes = sums_in_use();
    use_note(hak__superslabs.use, bytes + slices * SLICE_SIZE);
    use_note(hak__superslabs.use, bytes);
}

void hak__superslab_note_peak(void)
{
    struct superslab_table *table = &hak__superslabs;
    size_t bytes = sums_in_use(), peak = atomic_load_relaxed(&table->peak_bytes);
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
    use_note(hak__superslabs.use, sums_in_use());
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
