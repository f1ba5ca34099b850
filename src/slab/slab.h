/* SPDX-License-Identifier: MIT */
/* slab.h: slices cut into objects of one class, and the set of slabs one arena owns.
 *
 * Bins take their objects from slabs and return them there (docs/design/slab.md).
 *
 * Life of a slab:
 *
 *   taken (region) -> partial <-> full
 *                     partial -> idle -> given back (region)
 *
 * A partial slab has free objects or memory that is not carved yet, and is listed. A full slab has
 * neither. In an idle slab all carved objects are back, and N is clear.
 *
 * Words of a slab, with their writers (O: a thread that holds the owner arena's lock; A: any
 * thread, atomically):
 *
 *   O free_list, free_count   free objects of the slab (struct object)
 *   A shared_remote           objects that other threads freed:  | head 32 | N 1 | count 31 |
 *                             head: first object's distance from the slab's start in granules of
 *                             16 bytes, plus 1; 0 when there is none
 *                             N (notified): the slab is on its owner's notify stack, or about to be
 *   O carved_count            objects cut so far, in address order; the rest was never handed out
 *   O purged_count            carved objects that a purge has taken off the free list: each has a
 *                             byte in a page whose bit in purged_pages is set (slab_pages.c)
 *   O look_at                 a return that brings free_count to it looks closer at the slab; 0:
 *                             each return does
 *   O owner                   constant while the slab exists
 *   A shared_link             next slab on the notify stack: the number of its first slice, plus 1;
 *                             0 in the last slab
 *   O previous, next          the owner's list of slabs of this class that have objects to give;
 *                             the first one's `previous` is the last
 *
 * Invariants
 *   1. free_count + remote count + objects in bins and remote buffers + in use =
 *      carved_count - purged_count
 *   2. free_count > 0, purged_count > 0 or carved_count < capacity => listed;
 *      remote count > 0 => listed or N
 *   3. free_count < look_at => listed, not idle, and purged_count = 0. What may break this clears
 *      look_at: the next return sets it again. A remote free may not: the drain that clears N does.
 *   4. A slab with N set is never given back. Only a drain clears N, after it took the slab off the
 *      stack.
 *
 * Why 4: a remote freer adds its objects and sets N in one step, and pushes the slab on the stack
 * in a second step. Between the steps the owner may take the objects and find the slab empty. If it
 * gave the slab back at that moment, the freer would push a slab that belongs to somebody else.
 *
 * Locks: the arena's lock guards each word that is marked O, and the slab set except its shared
 * words.
 */
#ifndef HAK_SLAB_SLAB_H
#define HAK_SLAB_SLAB_H

#include "base/atomics.h"
#include "base/check.h"
#include "core/counters.h"
#include "core/lock.h"
#include "core/size_class.h"
#include "region/object.h"

struct slab_set;

struct slab {
    struct object *free_list;
    uint64_t shared_remote;
    struct slab_set *owner;
    struct slab *previous;
    struct slab *next;
    uint16_t free_count;
    uint16_t purged_count;
    uint16_t carved_count;
    uint16_t purge_seen; /* free_count at the last purge pass; 0: some were taken since */
    uint32_t shared_link;
    uint16_t capacity;
    uint8_t class_index;
    uint8_t slice_count;
    uint8_t slices_back;  /* set for each slice of the slab: its distance from the first one */
    uint8_t purged_pages; /* set for each slice: a bit for each 4 KiB, see slab_pages.c */
    bool listed : 1;
    bool untouched : 1;       /* none of its pages was resident when the slab was taken */
    bool closed_end : 1;      /* secure form: no access survives its last page */
    bool kept : 1;            /* idle, and kept with its class */
    uint8_t purge_passes : 4; /* since some were taken; PAGES_PASSES + 1: the list was walked */
    uint16_t first; /* bytes from the slab's start to its first object (core/size_class.h) */
    uint16_t look_at;
};

HAK_STATIC_ASSERT(sizeof(struct slab) <= HAK_CACHE_LINE, "slab metadata is one cache line");

