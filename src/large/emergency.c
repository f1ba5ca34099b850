/* emergency.c: see emergency.h. */
#include "large/emergency.h"

#include "base/bits.h"
#include "core/gate.h"
#include "large/sampled.h"
#include "large/span.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/window.h"

/* Lies at the end of an unregistered block's mapping, behind the block. */
struct unregistered {
    struct unregistered *next;
    struct whale whale;
};

/* The first word of a block that waits to be freed. */
struct waiting {
    struct waiting *next;
};

static struct unregistered *shared_unregistered; /* entries are taken off under WHALES */
static struct waiting *shared_waiting;           /* a thread takes all entries at once */

void *hak__emergency_allocate(size_t size, size_t alignment)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - sizeof(struct unregistered)) {
        return NULL;
    }
    size_t mapped = bits_align_up(size + sizeof(struct unregistered), page);
    void *address;
    if (hak__os_map(mapped + WHALE_TAIL, alignment < page ? page : alignment, &address) != 0) {
        return NULL;
    }
    unsigned char *end = (unsigned char *)address + mapped;
    struct unregistered *made = (struct unregistered *)(void *)(end - sizeof *made);
    made->whale = (struct whale){(uintptr_t)address, mapped, hak__whale_new_origin()};
    struct unregistered *first = atomic_load_relaxed(&shared_unregistered);
    do {
        made->next = first;
        /* release: pairs with the acquire in hak__emergency_find and emergency_register */
    } while (!atomic_cas_weak_release(&shared_unregistered, &first, made));
    return address;
}

void hak__emergency_free(void *pointer)
{
    struct waiting *block = pointer;
    struct waiting *first = atomic_load_relaxed(&shared_waiting);
    do {
        block->next = first;
        /* release: pairs with the acquire in hak__emergency_settle */
    } while (!atomic_cas_weak_release(&shared_waiting, &first, block));
}

/* Takes the address's entry off the list. Under WHALES. */
static bool emergency_unlink(uintptr_t address, struct whale *whale)
{
    /* acquire: pairs with the release in hak__emergency_allocate */
    struct unregistered *first = atomic_load_acquire(&shared_unregistered);
    while (first != NULL && first->whale.address == address) {
        if (atomic_cas_acquire(&shared_unregistered, &first, first->next)) {
            *whale = first->whale;
            return true;
        }
        first = atomic_load_acquire(&shared_unregistered); /* a failed exchange orders nothing */
    }
    for (struct unregistered *at = first; at != NULL && at->next != NULL; at = at->next) {
        struct unregistered *next = at->next;
        if (next->whale.address == address) {
            *whale = next->whale;
            atomic_store_relaxed(&at->next, next->next); /* whole in the child of a fork */
            return true;
        }
    }
    return false;
}

void hak__emergency_free_whale(void *pointer)
{
    struct whale whale;
    bool found = false;
    uint32_t inside = hak__inside;
    if ((inside & INSIDE_OPERATION) == 0) { /* else this thread may hold the lock */
        hak__inside |= INSIDE_LOCK;
        if (lock_try(&hak__whale_lock) || hak__lock_spin(&hak__whale_lock)) {
            found = emergency_unlink((uintptr_t)pointer, &whale);
            lock_release(&hak__whale_lock);
        }
        hak__inside = inside;
    }
    if (found) {
        hak__os_discard(pointer, whale.size + WHALE_TAIL);
    } else {
        hak__emergency_free(pointer);
    }
}

bool hak__emergency_waits(void)
{
    return atomic_load_relaxed(&shared_unregistered) != NULL ||
           atomic_load_relaxed(&shared_waiting) != NULL;
}

struct whale hak__emergency_find(uintptr_t address)
{
    /* acquire: pairs with the release in hak__emergency_allocate */
    const struct unregistered *at = atomic_load_acquire(&shared_unregistered);
    for (; at != NULL; at = at->next) {
        size_t usable = at->whale.size - sizeof *at;
        if (address - at->whale.address < usable) {
            return (struct whale){at->whale.address, usable, at->whale.origin};
        }
    }
    return (struct whale){0};
}

/* Registers one whale. False: none is left, or there is no memory to enlarge the registry. */
static bool emergency_register(void)
{
    if (atomic_load_relaxed(&shared_unregistered) == NULL || !hak__whale_registry_lock()) {
        return false;
    }
    /* acquire: pairs with the release in hak__emergency_allocate. Only the holder of WHALES takes
     * entries off, so there is no ABA: an equal first entry still has the same `next`. */
    struct unregistered *first = atomic_load_acquire(&shared_unregistered);
    while (first != NULL && !atomic_cas_acquire(&shared_unregistered, &first, first->next)) {
        first = atomic_load_acquire(&shared_unregistered); /* a failed exchange orders nothing */
    }
    if (first != NULL) {
        hak__whale_registry_add(first->whale);
    }
    lock_release(&hak__whale_lock);
    return first != NULL;
}

void hak__emergency_settle(void)
{
    while (emergency_register()) {
    }
    if (atomic_load_relaxed(&shared_waiting) == NULL) {
        return;
    }
    /* acquire: pairs with the release in hak__emergency_free */
    struct waiting *block = atomic_exchange_acquire(&shared_waiting, NULL);
    while (block != NULL) {
        struct waiting *next = block->next;
        size_t slice = window_slice_of(block);
        if (window_contains_slice(slice) && window_owner(slice) == OWNER_SPAN) {
            hak__span_free(NULL, NULL, slice);
        } else if (window_contains_slice(slice) && window_owner(slice) == OWNER_SAMPLED) {
            hak__sampled_free(block);
        } else if (!hak__whale_free(block)) {
            lock_acquire(&hak__whale_lock);
            bool unregistered = hak__emergency_find((uintptr_t)block).address != 0;
            lock_release(&hak__whale_lock);
            if (unregistered) { /* the registry had no memory for it: the next settle tries again */
                hak__emergency_free(block);
            }
        }
        block = next;
    }
}
