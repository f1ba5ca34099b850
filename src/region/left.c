/* SPDX-License-Identifier: MIT */
/* left.c: see left.h. */
#include "region/left.h"

#include "base/bits.h"
#include "os/os.h"
#include "region/superslab.h"

/* Bytes of a slice for one bit of its byte. */
#define LEFT_UNIT (SLICE_SIZE / 8)

uint32_t hak__left_kinds;

static uint8_t *left_pages(size_t slice)
{
    return (uint8_t *)window_slab_metadata(slice) + SLAB_LEFT_OFFSET;
}

/* The units of the slice that [from, to) covers. */
static uint8_t left_mask(size_t slice, uintptr_t from, uintptr_t to)
{
    uintptr_t start = (uintptr_t)window_slice_address(slice), end = start + SLICE_SIZE;
    from = from > start ? from : start;
    to = to < end ? to : end;
    uint32_t first = (uint32_t)((from - start) / LEFT_UNIT);
    return (uint8_t)bits_mask(first, (uint32_t)((to - from) / LEFT_UNIT));
}

void hak__left_note(const struct left_change *change)
{
    uintptr_t base = atomic_load_relaxed(&hak__window.base);
    /* acquire: pairs with the release in superslab.c when the limit grows; the tables exist */
    size_t limit = atomic_load_acquire(&hak__window.shared_limit);
    uintptr_t end = base + (limit << SLICE_SHIFT);
    uintptr_t from = change->from > base ? change->from : base;
    uintptr_t to = change->to < end ? change->to : end;
    uint32_t kinds = atomic_load_relaxed(&hak__left_kinds);
    if (limit == 0 || from >= to || (change->undone && kinds != (uint32_t)change->kind)) {
        return;
    }
    if ((kinds & change->kind) == 0) {
        atomic_or_relaxed(&hak__left_kinds, (uint32_t)change->kind);
    }
    for (size_t slice = (from - base) >> SLICE_SHIFT; slice <= (to - 1 - base) >> SLICE_SHIFT;
         slice++) {
        if (!superslab_has_slice(slice)) { /* its metadata may be unmapped */
            continue;
        }
        uint8_t mask = left_mask(slice, from, to);
        if (change->undone) {
            atomic_and_relaxed(left_pages(slice), (uint8_t)~mask);
        } else {
            atomic_or_relaxed(left_pages(slice), mask);
        }
    }
}

bool hak__left_in(size_t slice, size_t count)
{
    uint8_t pages = 0;
    for (size_t i = 0; i < count; i++) {
        pages |= atomic_load_relaxed(left_pages(slice + i));
    }
    return pages != 0;
}

/* Whole OS pages only: a page larger than a slice may have another owner, too. */
static bool left_renew_run(size_t slice, uint32_t count)
{
    uintptr_t start = (uintptr_t)window_slice_address(slice);
    uintptr_t from = bits_align_up(start, hak__os_page_size());
    uintptr_t to = bits_align_down(start + count * SLICE_SIZE, hak__os_page_size());
    if (from < to && hak__os_renew((void *)from, to - from) != 0) {
        return false;
    }
    if (from < to) { /* as its neighbours, so that the kernel joins them */
        bool huge = atomic_load_relaxed(&superslab_at(slice / SUPERSLAB_SLICES)->huge) != 0;
        (void)(huge ? hak__os_huge((void *)from, to - from)
                    : hak__os_small((void *)from, to - from));
    }
    for (uint32_t i = 0; i < count; i++) {
        atomic_store_relaxed(left_pages(slice + i), (uint8_t)0);
    }
    return true;
}

bool hak__left_renew(size_t slice, uint32_t count)
{
    bool renewed = true;
    for (uint32_t i = 0, length; i < count; i += length) {
        bool noted = hak__left_in(slice + i, 1);
        for (length = 1; i + length < count && hak__left_in(slice + i + length, 1) == noted;
             length++) {
        }
        renewed = (!noted || left_renew_run(slice + i, length)) && renewed;
    }
    return renewed;
}
