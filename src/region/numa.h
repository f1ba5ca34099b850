/* SPDX-License-Identifier: MIT */
/* numa.h: memory nodes (NUMA): which memory lies on the node of which processors.
 *
 * The kernel puts a page on the node of the processor that touches it first. So hakmem binds
 * nothing: it hands out memory only to threads of the node that touched it.
 *
 *   part of the superslabs  belongs to the node of the first arena that has it (superslab.h). Its
 *                           slices go to arenas of that node, and to others only if there is no
 *                           memory.
 *   arena                   belongs to the node of its first thread (arena/arena.c).
 *   huge block              notes its node in its origin (large/huge.h). A request takes freed
 *                           ones of its node only.
 *
 * Number of a node: the kernel's, exclusive or that of the node on which the process began. So the
 * first node has the number 0. While all threads run there, nothing differs from a machine with one
 * node.
 *
 * A thread learns its number where it joins an arena and at its ticks (hak__os_node), without a
 * system call. Slices that were purged are touched anew, so they lie where their part does.
 *
 * Locks: none. A superslab's part and a part's node do not change, nor does an arena's node. */
#ifndef HAK_REGION_NUMA_H
#define HAK_REGION_NUMA_H

#include "base/atomics.h"
#include "core/lock.h"

/* The number of the calling thread's node when it last looked. */
HAK_INLINE uint8_t numa_node(void)
{
    return hak__own.node;
}

/* A thread was seen on another node than the first. Relaxed: only then do places of memory matter,
 * and a thread that does not see it yet puts some on a wrong node. */
HAK_HIDDEN extern bool hak__numa_several;

/* Looks on which node the calling thread runs, and returns its number. The caller is inside the
 * gate. */
HAK_HIDDEN uint32_t hak__numa_look(void);

/* The node of a slice in use. */
HAK_HIDDEN uint32_t hak__numa_node_of(size_t slice);

/* True: the slice, which is in use, belongs to another node than that of the calling thread. */
HAK_INLINE bool numa_is_far(size_t slice)
{
    return HAK_UNLIKELY(atomic_load_relaxed(&hak__numa_several)) &&
           hak__numa_node_of(slice) != numa_node();
}

#endif
