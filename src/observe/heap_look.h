/* SPDX-License-Identifier: MIT */
/* heap_look.h: copies what the slices of one superslab are, for the heap map and the summary.
 *
 * A look takes the locks of the arenas that own slabs in the superslab, one at a time, then REGION.
 * It holds none of them when it asks the kernel which pages are resident. A program may change the
 * superslab between these steps. The maps of the region, which come last, decide: a slice that is
 * free there is free, and a slab or span of which a slice is free there is not shown. So each slice
 * is one of enum slice_kind, and the figures of a superslab at rest are exact. */
#ifndef HAK_OBSERVE_HEAP_LOOK_H
#define HAK_OBSERVE_HEAP_LOOK_H

#include "base/text.h"
#include "core/limits.h"

enum slice_kind {
    SLICE_FREE_CLEAN, /* never used, or purged */
    SLICE_FREE_DIRTY, /* free since the last purge pass */
    SLICE_FREE_AGED,  /* free and not used since before the last purge pass */
    SLICE_KEPT,       /* of a freed span that an arena keeps, or just changing hands */
    SLICE_SPAN,       /* of a span in use */
    SLICE_SLAB,
    SLICE_KINDS
};

/* A slab of the superslab. The objects of `out_count` are in use, or free in thread caches. */
struct slab_look {
    uint32_t arena; /* id */
    uint8_t class_index;
    uint8_t slices;
    uint16_t out_count;
    uint16_t free_count;       /* free in the slab */
    uint16_t not_carved_count; /* never handed out */
};

struct heap_look {
    size_t index;     /* of the superslab; the first superslab of the window has 0 */
    size_t span_left; /* slices of a long span that follow this superslab */
    uint32_t claimed; /* slices, from the first on; 0: the superslab is not claimed */
    bool is_brief;    /* of slabs in superslabs without huge pages the caller wants classes alone:
                       * no arena's lock is taken */
    bool refused;     /* at the gate, or a stopped thread has a lock: claimed is 0 */
    bool answered;    /* the kernel says what is resident; else that is 0 */
    bool huge;        /* it may have huge pages */
    bool split;       /* it has small pages, because a part of its huge page was purged */
    uint64_t starts;  /* first slices of spans and slabs in use */
    uint8_t kinds[SUPERSLAB_SLICES];          /* enum slice_kind; [0, claimed) are valid */
    uint32_t resident[SUPERSLAB_SLICES];      /* bytes; [0, claimed) are valid */
    struct slab_look slabs[SUPERSLAB_SLICES]; /* valid at a slab's first slice */
};

/* Copies the state of superslab `index`, below hak__superslabs.count, into `look`. Superslabs are
 * looked at in rising order, with the same `look`, which was zero at first. Begins at the gate and
 * ends there; waits for the end of a fork. Any thread, no lock held. */
HAK_HIDDEN void hak__heap_look(struct heap_look *look, size_t index);

/* The heap map: docs/observability/formats.md has the format. */

/* Bytes of the longest description of a superslab's slices: 64 slabs, each of another arena and
 * class, take 30 bytes each. */
#define HEAP_MAP_SLICES_SIZE 2048

/* Appends the description of the slices, such as "h1z4u512x3u100f7s12d4". */
HAK_HIDDEN void hak__heap_map_put_slices(struct text *text, const struct heap_look *look);

#endif
