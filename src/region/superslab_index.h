/* superslab_index.h: the lowest superslab that has what is wanted, in O(log).
 *
 * For each kind of question a byte per superslab says how much it has to offer, and a tree of
 * maxima lies above:
 *
 *   level 2   a byte for 4,096 superslabs (8 GiB)   `upper` of groups 1 to 63, from 8 GiB on
 *   level 1   a byte for 64 (128 MiB)               `upper` of every 64th group, from 128 MiB on
 *   level 0   a byte for each                       `index` of its group
 *
 * A search compares 64 bytes a level, eight at a time; of level 2, 64 for each 512 GiB. A change
 * climbs while it changes a maximum; a small process has one level and no climb.
 *
 * Locks: REGION for everything.
 */
#ifndef HAK_REGION_SUPERSLAB_INDEX_H
#define HAK_REGION_SUPERSLAB_INDEX_H

#include "core/limits.h"

enum superslab_index {
    INDEX_DIRTY,    /* its longest run of slices that are free and dirty */
    INDEX_FREE,     /* its longest run of free slices */
    INDEX_RELEASED, /* 1: it may be reclaimed */
    INDEX_KINDS
};

#define INDEX_NONE SIZE_MAX

/* The lowest superslab from `from` on whose byte is at least `least` (1 to 64), or INDEX_NONE. */
HAK_HIDDEN size_t hak__superslab_index_find(enum superslab_index kind, uint32_t least, size_t from);

/* Its byte is `value` from now on. */
HAK_HIDDEN void hak__superslab_index_set(enum superslab_index kind, size_t index, uint32_t value);

/* The table reaches to `index` from now on. */
HAK_HIDDEN void hak__superslab_index_reach(size_t index);

/* Its maps have changed: writes the bytes that follow from them. */
HAK_HIDDEN void hak__superslab_index_maps(size_t index);

/* The same, quicker: the run `mask` has become free, and is dirty as all that was in use. */
HAK_HIDDEN void hak__superslab_index_grown(size_t index, uint64_t mask);

/* All bytes are what the maps say, all maxima are those of what lies below: for level 2 and tests.
 */
HAK_HIDDEN bool hak__superslab_index_is_right(void);

#endif
