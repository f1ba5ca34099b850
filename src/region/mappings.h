/* SPDX-License-Identifier: MIT */
/* mappings.h: keeps mappings for the program. Linux allows a process 65,530 (vm.max_map_count);
 * then no thread starts, and memory inside a mapping cannot be unmapped.
 *
 * hakmem counts the ranges of its huge blocks, live and cached. Whatever the kernel joins and
 * whichever huge block is freed first, they are never more mappings than ranges. Where the count
 * ends, huge blocks are taken from superslabs, which lie side by side: freed ones are emptied and
 * meet their neighbours.
 *
 * The count and the notes are relaxed: each is a number of its own, and a thread that reads an old
 * one makes a mapping more.
 */
#ifndef HAK_REGION_MAPPINGS_H
#define HAK_REGION_MAPPINGS_H

#include "base/atomics.h"

/* Ranges of huge blocks, live and cached. Written under HUGE. */
HAK_HIDDEN extern size_t hak__mappings_huge; /* relaxed */

HAK_INLINE void mappings_add_huge(size_t added)
{
    atomic_store_relaxed(&hak__mappings_huge, hak__mappings_huge + added);
}

HAK_INLINE void mappings_remove_huge(size_t removed)
{
    atomic_store_relaxed(&hak__mappings_huge, hak__mappings_huge - removed);
}

/* True: hakmem may have MAPPINGS_MAX mappings, or the kernel has refused one lately. Then hakmem
 * should make no mapping that is not the continuation of another, and no hole in one. Any thread.
 */
HAK_HIDDEN bool hak__mappings_are_short(void);
/* True: superslabs that were unmapped have left so many holes that a pass by ticks makes no more.
 * Each may cost a mapping. Any thread. */
HAK_HIDDEN bool hak__mappings_have_holes(void);
/* After the kernel has refused a mapping: true if it was not for want of memory. It tries to map a
 * page, and to extend a mapping by one. Inside the gate (core/gate.h), or without other threads. */
HAK_HIDDEN bool hak__mappings_probe(void);
/* As hak__os_map_at, for slices [first, first + count), which no superslab has. If the kernel
 * allows no further mapping, it extends the one of the superslab before. Under GROWTH. */
HAK_HIDDEN int hak__mappings_claim(size_t first, size_t count);

#endif
