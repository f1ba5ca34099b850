/* SPDX-License-Identifier: MIT */
/* span_quarantine.c: see span.h. */
#include "large/span.h"

#include "core/diagnose.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

void hak__span_take(size_t slice)
{
    if (HAK_UNLIKELY(window_take_owner(slice, OWNER_SPAN_TAKEN) != OWNER_SPAN)) {
        /* Another thread has freed it, or is resizing it, since the caller looked. */
        hak__diagnose_fatal("double free", window_slice_address(slice), 0, 0);
    }
}

void hak__span_give(size_t slice, uint32_t slices)
{
    /* Slices that stay closed serve nothing else. */
    if (!HAK_SECURE || hak__os_open_pages(window_slice_address(slice), slices * SLICE_SIZE)) {
        hak__superslab_give(slice, slices);
    }
}

bool hak__span_quarantine(struct span_quarantine *quarantine, size_t slice, uint32_t slices)
{
    uint32_t now = hak__os_clock_ms();
    if (now - quarantine->closed_ms >= 1000) {
        quarantine->closed_ms = now;
        quarantine->closed_count = 0;
    }
    /* Secure form: the most spans that an arena closes in a second. To close one, to open it again
     * and to touch its pages takes 10 to 100 microseconds. Four times as many: a program that does
     * little else loses up to 2.5 % of its time instead of 0.6 %. Half: more freed spans can be
     * used by a dangling pointer. */
    if (quarantine->closed_count == 64 ||
        !hak__os_close_pages(window_slice_address(slice), slices * SLICE_SIZE)) {
        return false;
    }
    quarantine->closed_count++;
    struct closed_span *place =
        &quarantine->spans[quarantine->next++ % HAK_COUNT_OF(quarantine->spans)];
    if (place->slices != 0) {
        hak__span_give(place->slice, place->slices);
    }
    *place = (struct closed_span){(uint32_t)slice, slices};
    return true;
}

uint32_t hak__span_end_quarantine(struct span_quarantine *quarantine)
{
    uint32_t slices = 0;
    for (uint32_t i = 0; i < HAK_COUNT_OF(quarantine->spans); i++) {
        struct closed_span *entry = &quarantine->spans[i];
        if (entry->slices != 0) {
            hak__span_give(entry->slice, entry->slices);
            slices += entry->slices;
            entry->slices = 0;
        }
    }
    return slices;
}

void hak__span_renew(size_t slice)
{
    void *start = window_slice_address(slice);
    size_t bytes = hak__span_slices(slice) * SLICE_SIZE;
    if (SLICE_SIZE % hak__os_page_size() == 0 && hak__os_replace(start, bytes)) {
        hak__os_small(start, bytes); /* as most of its neighbours, so that the kernel joins them */
    }
}
