/* SPDX-License-Identifier: MIT */
/* numa.c: see numa.h. */
#include "region/numa.h"
#include "region/superslab.h"

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/window.h"

HAK_STATIC_ASSERT(GROUP_SLICES == SUPERSLAB_GROUP * SUPERSLAB_SLICES, "it is a group");

struct numa *hak__numa;
HAK_TLS uint8_t hak__numa_node;

#define NUMA_UNKNOWN UINT32_MAX
static uint32_t shared_numa_first = NUMA_UNKNOWN; /* the kernel's number of the first node */

/* The number of the node for which the calling thread claims. */
static uint32_t numa_own(void)
{
    return hak__numa_node == NUMA_ANYWHERE ? 0 : hak__numa_node;
}

static void numa_give_group(struct numa *numa, size_t group, uint32_t node)
{
    uint64_t *word = &numa->groups[group / 64 * NUMA_NODES_MAX + node];
    atomic_store_relaxed(word, *word | UINT64_C(1) << group % 64);
}

/* Makes the table: all groups so far belong to node 0. False: no memory. */
static HAK_COLD bool numa_begin(void)
{
    size_t words = (hak__window.size / SLICE_SIZE / GROUP_SLICES / 64 + 1) * NUMA_NODES_MAX;
    size_t bytes = sizeof(struct numa) + words * sizeof(uint64_t);
    void *place;
    lock_acquire(&hak__growth_lock);
    if (hak__numa == NULL &&
        hak__os_map(bits_align_up(bytes, hak__os_page_size()), hak__os_page_size(), &place) == 0) {
        struct numa *numa = place;
        while (numa->groups_count * GROUP_SLICES < hak__superslabs.frontier) {
            numa_give_group(numa, numa->groups_count++, 0);
        }
        /* release: pairs with the acquire in numa_groups */
        atomic_store_release(&hak__numa, numa);
    }
    lock_release(&hak__growth_lock);
    return atomic_load_acquire(&hak__numa) != NULL;
}

uint32_t hak__numa_look(void)
{
    uint32_t node = hak__os_node(), first = atomic_load_relaxed(&shared_numa_first);
    if (HAK_UNLIKELY(first == NUMA_UNKNOWN) &&
        atomic_cas_acquire(&shared_numa_first, &first, node)) {
        first = node;
    }
    uint32_t own = hak__knobs.numa ? (node ^ first) % NUMA_NODES_MAX : 0;
    if (HAK_UNLIKELY(own != 0) && atomic_load_acquire(&hak__numa) == NULL && !numa_begin()) {
        own = 0;
    }
    hak__numa_node = (uint8_t)own;
    return own;
}

size_t *hak__numa_frontier(void)
{
    uint32_t own = numa_own();
    return own == 0 ? &hak__superslabs.frontier : &hak__numa->frontiers[own];
}

size_t hak__numa_reserve(size_t *frontier, size_t count)
{
    struct numa *numa = hak__numa;
    if (HAK_LIKELY(numa == NULL)) {
        return *frontier;
    }
    uint32_t own = numa_own();
    size_t group = *frontier / GROUP_SLICES, next = numa->groups_count;
    size_t last = (*frontier + count - 1) / GROUP_SLICES;
    bool fits = group >= next ||
                (numa_has_group(&numa->groups[own], group) && (last == group || group + 1 == next));
    size_t first = fits ? *frontier : next * GROUP_SLICES;
    if ((first + count) * SLICE_SIZE > hak__window.size) {
        return first;
    }
    last = (first + count - 1) / GROUP_SLICES;
    for (group = first / GROUP_SLICES; group <= last; group++) {
        numa_give_group(numa, group, own);
    }
    numa->groups_count = last + 1 > next ? last + 1 : next;
    *frontier = first;
    return first;
}

struct slice_run hak__superslab_take(uint32_t count, uint32_t alignment)
{
    struct slice_run run = hak__superslab_take_near(count, alignment);
    if (HAK_UNLIKELY(run.slice == SLICE_NONE) && numa_groups() != NULL &&
        !hak__gate_is_refusal_noted()) {
        uint8_t own = hak__numa_node;
        hak__numa_node = NUMA_ANYWHERE;
        run = hak__superslab_take_near(count, alignment);
        hak__numa_node = own;
    }
    return run;
}
