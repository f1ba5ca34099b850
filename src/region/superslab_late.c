/* SPDX-License-Identifier: MIT */
/* superslab_late.c: what is done while REGION is stuck, because a stopped thread holds it. See
 * superslab.h. */
#include "base/bits.h"
#include "core/gate.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

bool hak__superslab_lock(struct lock *lock)
{
    if (lock_acquire_soon(lock)) {
        return true;
    }
    /* The next block will have a mapping of its own: no more than one a millisecond. */
    hak__os_wait_ms(&lock->shared_state, 2, 1);
    return lock_try(lock) || hak__gate_refuse();
}

/* Slices that became free while REGION was stuck. Lies in the slab metadata of the first one. */
struct superslab_late {
    struct superslab_late *next;
    size_t index;
    uint64_t mask;
};
HAK_STATIC_ASSERT(sizeof(struct superslab_late) <= HAK_CACHE_LINE, "stored in a slab's metadata");
static struct superslab_late *shared_late; /* a stack; a thread takes all entries at once */

void hak__superslab_give_late(size_t index, uint64_t mask)
{
    struct superslab_late *late =
        (void *)window_slab_metadata(index * SUPERSLAB_SLICES + bits_lowest(mask));
    struct superslab_late *first = atomic_load_relaxed(&shared_late);
    late->index = index;
    late->mask = mask;
    do {
        late->next = first;
        /* release: pairs with the acquire in hak__superslab_settle */
    } while (!atomic_cas_weak_release(&shared_late, &first, late));
}

bool hak__superslab_waits(void)
{
    return atomic_load_relaxed(&shared_late) != NULL;
}

void hak__superslab_settle(void)
{
    if (!hak__superslab_waits()) {
        return;
    }
    /* acquire: pairs with the release in hak__superslab_give_late */
    struct superslab_late *late = atomic_exchange_acquire(&shared_late, NULL);
    while (late != NULL) {
        struct superslab_late *next = late->next;
        struct lock *lock = &superslab_part_of(late->index)->lock;
        if (lock_try(lock)) {
            hak__superslab_mark_free(late->index, late->mask);
            lock_release(lock);
        } else { /* a later settle does it */
            hak__superslab_give_late(late->index, late->mask);
        }
        late = next;
    }
}