/* Slices of a slab that was given back; count 0: none. */
struct quarantined_slices {
    uint32_t slice;
    uint32_t count;
};

/* Secure form: slabs that were given back last. They go back to the region later, so that a pointer
 * into one does not point into another class's slab at once. */
struct slab_quarantine {
    /* Secure form: slabs of an arena that wait before they may become slabs of another class. Twice
     * as many: twice the time, and twice the memory that waits. */
    struct quarantined_slices slabs[8];
    uint32_t next;
};

/* The slabs of one arena. Everything but the shared words is written under the arena's lock. */
struct slab_set {
    uint32_t key;             /* arena id << 8: owner words of its slabs are key | code */
    uint32_t shared_notified; /* A: top of the notify stack: its first slice + 1; 0: empty */
    uint32_t shared_pending;  /* A: about how many slabs were pushed since the last drain */
    uint32_t shared_patience; /* if so many are pending, other threads drain; relaxed */
    uint32_t shared_threads;  /* that draw from the arena; relaxed */
    uint32_t part;            /* from which it takes slices (region/superslab.h) */
    struct counters counters;
    /* [class]: the first slab that has objects to give. Other threads read it relaxed. */
    struct slab *partial[CLASS_COUNT];
    size_t slices;                  /* of its slabs */
    size_t not_carved_bytes;        /* of objects never handed out, or whose pages were purged */
    struct lock *lock;              /* the arena's; constant */
    uint32_t shared_kept;           /* slices of the kept slabs; others read it relaxed */
    uint32_t kept_least;            /* the least of them since the last trim */
    struct slab *kept[CLASS_COUNT]; /* [class], linked by `next`; see slab_kept.c */
    struct slab_quarantine quarantine[QUARANTINES];
};

/* Secure form: clears the carved objects of a refill and links them in random order. */
HAK_HIDDEN struct object_list hak__refill_shuffle(struct refill refill);
HAK_INLINE void refill_shuffle(struct refill *refill)
{
    if (HAK_SECURE && refill->stride != 0) {
        refill->list = hak__refill_shuffle(*refill);
        refill->stride = 0;
    }
}

/* Takes the first object; list.count is not 0. Those of a linked list have `mark`. A carved object
 * is not touched, but in the secure form. So memory that the program never writes costs nothing,
 * and the program's first write causes the page fault, not malloc. The refill belongs to one
 * thread; no lock. */
HAK_INLINE struct object *refill_pop(struct refill *refill, uint32_t class_index, uintptr_t mark)
{
    refill_shuffle(refill);
    struct object *object = refill->list.head;
    refill->list.count--;
    if (refill->stride == 0) {
        if (HAK_UNLIKELY(!object_pop(object, class_index, mark, &refill->list.head))) {
            hak__object_is_wrong(object);
        }
    } else {
        unsigned char *next = (unsigned char *)object + refill->stride;
        refill->list.head = refill->list.count == 0 ? NULL : (struct object *)(void *)next;
    }
    return object;
}

/* Returns the refill as a linked list. Carved objects get `mark`. The thread that got the refill
 * calls it, without a lock: the first touch of a page takes the kernel a microsecond or more, and
 * no other thread should wait for that. */
HAK_INLINE struct object_list refill_link(struct refill refill, uintptr_t mark)
{
    refill_shuffle(&refill);
    if (refill.stride != 0 && refill.list.count != 0) {
        unsigned char *at = (unsigned char *)refill.list.head;
        for (uint32_t i = 1; i < refill.list.count; i++, at += refill.stride) {
            object_set_free((struct object *)(void *)at,
                            (struct object *)(void *)(at + refill.stride), mark);
        }
        object_set_free((struct object *)(void *)at, NULL, mark);
    }
    return refill.list;
}

/* The number of the slab's first slice. */
HAK_INLINE size_t slab_slice(const struct slab *slab)
{
    return (size_t)((const unsigned char *)slab - hak__window.slabs) / HAK_CACHE_LINE;
}

/* The slab that `slice` is a part of. The caller knows from the owner word that there is one. */
HAK_INLINE struct slab *slab_of_slice(size_t slice)
{
    struct slab *slab = window_slab_metadata(slice);
    return window_slab_metadata(slice - slab->slices_back);
}

