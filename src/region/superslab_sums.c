/* SPDX-License-Identifier: MIT */
/* superslab_sums.c: bytes of superslabs, and their peak. See superslab.h. */
#include "region/superslab.h"

#include "core/knobs.h"
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

size_t hak__superslab_dirty(void)
{
    return atomic_load_relaxed(superslab_parts() == 1 ? &hak__superslab_first.dirty_free_slices
                                                      : &hak__superslabs.dirty_free_slices);
}

static size_t sums_in_use(void)
{
    return hak__superslab_taken() * SLICE_SIZE + atomic_load_relaxed(&hak__superslabs.huge_bytes);
}

/* The larger one of the present period and of the one before. */
static size_t use_larger(const size_t *now, const size_t *before)
{
    size_t one = atomic_load_relaxed(now), other = atomic_load_relaxed(before);
    return one > other ? one : other;
}

static void use_note(struct superslab_use *use, size_t bytes)
{
    size_t least[2], most = use_larger(&use[0].most, &use[1].most);
    size_t grown = bytes > most ? bytes - most : 0;
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
    struct superslab_use *use = hak__superslabs.use, *last = anew ? NULL : use;
    size_t bytes = sums_in_use();
    use_note(use, bytes); /* growth since the last fall is no reuse */
    for (uint32_t i = 2; i-- > 0; last = NULL) {
        atomic_store_relaxed(&use[i].most, last ? atomic_load_relaxed(&last->most) : bytes);
        atomic_store_relaxed(&use[i].least, last ? atomic_load_relaxed(&last->least) : bytes);
        atomic_store_relaxed(&use[i].reused, last ? atomic_load_relaxed(&last->reused) : 0);
        atomic_store_relaxed(&use[i].missed, last ? atomic_load_relaxed(&last->missed) : 0);
    }
}

size_t hak__superslab_expected(void)
{
    const struct superslab_use *use = hak__superslabs.use;
    return use_larger(&use[0].reused, &use[1].reused) + RESERVE_BYTES;
}

bool hak__superslab_has_fallen(void)
{
    const struct superslab_use *use = hak__superslabs.use;
    return use_larger(&use[0].most, &use[1].most) >=
           sums_in_use() + hak__superslab_expected() + BURST_BYTES;
}

size_t hak__superslab_wanted(void)
{
    const struct superslab_use *use = hak__superslabs.use;
    size_t most = use_larger(&use[0].most, &use[1].most), bytes = sums_in_use();
    size_t missed = use_larger(&use[0].missed, &use[1].missed);
    missed = missed < most / 2 ? missed : most / 2;
    bool goes = hak__superslab_has_fallen() &&
                atomic_load_relaxed(&hak__knobs.purge_delay_ms) != UINT32_MAX;
    return goes ? hak__superslab_expected() : missed + (most > bytes ? most - bytes : 0);
}

bool hak__superslab_would_grow(uint32_t count)
{
    const struct superslab_use *use = hak__superslabs.use;
    return sums_in_use() + count * SLICE_SIZE > use_larger(&use[0].most, &use[1].most);
}

void hak__superslab_note_sparse(size_t bytes)
{
    for (uint32_t i = 0; bytes != 0 && i < 2; i++) {
        size_t *most = &hak__superslabs.use[i].most, now = atomic_load_relaxed(most);
        atomic_store_relaxed(most, now > bytes ? now - bytes : 0);
    }
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
    use_note(table->use, bytes);
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
    return (hak__superslab_taken() + hak__superslab_dirty()) * SLICE_SIZE;
}

void hak__superslab_set_growth(size_t bytes)
{
    struct superslab_table *table = &hak__superslabs;
    atomic_store_relaxed(&table->growth_due, hak__superslab_bytes_touched() + bytes);
    atomic_store_relaxed(&table->grown, 0u);
}
