/* SPDX-License-Identifier: MIT */
/* slab_remote.c: frees by threads that do not own the slab.
 *
 *   shared_remote:  | head 32 | N 1 | count 31 |     head: granule of the first object + 1
 *
 * Protocol (proof: docs/design/remote_free.md; model: tests/protocol; stress test: tests/threads):
 *   freer   A1  CAS shared_remote: prepend its list, set N  release, pairs with B2 and B3
 *           A2  if N was clear: push on shared_notified     release, pairs with B1
 *   owner   B1  exchange shared_notified with empty         acquire, pairs with A2
 *           B2  for each slab on the stack: clear N         acq_rel, pairs with A1
 *           B3  take the objects out of the word, keep N    acquire, pairs with A1
 *
 * The owner is whoever holds the owner arena's lock.
 *
 * There is no ABA problem. A1 only prepends to the list in the word, and B3 takes the whole list.
 * If the word changes and becomes equal again before A1's CAS, it names the list that is there now.
 * So the link that A1 has written is right.
 *
 * Source: sending a batch to its slab by one word is snmalloc's BatchIt (ISMM 2024). The bit N in
 * that word is this project's.
 */
#include "slab/slab_remote.h"

#include "core/diagnose.h"

#define REMOTE_HEAD_SHIFT 32u

HAK_STATIC_ASSERT(SLAB_SLICES_MAX *SLICE_SIZE / OBJECT_ALIGNMENT < UINT32_MAX,
                  "a head fits 32 bits");

/* The first object of the list in a remote word; NULL: the list is empty. */
static struct object *remote_head(const struct slab *slab, uint64_t word)
{
    uint64_t granule = word >> REMOTE_HEAD_SHIFT;
    if (granule == 0) {
        return NULL;
    }
    return (struct object *)(void *)(slab_start(slab) + (granule - 1) * OBJECT_ALIGNMENT);
}

/* A2. The caller's A1 has set N of the slab, which was clear before. */
static void slab_notify_owner(struct slab_set *owner, struct slab *slab)
{
    uint32_t *stack = &owner->shared_notified;
    uint32_t head = atomic_load_relaxed(stack);
    uint32_t link = (uint32_t)slab_slice(slab) + 1;
    do {
        atomic_store_relaxed(&slab->shared_link, head);
        /* A2, release: whoever takes the stack (B1) sees the link */
    } while (!atomic_cas_weak_release(stack, &head, link));
    atomic_add_relaxed(&owner->shared_pending, 1u); /* a hint: pairs with nothing */
}

struct slab_set *hak__slab_return_remote(struct slab *slab, struct object_list list,
                                         struct object *tail)
{
    uint64_t granule =
        (uint64_t)((unsigned char *)list.head - slab_start(slab)) / OBJECT_ALIGNMENT + 1;
    uint64_t word = atomic_load_relaxed(&slab->shared_remote);
    uint64_t joined;
    do {
        uint64_t count = (word & REMOTE_COUNT_MASK) + list.count;
        if (HAK_UNLIKELY(count > slab->capacity)) {
            hak__diagnose_fatal("double free (more objects freed than the slab holds)", list.head,
                                size_class_usable(slab->class_index), slab_arena_id(slab));
        }
        object_link(tail, remote_head(slab, word));
        joined = granule << REMOTE_HEAD_SHIFT | REMOTE_NOTIFIED | count;
        /* A1, release: B3 sees the objects' links, and this thread's last use of the objects is
         * over before anybody reuses them */
    } while (!atomic_cas_weak_release(&slab->shared_remote, &word, joined));
    if ((word & REMOTE_NOTIFIED) != 0) {
        return NULL;
    }
    struct slab_set *owner = slab->owner; /* before A2: after it the slab may be given back */
    slab_notify_owner(owner, slab);
    uint32_t patience = atomic_load_relaxed(&owner->shared_patience);
    return atomic_load_relaxed(&owner->shared_pending) >= patience ? owner : NULL;
}

struct object_list hak__slab_see_remote(const struct slab *slab)
{
    uint64_t word = atomic_load_acquire(&slab->shared_remote); /* pairs with A1, as B3 */
    return (struct object_list){remote_head(slab, word), (uint32_t)(word & REMOTE_COUNT_MASK)};
}

struct object_list hak__slab_take_remote(struct slab *slab)
{
    /* A load first: it is cheaper than a locked operation on a line that others may hold. */
    if (slab_remote_count(slab) == 0) {
        return (struct object_list){NULL, 0};
    }
    /* B3, acquire: pairs with A1 */
    uint64_t word = atomic_and_acq_rel(&slab->shared_remote, REMOTE_NOTIFIED);
    return (struct object_list){remote_head(slab, word), (uint32_t)(word & REMOTE_COUNT_MASK)};
}

struct slab *hak__slab_take_notified(struct slab_set *set)
{
    if (atomic_load_relaxed(&set->shared_notified) == 0) {
        return NULL;
    }
    atomic_store_relaxed(&set->shared_pending, 0u);
    /* B1, acquire: pairs with A2 */
    uint32_t link = atomic_exchange_acquire(&set->shared_notified, 0u);
    return link == 0 ? NULL : window_slab_metadata(link - 1);
}

struct slab *hak__slab_next_notified(const struct slab *slab)
{
    uint32_t link =
        atomic_load_relaxed(&slab->shared_link); /* B1 orders it; N is set: nobody pushes now */
    return link == 0 ? NULL : window_slab_metadata(link - 1);
}

void hak__slab_clear_notified(struct slab *slab)
{
    /* B2, acquire: pairs with A1; release: what the owner did to the slab, such as reading its
     * link, comes before the next freer's push */
    atomic_and_acq_rel(&slab->shared_remote, ~REMOTE_NOTIFIED);
}

bool hak__slab_is_idle(const struct slab *slab)
{
    /* acquire: pairs with A1; the freers' use of the objects is over before the memory is reused */
    uint64_t word = atomic_load_acquire(&slab->shared_remote);
    return (word & REMOTE_NOTIFIED) == 0 &&
           slab->free_count + (word & REMOTE_COUNT_MASK) == slab_cut_count(slab);
}
