/* SPDX-License-Identifier: MIT */
/* os_discard.c: unmaps memory later if the kernel refuses to unmap it now. See os.h.
 *
 * munmap fails if it would split a mapping, and the process may have no further one. */
#include "os/os.h"

#include "base/atomics.h"
#include "base/compiler.h"

/* A stack of the ranges that the kernel refused to unmap. Each entry lies in its own range. Threads
 * push entries one by one and take the whole stack at once, so there is no ABA. */
struct discarded {
    struct discarded *next;
    size_t size;
};
static struct discarded *shared_discarded;
static size_t shared_discarded_bytes;

static void discarded_push(struct discarded *first, struct discarded *last)
{
    last->next = atomic_load_relaxed(&shared_discarded);
    /* release: pairs with the acquire in hak__os_discard_again */
    while (!atomic_cas_weak_release(&shared_discarded, &last->next, first)) {
    }
}

void hak__os_discard(void *address, size_t size)
{
    if (hak__os_unmap(address, size) == 0) {
        hak__os_discard_again();
        return;
    }
    hak__os_purge(address, size);
    struct discarded *discarded = address;
    discarded->size = size;
    atomic_add_relaxed(&shared_discarded_bytes, size); /* for reports */
    discarded_push(discarded, discarded);
}

/* Ends at the first refusal, because the kernel would refuse the other ranges, too. */
size_t hak__os_discard_again(void)
{
    if (HAK_LIKELY(atomic_load_relaxed(&shared_discarded) == NULL)) {
        return 0;
    }
    size_t bytes = 0;
    /* acquire: pairs with the release in discarded_push */
    struct discarded *discarded = atomic_exchange_acquire(&shared_discarded, NULL);
    while (discarded != NULL) {
        struct discarded *next = discarded->next;
        size_t size = discarded->size;
        if (hak__os_unmap(discarded, size) != 0) {
            struct discarded *last = discarded;
            while (last->next != NULL) {
                last = last->next;
            }
            discarded_push(discarded, last);
            break;
        }
        bytes += size;
        discarded = next;
    }
    atomic_sub_relaxed(&shared_discarded_bytes, bytes);
    return bytes;
}

bool hak__os_is_discarding(void)
{
    return atomic_load_relaxed(&shared_discarded) != NULL;
}

size_t hak__os_discarded_bytes(void)
{
    return atomic_load_relaxed(&shared_discarded_bytes);
}

void hak__os_leave(size_t size)
{
    atomic_add_relaxed(&shared_discarded_bytes, size);
}
