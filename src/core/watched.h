/* SPDX-License-Identifier: MIT */
/* watched.h: whether a thread of the program may watch memory by a userfaultfd.
 *
 * munmap, mremap and MADV_DONTNEED of watched memory wait until that thread has read what happened,
 * and the first touch of a page waits until it has brought the page. So it waits for itself if its
 * malloc unmaps or purges what another thread has freed, or gives it such memory. While the program
 * has a userfaultfd, blocks above 64 KiB therefore go back to the kernel where they are freed, and
 * ticks purge nothing.
 *
 * The kernel tells nothing about a range but to its watcher. So hakmem looks at the process's
 * files, half a purge delay apart. */
#ifndef HAK_CORE_WATCHED_H
#define HAK_CORE_WATCHED_H

#include "base/alone.h"
#include "base/atomics.h"
#include "base/compiler.h"

enum watched_state { WATCHED_UNKNOWN, WATCHED_NO, WATCHED_YES };
HAK_HIDDEN extern uint32_t hak__watched_state; /* relaxed: a hint */

/* The slow half of watched. */
HAK_HIDDEN bool hak__watched_look(void);

HAK_INLINE bool watched(void)
{
    /* alone: another process may watch, and does not wait for this one's malloc */
    return atomic_load_relaxed(&hak__watched_state) != WATCHED_NO && !alone() &&
           hak__watched_look();
}

/* The next one that asks looks again. */
HAK_INLINE void watched_forget(void)
{
    atomic_store_relaxed(&hak__watched_state, (uint32_t)WATCHED_UNKNOWN);
}

#endif
