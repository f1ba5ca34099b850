/* SPDX-License-Identifier: MIT */
/* numa.h: memory nodes (NUMA): which superslabs lie on the node of which processors.
 *
 * The kernel puts a page on the node of the processor that touches it first. So hakmem binds
 * nothing: it hands out memory only to threads of the node that touched it.
 *
 *   group (128 MiB of addresses)  belongs to the node for which its first superslab was claimed,
 *                                 for good. A thread takes slices of its node's groups, and claims
 *                                 superslabs for its node: each node has a frontier of its own. It
 *                                 takes another node's slices only if there is no memory.
 *   heap                          belongs to the node of its first thread (heap/heap.c).
 *   huge allocation               notes its node in its origin (large/whale.h). A request takes
 *                                 freed ones of its node only.
 *
 * Number of a node: the kernel's, exclusive or that of the node on which the process began. So the
 * first node has the number 0, and there is no table while all threads run there. Then nothing
 * differs from a machine with one node. With the table there is one page more for each 512 GiB of
 * heap, a group that is partly claimed for each node, and 0.2 % of its addresses for its tables.
 *
 * A thread learns its number where it joins a heap and at its ticks (hak__os_node), without a
 * system call. Slices that were purged are touched anew, so they lie where their group does. A
 * thread that was moved by the kernel takes slices of its new node from its next tick on.
 *
 * Locks: the table is made and changed under GROWTH. Searches read it under REGION, with relaxed
 * loads: a group gets its node before its first superslab is published under REGION. Others read it
 * without a lock, for slices that are in use; a group's node does not change. */
#ifndef HAK_REGION_NUMA_H
#define HAK_REGION_NUMA_H

#include "base/atomics.h"
#include "core/limits.h"

/* Nodes that are told apart; others share a number. Twice: twice the table, 64 KiB of addresses for
 * each TiB of the window. */
#define NUMA_NODES_MAX 64u
/* Slices of a group (region/superslab.h). */
#define GROUP_SLICES ((size_t)64 * SUPERSLAB_SLICES)

struct numa {
    size_t groups_count;              /* groups that belong to a node; all are lower than others */
    size_t frontiers[NUMA_NODES_MAX]; /* as hak__superslabs.frontier, which is that of node 0 */
    uint64_t groups[];                /* [group / 64][node]: bit group % 64; relaxed */
};
/* NULL: all threads have run on one node so far. Written once. */
HAK_HIDDEN extern struct numa *hak__numa;

/* The number of the calling thread's node when it last looked. */
#define NUMA_ANYWHERE UINT8_MAX /* while there is no memory on its node */
HAK_HIDDEN extern HAK_TLS uint8_t hak__numa_node;

/* Looks on which node the calling thread runs, and returns its number. Makes the table if it is not
 * 0. The caller is inside the gate and holds no lock. */
HAK_HIDDEN uint32_t hak__numa_look(void);

/* The groups of the calling thread's node: a word for each 64 groups, NUMA_NODES_MAX apart. NULL:
 * all groups. */
HAK_INLINE const uint64_t *numa_groups(void)
{
    /* acquire: pairs with the release in numa_begin */
    const struct numa *numa = atomic_load_acquire(&hak__numa);
    return HAK_LIKELY(numa == NULL) || hak__numa_node == NUMA_ANYWHERE
               ? NULL
               : numa->groups + hak__numa_node;
}

/* `groups` is not NULL. */
HAK_INLINE bool numa_has_group(const uint64_t *groups, size_t group)
{
    return (atomic_load_relaxed(&groups[group / 64 * NUMA_NODES_MAX]) >> group % 64 & 1) != 0;
}

/* True: the slice belongs to another node than that of the calling thread. */
HAK_INLINE bool numa_is_far(size_t slice)
{
    const uint64_t *groups = numa_groups();
    return HAK_UNLIKELY(groups != NULL) && !numa_has_group(groups, slice / GROUP_SLICES);
}

/* Where the calling thread's node claims its next slice. Under GROWTH. */
HAK_HIDDEN size_t *hak__numa_frontier(void);
/* Lets `count` slices from *frontier on belong to the calling thread's node, and returns the first.
 * If they lie in another's groups, *frontier moves to groups that belong to no node yet. Beyond the
 * window's end nothing changes. Under GROWTH. */
HAK_HIDDEN size_t hak__numa_reserve(size_t *frontier, size_t count);

#endif
