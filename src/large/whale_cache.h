/* SPDX-License-Identifier: MIT */
/* whale_cache.h: freed whales, kept for later requests.
 *
 * Bound: memory in use, free slices that may be resident, and kept whales are together never more
 * than the most memory that was in use during the last purge delay. So the cache never raises the
 * peak of the process. The oldest ranges beyond the bound are unmapped at once.
 *
 * The cache holds ranges of addresses. A request takes a part of a range, and the rest stays.
 * Neighbouring ranges become one again if they are parts of one mapping.
 *
 * Locks: the functions take WHALES themselves, unless said otherwise. They make no system call
 * under it: a range that was taken out of the cache is known to its taker only. Callers are inside
 * the gate (core/gate.h). */
#ifndef HAK_LARGE_WHALE_CACHE_H
#define HAK_LARGE_WHALE_CACHE_H

#include "large/whale.h"
#include "region/secure.h"

/* What a request gets out of the cache: one whale, or parts to be joined. All parts but the last
 * are whole huge pages; the last may be the end of the whale and shorter than a huge page. */
struct whale_parts {
    uint32_t count; /* 0: the cache has nothing suitable */
    bool whole;     /* the only part is a whale; it is too small if it is to be stretched */
    struct whale parts[WHALE_PARTS_MAX];
};
/* Takes ranges for a whale of `size` bytes, a multiple of the OS page, at a multiple of
 * `alignment`, a power of two and at least the OS page. `want_zero`: takes nothing from a range
 * with more than WHALE_CLEAR_MAX resident bytes, which calloc would have to clear. */
HAK_HIDDEN void hak__whale_cache_take(struct whale_parts *taken, size_t size, size_t alignment,
                                      bool want_zero);
/* Takes up to `size` bytes that directly follow `whale` and are parts of the same mapping. Returns
 * the bytes taken; 0: none. */
HAK_HIDDEN size_t hak__whale_cache_take_next(struct whale whale, size_t size);
/* Bytes that the cache may hold beyond those that it holds now. A hint. */
HAK_HIDDEN size_t hak__whale_cache_room(void);
/* Keeps a freed whale, of which the bound counts `resident` bytes, at most its size. Unmaps it if
 * there is no memory for its entry. */
HAK_HIDDEN void hak__whale_cache_put(struct whale whale, size_t resident);
/* Unmaps a whale that is neither in the cache nor in the registry. Size 0: does nothing. */
HAK_HIDDEN void hak__whale_unmap(struct whale whale);
/* Bytes of all joined whales. Beyond WHALE_JOINED_MAX no whale is joined. */
HAK_HIDDEN extern size_t hak__whale_joined_bytes; /* relaxed */

/* Subtracts a part of a joined whale that is unmapped, lost, or moved into another whale. */
HAK_INLINE void whale_uncount(struct whale whale)
{
    if (whale_is_joined(whale)) {
        atomic_sub_relaxed(&hak__whale_joined_bytes, whale.size);
    }
}

/* Joins a whale of `size` bytes, a multiple of the OS page, from `taken`, of which it consumes all
 * parts: a part that cannot move is unmapped. Address 0: no memory. */
HAK_HIDDEN struct whale hak__whale_join(const struct whale_parts *taken, size_t size,
                                        bool want_zero);

/* Grows a joined whale to `size` bytes: moves it into a new mapping, 2 MiB at a time. If one step
 * fails, the earlier ones are copied back. Needs Linux 5.7. Address 0: that failed, and the whale
 * is as it was. */
HAK_HIDDEN struct whale hak__whale_join_grow(struct whale whale, size_t size);

/* --- canaries --- */

/* Secure form: notes the size of the request and writes the canary behind its end. */
HAK_INLINE void whale_begin_use(struct whale *whale, size_t size)
{
    if (HAK_SECURE && whale->address != 0) {
        *whale->slack = whale->size - size;
        hak__secure_put_gap((void *)whale->address, size, whale->size);
    }
}

/* Secure form: reports a whale whose canary has changed. */
HAK_INLINE void whale_check_canary(const struct whale *whale)
{
    if (HAK_SECURE && HAK_UNLIKELY(!hak__secure_gap_is_whole((const void *)whale->address,
                                                             whale_usable(whale), whale->size))) {
        hak__secure_overflow((const void *)whale->address, whale_usable(whale));
    }
}

#endif
