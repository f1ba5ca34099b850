/* SPDX-License-Identifier: MIT */
/* slab_lists.h: a set's lists, for the files of slab/. Locks: the caller holds the lock
 * of the set's arena. */
#ifndef HAK_SLAB_SLAB_LISTS_H
#define HAK_SLAB_SLAB_LISTS_H

#include "slab/slab.h"

/* Counts objects that were never handed out, or whose pages were purged; fewer if negative. */
HAK_INLINE void slab_add_not_carved(struct slab_set *set, const struct slab *slab, int32_t count)
{
    set->not_carved_bytes += (size_t)count * size_class_bytes(slab->class_index);
}

/* The first slab's `previous` is the last one. */
HAK_INLINE void slab_list(struct slab_set *set, struct slab *slab)
{
    struct slab **first = &set->partial[slab->class_index];
    slab->previous = slab;
    slab->next = *first;
    if (slab->next != NULL) {
        slab->previous = slab->next->previous;
        slab->next->previous = slab;
    }
    atomic_store_relaxed(first, slab); /* slab_may_lend reads it without the lock */
    slab->listed = true;
}

/* Reports a list whose links were overwritten, and aborts. In slab.c. */
HAK_HIDDEN HAK_COLD void hak__slab_list_is_wrong(const struct slab *slab);

HAK_INLINE void slab_unlist(struct slab_set *set, struct slab *slab)
{
    struct slab *first = set->partial[slab->class_index], *next = slab->next;
    if (HAK_UNLIKELY((next != NULL ? next : first)->previous != slab ||
                     (slab != first && slab->previous->next != slab))) {
        hak__slab_list_is_wrong(slab);
    }
    if (slab == first) {
        atomic_store_relaxed(&set->partial[slab->class_index], next);
    } else {
        slab->previous->next = next;
    }
    (next != NULL ? next : first)->previous = slab->previous;
    slab->listed = false;
    slab->look_at = 0;
}

/* Makes a listed slab the last one, which refills take from when all others are used up. */
HAK_INLINE void slab_list_last(struct slab_set *set, struct slab *slab)
{
    if (slab->next != NULL) {
        slab_unlist(set, slab);
        struct slab *first = set->partial[slab->class_index];
        slab->previous = first->previous;
        slab->previous->next = slab;
        slab->next = NULL;
        first->previous = slab;
        slab->listed = true;
    }
}

/* Gives the slices of an idle slab back to the region. In slab.c. */
HAK_HIDDEN void hak__slab_give_back(struct slab_set *set, struct slab *slab);

/* slab_pages.c. Aborts if an object of the list, which comes back to the slab, is a purged one. */
HAK_HIDDEN void hak__slab_check_purged(const struct slab *slab, struct object_list list);
/* Up to `most` objects of the slab's lowest purged page; purged_count is not 0. */
HAK_HIDDEN struct refill hak__slab_cut_again(struct slab_set *set, struct slab *slab,
                                             uint32_t most);

/* slab_kept.c. Keeps the idle slab, or gives it back. */
HAK_HIDDEN void hak__slab_keep(struct slab_set *set, struct slab *slab);
/* A slab of the class, which is kept no longer. NULL: none is kept. */
HAK_HIDDEN struct slab *hak__slab_take_kept(struct slab_set *set, uint32_t class_index);
/* True if `slices` slices more would raise the peak, also when some kept slabs have gone back. A
 * hint. Not all of them go: one malloc would take long. */
HAK_HIDDEN bool hak__slab_would_grow(struct slab_set *set, uint32_t slices);

/* slab_secure.c. Makes a new slab one of the secure form. */
HAK_HIDDEN void hak__slab_begin_secure(struct slab *slab);
/* Lets the slices of a slab rest that is given back. Returns those to give to the region now, which
 * have waited longest; count 0: none. */
HAK_HIDDEN struct quarantined_slices hak__slab_end_secure(struct slab_set *set,
                                                          const struct slab *slab);

#endif
