/* whale_cache.h: freed whales, kept for the next ones.
 *
 * One rule says how much is kept: freed whales, free slices that may be resident, and what is in
 * use are together never more than the most that was in use during the purge delay. So keeping them
 * raises no peak. What does not fit under that goes back at once, the oldest first.
 *
 * The cache holds ranges of addresses: a request takes a part of one, and the rest stays. Ranges
 * that were parts of one mapping are one again when they meet.
 *
 * Locks: WHALES, taken by the functions themselves. System calls are made without it: what is taken
 * out of the cache is its taker's alone.
 */
#ifndef HAK_LARGE_WHALE_CACHE_H
#define HAK_LARGE_WHALE_CACHE_H

#include "large/whale.h"

/* What a request gets out of the cache: one whale, which may have to grow, or parts to be joined:
 * all but the last are whole huge pages, the last may be the end of the whale, smaller than one. */
struct whale_parts {
    uint32_t count; /* 0: nothing */
    bool whole;
    struct whale parts[WHALE_PARTS_MAX];
};
HAK_HIDDEN void hak__whale_cache_take(struct whale_parts *taken, size_t size, size_t alignment,
                                      bool want_zero);
/* Up to `size` bytes that follow `whale`, parts of the same mapping, out of the cache. Returns
 * bytes. */
HAK_HIDDEN size_t hak__whale_cache_take_next(struct whale whale, size_t size);
/* Bytes that may be kept now, besides what is. A hint. */
HAK_HIDDEN size_t hak__whale_cache_room(void);
/* Keeps a whale that nobody uses, if there is room for its entry, else unmaps it. `resident` is at
 * most its size. */
HAK_HIDDEN void hak__whale_cache_put(struct whale whale, size_t resident);
/* Unmaps it. For whales of no cache and no registry. */
HAK_HIDDEN void hak__whale_unmap(struct whale whale);
/* Bytes of whales joined from parts: such a part may be a mapping for the kernel, of which a
 * process may have 65,530. */
HAK_HIDDEN extern size_t hak__whale_joined_bytes; /* relaxed */

/* A part of a joined whale is one no more. */
HAK_INLINE void whale_uncount(struct whale whale)
{
    if (whale.origin == 0) {
        atomic_sub_relaxed(&hak__whale_joined_bytes, whale.size);
    }
}

struct whale_cache_totals {
    size_t bytes;
    size_t metadata_bytes;
};
/* Under the WHALES lock. */
HAK_HIDDEN struct whale_cache_totals hak__whale_cache_totals(void);

#endif