/* The id of the slab's arena, for reports. 0: there is no slab; the metadata of free slices may
 * have gone back to the kernel. */
HAK_INLINE uint32_t slab_arena_id(const struct slab *slab)
{
    return slab->owner != NULL ? slab->owner->key >> OWNER_CODE_BITS : 0;
}

HAK_INLINE unsigned char *slab_start(const struct slab *slab)
{
    return (unsigned char *)window_slice_address(slab_slice(slab));
}

/* Carved objects that no purge has taken away: free ones, and those handed out. */
HAK_INLINE uint32_t slab_cut_count(const struct slab *slab)
{
    return (uint32_t)slab->carved_count - slab->purged_count;
}

#define REMOTE_NOTIFIED (UINT64_C(1) << 31)
#define REMOTE_COUNT_MASK (REMOTE_NOTIFIED - 1)

/* The objects in the remote word. Any thread; may be out of date at once. */
HAK_INLINE uint32_t slab_remote_count(const struct slab *slab)
{
    return (uint32_t)(atomic_load_relaxed(&slab->shared_remote) & REMOTE_COUNT_MASK);
}

/* Free objects in the slab: its free list and its remote frees. Under the arena's lock, or while
 * nobody uses the arena. */
HAK_INLINE uint32_t slab_free_objects(const struct slab *slab)
{
    return slab->free_count + slab_remote_count(slab);
}

/* Where objects of a slab start: `carved` of them, from `first` on. A copy, for loops over many
 * objects of one slab. */
struct slab_grid {
    const unsigned char *first;
    uint64_t reciprocal;
    uint32_t carved;
};

/* Any thread. relaxed: the caller may be without the arena's lock. A valid object was carved before
 * the caller got its address. */
HAK_INLINE struct slab_grid slab_grid_of(const struct slab *slab, uint32_t class_index)
{
    return (struct slab_grid){slab_start(slab) + slab->first, hak__size_reciprocals[class_index],
                              atomic_load_relaxed(&slab->carved_count)};
}

/* True if an object starts at `pointer`, which may be any address. */
HAK_INLINE bool slab_grid_has(struct slab_grid grid, const void *pointer)
{
    size_t offset = (size_t)((const unsigned char *)pointer - grid.first);
    return size_class_starts(offset, grid.reciprocal, grid.carved);
}

/* True if a carved object of the slab starts at `pointer`, which may be any address. Any thread. */
HAK_INLINE bool slab_is_object(const struct slab *slab, const void *pointer)
{
    return slab_grid_has(slab_grid_of(slab, slab->class_index), pointer);
}

/* Aborts if no carved object of the slab starts at `pointer`. It stands at the slow doors that
 * freed objects pass: where a bin gets its first object, and where bins and remote buffers return
 * theirs. Any thread. */
HAK_HIDDEN HAK_COLD void hak__slab_not_object(const struct slab *slab, const void *pointer);
HAK_INLINE void slab_check_object(const struct slab *slab, const void *pointer)
{
    if (HAK_UNLIKELY(!slab_is_object(slab, pointer))) {
        hak__slab_not_object(slab, pointer);
    }
}

/* Takes 1 to `most` objects (`most` at least 1) of one slab of the class. It takes them from the
 * first of these sources that has any: free list, remote frees, carving, a new slab. count 0: no
 * memory. Under the arena's lock. */
HAK_HIDDEN struct refill hak__slab_refill(struct slab_set *set, uint32_t class_index,
                                          uint32_t most);

/* True if a refill of the class needs a new slab, and that slab would raise the peak of slices in
 * use. The caller then tries to borrow from other arenas. A hint. Under the arena's lock. */
HAK_HIDDEN bool hak__slab_refill_grows(struct slab_set *set, uint32_t class_index);
HAK_INLINE bool slab_refill_grows(struct slab_set *set, uint32_t class_index)
{
    return HAK_UNLIKELY(set->partial[class_index] == NULL) &&
           hak__slab_refill_grows(set, class_index);
}

