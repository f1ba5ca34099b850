/* slab.h: slices cut into objects of one class, and the set of slabs one heap owns.
 *
 * Life of a slab:
 *
 *   taken (region) -> carving -> full <-> partial -> empty -> given back (region)
 *
 * Words of a slab, with their writers (O: the owner heap, under its lock; A: any thread,
 * atomically):
 *
 *   O free_list, free_count   objects in the slab, linked through their first word
 *   A shared_remote           objects other threads freed:  | head 32 | N 1 | count 31 |
 *                             head: index of the first one's 16-byte granule + 1, 0 when empty
 *                             N (notified): the slab is on its owner's notify stack, or about to be
 *   O carved_count            objects cut so far, in address order; the rest is untouched memory
 *   O owner                   constant while the slab exists
 *   A shared_link             next on the notify stack: slice + 1, 0 at the end
 *   O previous, next          the owner's list of slabs of this class that have something to give
 *   O remote_seen             remote objects that the set's totals count
 *
 * Invariants
 *   objects = free_count + remote count + in bins and remote buffers + in use = carved_count
 *   free_count > 0 or carved_count < capacity => listed;  remote count > 0 => listed or N
 *   a slab with N set is never given back: only draining, which took it off the stack, clears N
 *   N clear => remote_seen = remote count: draining counts, and whoever adds more sets N
 *
 * Why the last: a remote freer sets N with its objects in one step and then pushes the slab on the
 * stack. In between the owner may already have taken the objects and found the slab empty. Giving
 * it back then would leave the freer holding a slab that is no longer this heap's.
 */
#ifndef HAK_SLAB_SLAB_H
#define HAK_SLAB_SLAB_H

#include "base/atomics.h"
#include "base/check.h"
#include "core/counters.h"
#include "core/size_class.h"
#include "region/window.h"

/* The first word of a free object. */
struct object {
    struct object *next;
};

struct slab_set;

struct slab {
    struct object *free_list;
    uint64_t shared_remote;
    struct slab_set *owner;
    struct slab *previous;
    struct slab *next;
    uint32_t free_count;
    uint32_t carved_count;
    uint32_t shared_link;
    uint16_t capacity;
    uint8_t class_index;
    uint8_t slice_count;
    uint8_t slices_back; /* in the metadata of a slab's further slices: how many back its head is */
    bool listed;
    bool untouched; /* no page of it was resident when it was taken */
    uint16_t first; /* where the first object lies, bytes from the start (core/size_class.h) */
    uint16_t remote_seen; /* remote objects that are in the set's totals */
};

HAK_STATIC_ASSERT(sizeof(struct slab) <= SLAB_METADATA_SIZE, "slab metadata is one cache line");

/* The slabs of one class, in sum: what a report would else have to walk for. Exact after a drain.
 */
struct slab_totals {
    uint64_t free_count; /* objects in the slabs: free_count and remote_seen of each */
    uint32_t slabs_count;
    uint32_t not_carved_count; /* of one slab: the next is taken when all is carved */
};

/* What one heap owns. Everything but the shared words is written under the heap's lock. */
struct slab_set {
    uint32_t key;             /* heap id << 8: owner words of its slabs are key | class */
    uint32_t shared_notified; /* A: stack of slabs with remote objects, slice + 1 */
    uint32_t shared_pending;  /* A: pushes on it since the last drain, about */
    uint32_t shared_patience; /* pending pushes from which on others drain; relaxed */
    struct counters counters;
    /* First: the next to refill from. Relaxed readers without the lock. */
    struct slab *partial[CLASS_COUNT];
    struct slab_totals *totals; /* [class] */
};

/* A list of objects of one class, linked and zero-terminated. */
struct object_list {
    struct object *head;
    uint32_t count;
};

/* What a refill brings: a list, or, when `stride` is not 0, carved objects that lie so many bytes
 * apart and are not linked yet, in memory that may be untouched. */
struct refill {
    struct object_list list;
    uint32_t stride;
};

/* Takes the first object of a refill that has one. A carved one is not touched: what a program does
 * not write needs no memory, and what it writes is the program's page fault, not malloc's. */
