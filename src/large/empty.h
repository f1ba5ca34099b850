/* SPDX-License-Identifier: MIT */
/* empty.h: blocks of size 0 in the secure form. Each is an address of its own in a range whose
 * pages are closed, so the first byte that a program reads or writes there faults.
 *
 *   malloc(0)  the next address of the range that no block has
 *   free       takes the block's bit away; without one it is a double or invalid free
 *
 * An address is not used again before all others were, so a double free is noticed for long.
 *
 * Concurrency: no lock. A bit for each address says that it is in use; it changes by relaxed
 * read-modify-write operations, of which one of two threads wins. They order nothing, because a
 * block has no contents. */
#ifndef HAK_LARGE_EMPTY_H
#define HAK_LARGE_EMPTY_H

#include "base/atomics.h"
#include "core/limits.h"
#include "region/secure.h"

/* Blocks at once; further ones are small objects. Twice: 4 MiB more of addresses in programs that
 * ask for size 0. Half: fewer blocks are closed, and a double free is noticed half as long. */
#define EMPTY_BLOCKS_MAX ((size_t)1 << (!HAK_SECURE ? 6 : HAK_TINY_LIMITS ? 12 : 18))
#define EMPTY_RANGE_SIZE (EMPTY_BLOCKS_MAX * OBJECT_ALIGNMENT)

/* The start of the range; 0: there is none yet. Relaxed: written once, and only compared. */
HAK_HIDDEN extern uintptr_t hak__empty_range;

/* True: the pointer lies in the range, whether a block starts there or not. */
HAK_INLINE bool empty_contains(const void *pointer)
{
    uintptr_t range = secure_field(&hak__empty_range);
    return HAK_UNLIKELY(range != 0 && (uintptr_t)pointer - range < EMPTY_RANGE_SIZE);
}

/* A new block. NULL: there is none. Any thread, also in a signal handler. */
HAK_HIDDEN void *hak__empty_allocate(void);
/* Makes the range, if there is none. False: no addresses. Inside the gate, after the start. */
HAK_HIDDEN bool hak__empty_start(void);
/* Frees a block of the range. A fatal report if none starts there. */
HAK_HIDDEN void hak__empty_free(const void *pointer);
/* A fatal report if no block starts at the pointer, which lies in the range. */
HAK_HIDDEN void hak__empty_check(const void *pointer);

#endif
