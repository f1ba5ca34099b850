/* SPDX-License-Identifier: MIT */
/* slab_kept.c: idle slabs that an arena keeps.
 *
 * An idle slab stays with its class, as it is, with its objects in its free list. The arena gives
 * kept slabs back before it takes slices that would raise the peak, all of them before a new span,
 * which needs adjacent slices, and at each trim as many as were not needed since. So memory that
 * goes up and down takes no lock of the process, and no peak is higher for it. Programs' loops do
 * that by slabs of one class, and the objects need not be carved again. At most SLABS_KEPT_SLICES,
 * so that a trim ends soon.
 *
 * All objects of such a slab are free, so whoever frees one makes a mistake: a thread of the arena
 * is told by slab_return, which counts, another thread by the drain that finds the slab.
 *
 * Locks: all of it is under the lock of the set's arena. */
#include "region/superslab.h"
#include "slab/slab_lists.h"

/* Only for threads that may use it again: not in an arena without threads. The secure form keeps it
 * for the next thread, because a new slab takes it two system calls. */
static bool slab_may_keep(const struct slab_set *set, const struct slab *slab)
{
    return (HAK_SECURE || atomic_load_relaxed(&set->shared_threads) != 0) &&
           set->shared_kept + slab->slice_count <= SLABS_KEPT_SLICES;
}

void hak__slab_keep(struct slab_set *set, struct slab *slab)
{
    if (!slab_may_keep(set, slab)) {
        hak__slab_give_back(set, slab);
        return;
    }
    if (slab->listed) {
        slab_unlist(set, slab);
    }
    struct slab **list = &set->kept[slab->class_index];
    slab->kept = true;
    slab->next = *list;
    *list = slab;
    atomic_store_relaxed(&set->shared_kept, set->shared_kept + slab->slice_count);
}

struct slab *hak__slab_take_kept(struct slab_set *set, uint32_t class_index)
{
    struct slab *slab = set->kept[class_index];
    if (slab != NULL) {
        uint32_t left = set->shared_kept - slab->slice_count;
        set->kept[class_index] = slab->next;
        slab->kept = false;
        atomic_store_relaxed(&set->shared_kept, left);
        set->kept_least = left < set->kept_least ? left : set->kept_least;
    }
    return slab;
}

void hak__slab_give_kept(struct slab_set *set, uint32_t slices)
{
    uint32_t rest = slices < set->shared_kept ? set->shared_kept - slices : 0;
    for (uint32_t class_index = 1; set->shared_kept > rest; class_index++) {
        HAK_ASSERT(class_index < CLASS_COUNT);
        while (set->shared_kept > rest && set->kept[class_index] != NULL) {
            hak__slab_give_back(set, hak__slab_take_kept(set, class_index));
        }
    }
}

void hak__slab_trim_kept(struct slab_set *set)
{
    hak__slab_give_kept(set, set->kept_least);
    set->kept_least = set->shared_kept;
}

bool hak__slab_would_grow(struct slab_set *set, uint32_t slices)
{
    if (slab_keeps(set) && hak__superslab_would_grow(slices)) {
        hak__slab_give_kept(set, 2 * slices);
    }
    return hak__superslab_would_grow(slices);
}