HAK_INLINE struct object *refill_pop(struct refill *refill)
{
    struct object *object = refill->list.head;
    refill->list.count--;
    if (refill->stride == 0) {
        refill->list.head = object->next;
    } else {
        unsigned char *next = (unsigned char *)object + refill->stride;
        refill->list.head = refill->list.count == 0 ? NULL : (struct object *)(void *)next;
    }
    return object;
}

/* Links what was carved. Whose objects they are, without a lock: the first touch of a page takes
 * the kernel a microsecond and more, and nobody is to wait for that. */
HAK_INLINE struct object_list refill_link(struct refill refill)
{
    if (refill.stride != 0 && refill.list.count != 0) {
        unsigned char *at = (unsigned char *)refill.list.head;
        for (uint32_t i = 1; i < refill.list.count; i++, at += refill.stride) {
            ((struct object *)(void *)at)->next = (struct object *)(void *)(at + refill.stride);
        }
        ((struct object *)(void *)at)->next = NULL;
    }
    return refill.list;
}

HAK_INLINE size_t slab_slice(const struct slab *slab)
{
    return (size_t)((const unsigned char *)slab - hak__window.slabs) / SLAB_METADATA_SIZE;
}

/* The slab that holds an object; its owner word says that there is one. */
HAK_INLINE struct slab *slab_of_slice(size_t slice)
{
    struct slab *slab = window_slab_metadata(slice);
    return window_slab_metadata(slice - slab->slices_back);
}

HAK_INLINE unsigned char *slab_start(const struct slab *slab)
{
    return (unsigned char *)window_slice_address(slab_slice(slab));
}

/* True when `pointer` is where an object of the slab starts. */
HAK_HIDDEN bool hak__slab_is_object(const struct slab *slab, const void *pointer);

/* The next objects for a bin of `class_index`, 1 to `most`: free ones, remote frees, a fresh carve,
 * or that from a new slab. count 0: no memory. Under the heap's lock. */
HAK_HIDDEN struct refill hak__slab_refill(struct slab_set *set, uint32_t class_index,
                                          uint32_t most);

/* A refill of the class would need a slab more than the process has had lately, and other heaps'
 * free objects could do instead: they may lie anywhere that shares no cache line. Under the heap's
 * lock. */
HAK_HIDDEN bool hak__slab_refill_grows(struct slab_set *set, uint32_t class_index);
HAK_INLINE bool slab_refill_grows(struct slab_set *set, uint32_t class_index)
{
    return HAK_UNLIKELY(set->partial[class_index] == NULL) &&
           size_class_has_own_lines(class_index) && hak__slab_refill_grows(set, class_index);
}
/* Up to `most` free objects of one slab of the class for another heap's thread; count 0: none was
 * found. Under the heap's lock. */
HAK_HIDDEN struct object_list hak__slab_lend(struct slab_set *set, uint32_t class_index,
                                             uint32_t most);
/* It may have some. Any thread, no lock. A hint. */
HAK_INLINE bool slab_may_lend(const struct slab_set *set, uint32_t class_index)
{
    return atomic_load_relaxed(&set->partial[class_index]) != NULL ||
           atomic_load_relaxed(&set->shared_notified) != 0;
}

/* Returns `list` (count > 0, ending in `tail`), all of `slab`, which the set owns. May give the
 * slab back. Under the lock. */
HAK_HIDDEN void hak__slab_return(struct slab_set *set, struct slab *slab, struct object_list list,
                                 struct object *tail);

/* The same by a thread that does not own the slab: one atomic operation, two when the owner must be
 * told. Any thread. The result is NULL, or the owner when it has shared_patience notifications
 * or more that it has not looked at: an idle one, for which somebody else should drain. */
HAK_HIDDEN struct slab_set *hak__slab_return_remote(struct slab *slab, struct object_list list,
                                                    struct object *tail);

/* Takes the notifications: lists slabs that have remote objects, gives empty ones back. Returns how
 * many. Under the lock, by any thread. */
HAK_HIDDEN uint32_t hak__slab_drain(struct slab_set *set);

/* Objects of the slab that are in its own two lists. Under the lock, or at rest. */
HAK_HIDDEN uint32_t hak__slab_free_objects(const struct slab *slab);

/* Level 2: walks the whole set. Under the lock. */
HAK_HIDDEN void hak__slab_set_check(const struct slab_set *set);

#endif
