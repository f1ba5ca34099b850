/* SPDX-License-Identifier: MIT */
/* span_quarantine.c: see span.h. */
#include "large/span.h"

#include "base/bits.h"
#include "core/diagnose.h"
#include "region/secure.h"
#include "region/superslab.h"

#include <string.h>

void hak__span_take(size_t slice)
{
    if (HAK_UNLIKELY(window_take_owner(slice, OWNER_SPAN_TAKEN) != OWNER_SPAN)) {
        /* Another thread has freed it, or is resizing it, since the caller looked. */
        hak__diagnose_fatal("double free", window_slice_address(slice), 0, 0);
    }
}

uint32_t hak__span_head(uint32_t offset)
{
    size_t page = hak__os_page_size();
    return offset < SECURE_FRONT ? 0 : (uint32_t)bits_align_down(offset - SECURE_FRONT, page);
}

struct os_two hak__span_ends(size_t slice)
{
    const struct span_metadata *metadata = span_metadata_at(slice);
    char *end = (char *)window_slice_address(slice + metadata->slices);
    return (struct os_two){window_slice_address(slice), end - metadata->tail, metadata->head,
                           metadata->tail};
}

uint32_t hak__span_end_offset(uint32_t slices, size_t size, size_t alignment, size_t tail)
{
    size_t end = slices * SLICE_SIZE - tail;
    alignment = alignment < OBJECT_ALIGNMENT ? OBJECT_ALIGNMENT : alignment;
    size_t offset = bits_align_down(end - size, alignment), page = hak__os_page_size();
    if (offset >= SLICE_SIZE) { /* before as many further pages */
        size_t step = alignment < page && page < SLICE_SIZE ? page : alignment;
        offset -= bits_align_up(offset + 1 - SLICE_SIZE, step);
    }
    return (uint32_t)offset;
}

uint32_t hak__span_place(size_t slice, size_t size, size_t alignment)
{
    struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t page = (uint32_t)hak__os_page_size();
    uint32_t offset = hak__span_end_offset(metadata->slices, size, alignment, page);
    if (alignment <= page && offset >= SECURE_FRONT + page) {
        uint32_t places = (offset - SECURE_FRONT) / page; /* a page before it stays closed */
        offset -= (uint32_t)(hak__secure_draw() % places) * page;
    }
    os_touch((char *)window_slice_address(slice) + offset);
    metadata->head = hak__span_head(offset);
    metadata->tail = (uint32_t)bits_align_down(metadata->slices * SLICE_SIZE - offset - size, page);
    uint32_t closed = hak__os_close_two(hak__span_ends(slice));
    metadata->head = (closed & 1) != 0 ? metadata->head : 0;
    metadata->tail = (closed & 2) != 0 ? metadata->tail : 0;
    return offset;
}

/* Opens pages of a span in use. They read as zero. */
static bool span_open(char *start, size_t bytes)
{
    bool empty = hak__os_closed_are_empty(); /* asked before */
    bool opened = hak__os_open_pages(start, bytes);
    if (opened && !empty) {
        memset(start, 0, bytes);
    }
    return opened;
}

bool hak__span_open_head(size_t slice, uint32_t offset)
{
    struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t head = hak__span_head(offset);
    bool closed = head < metadata->head;
    if (closed && !span_open((char *)window_slice_address(slice) + head, metadata->head - head)) {
        return false;
    }
    metadata->head = closed ? head : metadata->head;
    return true;
}

void hak__span_open_tail(size_t slice)
{
    struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t page = (uint32_t)hak__os_page_size();
    char *tail = (char *)window_slice_address(slice + metadata->slices) - metadata->tail;
    if (metadata->tail > page && span_open(tail, metadata->tail - page)) {
        metadata->tail = page;
    }
}

void hak__span_give(struct resting_span span)
{
    /* asked before anything is opened */
    bool empty = span.empty && hak__os_closed_are_empty();
    bool opened = !HAK_SECURE || (span.closed ? hak__os_open_pages(window_slice_address(span.slice),
                                                                   span.slices * SLICE_SIZE)
                                              : hak__os_open_two(hak__span_ends(span.slice)));
    if (opened && empty) { /* slices that stay closed serve nothing else */
        hak__superslab_give_clean(span.slice, span.slices);
    } else if (opened) {
        hak__superslab_give(span.slice, span.slices);
    }
}

/* Closes a span, if the arena may close so much more. */
static bool span_close(struct span_quarantine *quarantine, size_t slice, uint32_t slices)
{
    const struct span_metadata *metadata = span_metadata_at(slice);
    uint32_t now = hak__os_clock_ms();
    if (now - quarantine->closed_ms >= 1000) {
        quarantine->closed_ms = now;
        quarantine->closed_slices = 0;
    }
    /* Secure form: the most slices that an arena closes in a second. To close one, to open it
     * again, and to touch its pages takes up to some 17 microseconds. Twice as many: a program that
     * does little else loses up to 3.6 % of its time instead of 1.8 %. Half: more freed spans can
     * be read by a dangling pointer, which finds zeroes. */
    if (quarantine->closed_slices + slices > 1024 ||
        !hak__os_close_pages(window_slice_address(slice), slices * SLICE_SIZE)) {
        return false;
    }
    quarantine->closed_slices += slices;
    hak__os_contain_closed((metadata->head != 0 ? 1u : 0u) + (metadata->tail != 0 ? 1u : 0u));
    return true;
}

/* Takes the span at a place out of its rest. */
static struct resting_span span_wake(struct span_quarantine *quarantine, uint32_t place)
{
    struct resting_span span = quarantine->spans[place];
    quarantine->spans[place].slices = 0;
    quarantine->held -= span.empty ? 0 : span.slices;
    return span;
}

static uint32_t span_random_place(struct span_quarantine *quarantine)
{
    uint64_t *random = &quarantine->random;
    *random = *random == 0 ? hak__secure_draw() : *random;
    return secure_random(random) % HAK_COUNT_OF(quarantine->spans);
}

struct resting_span hak__span_rest(struct span_quarantine *quarantine, size_t slice,
                                   uint32_t slices)
{
    struct resting_span span = {(uint32_t)slice, slices, false, false};
    if (quarantine != NULL && span_close(quarantine, slice, slices)) {
        span.closed = span.empty = true;
    } else {
        struct os_two ends = hak__span_ends(slice);
        char *first = (char *)ends.first + ends.first_size;
        span.empty = hak__os_clear(first, (size_t)((char *)ends.second - first));
    }
    if (quarantine == NULL) {
        return span;
    }
    uint32_t place = span_random_place(quarantine);
    struct resting_span old = span_wake(quarantine, place);
    quarantine->spans[place] = span;
    quarantine->held += span.empty ? 0 : slices;
    return old;
}

struct resting_span hak__span_end_rest(struct span_quarantine *quarantine, uint32_t most)
{
    if (quarantine->held <= most) {
        return (struct resting_span){0, 0, false, false};
    }
    uint32_t place = span_random_place(quarantine);
    while (quarantine->spans[place].slices == 0 || quarantine->spans[place].empty) {
        place = (place + 1) % HAK_COUNT_OF(quarantine->spans);
    }
    return span_wake(quarantine, place);
}

uint32_t hak__span_end_quarantine(struct span_quarantine *quarantine)
{
    uint32_t slices = 0;
    for (uint32_t i = 0; i < HAK_COUNT_OF(quarantine->spans); i++) {
        struct resting_span span = span_wake(quarantine, i);
        if (span.slices != 0) {
            hak__span_give(span);
            slices += span.slices;
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
