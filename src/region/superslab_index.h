/* SPDX-License-Identifier: MIT */
/* superslab_index.h: finds the lowest superslab with enough free slices, in logarithmic time.
 *
 * The index answers three kinds of questions (enum superslab_index). For each kind, a superslab has
 * one byte that says how much it offers. Above these bytes lies a tree: each byte of a higher level
 * is the maximum of 64 bytes of the level below.
 *
 *   level 2   a byte for 4,096 superslabs (8 GiB)   `upper` of groups 1 to 63, used from 8 GiB on
 *   level 1   a byte for 64 (128 MiB)               `upper` of every 64th group, from 128 MiB on
 *   level 0   a byte for each superslab             `index` of its group
 *
 * A search compares 64 bytes at each level, eight at a time. At level 2 it compares 64 bytes for
 * each 512 GiB of heap. A change climbs only while a maximum changes. A heap up to 128 MiB has
 * one level and no climb.
 *
 * Each part (superslab.h) has an index of its own, which numbers the part's superslabs without the
 * others. Callers use the ordinary numbers.
 *
 * Locks: the caller holds the part's REGION. The functions only compute and cannot fail.
 */
#ifndef HAK_REGION_SUPERSLAB_INDEX_H
#define HAK_REGION_SUPERSLAB_INDEX_H

#include "core/limits.h"

enum superslab_index {
    INDEX_DIRTY,    /* the superslab's longest run of slices that are free and dirty, 0 to 64 */
    INDEX_FREE,     /* its longest run of free slices, 0 to 64 */
    INDEX_RELEASED, /* 1: it was released and may be claimed again; else 0 */
    INDEX_KINDS
};

struct superslab_part;

/* The part's lowest superslab from `from` on whose byte is at least `least` (1 to 64), or
 * SLICE_NONE. 0 is its first one, and SIZE_MAX none. */
HAK_HIDDEN size_t hak__superslab_index_find(const struct superslab_part *part,
                                            enum superslab_index kind, uint32_t least, size_t from);

/* Sets the superslab's byte, and the maxima above it. */
HAK_HIDDEN void hak__superslab_index_set(enum superslab_index kind, size_t index, uint32_t value);

/* Makes the part's index cover its superslabs up to and including `index`. Under GROWTH, too. */
HAK_HIDDEN void hak__superslab_index_reach(size_t index);

/* Computes the superslab's bytes of both INDEX_FREE and INDEX_DIRTY from its maps. */
HAK_HIDDEN void hak__superslab_index_maps(size_t index);

/* The same, quicker: for slices that have just become free and dirty. `mask` is one run of them. */
HAK_HIDDEN void hak__superslab_index_grown(size_t index, uint64_t mask);

/* True if all the part's bytes agree with the maps and all maxima with the level below. Slow: for
 * assertion level 2 and tests. */
HAK_HIDDEN bool hak__superslab_index_is_right(const struct superslab_part *part);

#endif
