/* SPDX-License-Identifier: MIT */
/* numa.c: see numa.h. */
#include "region/numa.h"

#include "core/knobs.h"
#include "os/os.h"
#include "region/superslab.h"

bool hak__numa_several;

static uint32_t shared_numa_first = UINT32_MAX; /* the kernel's number of the first node */

uint32_t hak__numa_node_of(size_t slice)
{
    return superslab_part_of(slice / SUPERSLAB_SLICES)->node;
}

uint32_t hak__numa_look(void)
{
    uint32_t node = hak__os_node(), first = atomic_load_relaxed(&shared_numa_first);
    if (HAK_UNLIKELY(first == UINT32_MAX) && atomic_cas_acquire(&shared_numa_first, &first, node)) {
        first = node;
    }
    /* Nodes that are told apart; others share a number. It has 8 bits. */
    uint32_t own = hak__knobs.numa ? (node ^ first) % 64 : 0;
    if (HAK_UNLIKELY(own != 0) && !atomic_load_relaxed(&hak__numa_several)) {
        atomic_store_relaxed(&hak__numa_several, true);
    }
    hak__own.node = (uint8_t)own;
    return own;
}