/* Takes up to `most` (at least 1) free objects of one slab of the class, for a thread of another
 * arena. It carves nothing. count 0: there is none. Under the lending arena's lock. */
HAK_HIDDEN struct object_list hak__slab_lend(struct slab_set *set, uint32_t class_index,
                                             uint32_t most);

/* False if hak__slab_lend would probably find nothing. Any thread, no lock. A hint. */
HAK_INLINE bool slab_may_lend(const struct slab_set *set, uint32_t class_index)
{
    return atomic_load_relaxed(&set->partial[class_index]) != NULL ||
           atomic_load_relaxed(&set->shared_notified) != 0;
}

/* True if the arena keeps idle slabs. Any thread, no lock. A hint. */
HAK_INLINE bool slab_keeps(const struct slab_set *set)
{
    return atomic_load_relaxed(&set->shared_kept) != 0;
}

/* The two ends of a return that looks closer. The first lists the slab, and aborts if it notices a
 * double free. The second keeps the slab or gives it back if it is idle, even if it is the last of
 * its class: a loop around a few objects uses only its bin, and so empties no slab. Both under the
 * lock of the slab's arena. */
HAK_HIDDEN void hak__slab_check_return(struct slab *slab, struct object_list list);
HAK_HIDDEN void hak__slab_put_if_idle(struct slab_set *set, struct slab *slab);

/* Returns a list of objects, which ends in `tail`, to its slab. Under the lock of the slab's
 * arena. */
HAK_INLINE void slab_return(struct slab *slab, struct object_list list, struct object *tail)
{
    uint32_t free_count = slab->free_count + list.count;
    bool looks = HAK_UNLIKELY(free_count >= slab->look_at || list.head == slab->free_list);
    if (looks) {
        hak__slab_check_return(slab, list);
    }
    object_link(tail, slab->free_list);
    slab->free_list = list.head;
    slab->free_count = (uint16_t)free_count;
    if (looks) {
        hak__slab_put_if_idle(slab->owner, slab);
    }
}

/* Returns a list of objects of one slab for a thread that does not hold the owner's lock: one
 * atomic operation, or three if the owner must be notified. Any thread, no lock. Returns NULL, or
 * the owner if this call notified it and at least shared_patience notifications are unread: the
 * caller should drain for it. */
HAK_HIDDEN struct slab_set *hak__slab_return_remote(struct slab *slab, struct object_list list,
                                                    struct object *tail);

/* The same for one object, which is in no list. */
HAK_INLINE void slab_return_one(struct slab *slab, struct object *object)
{
    object_set_free(object, NULL, object_mark_of(slab->owner->key));
    (void)hak__slab_return_remote(slab, (struct object_list){object, 1}, object);
}

/* Empties the notify stack: lists the slabs on it, and keeps idle ones or gives them back. Returns
 * the number of slabs that were on it. Any thread, under the arena's lock. */
HAK_HIDDEN uint32_t hak__slab_drain(struct slab_set *set);

/* slab_kept.c. Gives kept slabs back to the region: at least `slices` slices, or all. Under the
 * arena's lock. */
HAK_HIDDEN void hak__slab_give_kept(struct slab_set *set, uint32_t slices);
/* Gives back those that were not needed since the last trim. Under the arena's lock. */
HAK_HIDDEN void hak__slab_trim_kept(struct slab_set *set);

/* slab_pages.c. Returns whole pages of free objects to the OS if nothing was taken from the slab's
 * free list since `passes` calls before. Returns what the call cost, in bytes: those purged, and
 * what a walk of the free list counts for. Under the arena's lock; `slab` is one of its slabs. */
HAK_HIDDEN size_t hak__slab_purge(struct slab_set *set, struct slab *slab, uint32_t passes);

/* Secure form: gives the slabs that rest back to the region. Under the arena's lock. */
HAK_HIDDEN void hak__slab_end_quarantine(struct slab_set *set);

/* Assertion level 2: checks all listed and kept slabs; aborts at an error. Under the arena's
 * lock. */
HAK_HIDDEN void hak__slab_set_check(const struct slab_set *set);

#endif
