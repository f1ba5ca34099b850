/* SPDX-License-Identifier: MIT */
/* emergency.c: see emergency.h. */
#include "large/emergency.h"

#include "base/bits.h"
#include "core/diagnose.h"
#include "core/gate.h"
#include "large/huge_registry.h"
#include "large/sampled.h"
#include "large/span.h"
#include "os/os.h"
#include "region/window.h"

/* Lies at the end of an unregistered block's mapping, behind the block. */
struct unregistered {
    struct unregistered *next;
    struct huge block;
};

/* Unregistered blocks and waiting ones are found by a hash of their address. Twice: 4 KiB more are
 * touched where threads are refused. Half: while a fork takes long, a free looks at twice as many
 * blocks. */
#define EMERGENCY_BUCKETS 511u
/* Blocks that settle registers or frees before it lets a fork pass. Twice: a fork, and a signal of
 * this thread, wait up to 0.5 ms longer. Half: where forks follow closely, half as many are done
 * between two. */
#define SETTLE_BLOCKS 64u

/* Places for blocks that wait to be freed; NULL: an empty one. More are mapped where a bucket has
 * no empty one, and stay. A page each. */
struct waiting {
    void *shared_places[EMERGENCY_BUCKETS];
    struct waiting *shared_next;
};

static struct unregistered *shared_unregistered[EMERGENCY_BUCKETS]; /* taken off under HUGE */
static struct waiting waiting_first;
static size_t shared_waiting_bytes; /* mapped for more of them; relaxed, for reports */
/* 1: some list or place may be filled. Set after it, cleared before a look at all. */
static uint32_t shared_unsettled;

static uint32_t emergency_bucket(uintptr_t address)
{
    uint64_t hash = (uint64_t)(address >> 12) * UINT64_C(0x9e3779b97f4a7c15); /* Knuth 6.4 */
    return (uint32_t)((hash >> 32) * EMERGENCY_BUCKETS >> 32);
}

/* The next entry of a list. The block's own bytes lie before the entry, so a write past its end
 * reaches the entry: one that is not as it was written ends the process. */
static struct unregistered *unregistered_next(const struct unregistered *at)
{
    struct unregistered *next = at->next;
    size_t page = hak__os_page_size();
    if (HAK_UNLIKELY(at->block.address + at->block.size != (uintptr_t)(at + 1) ||
                     at->block.address % page != 0 || (uintptr_t)(at + 1) % page != 0 ||
                     (next != NULL && (uintptr_t)(next + 1) % page != 0))) {
        hak__diagnose_fatal("overflow: the bytes behind the allocation were written", at, 0, 0);
    }
    return next;
}

static void emergency_note(void)
{
    /* release: pairs with the acquire in hak__emergency_settle. An exchange, because after a plain
     * store of this thread the settle need not see what another thread did before its note. */
    (void)atomic_exchange_release(&shared_unsettled, 1u);
}

size_t hak__emergency_mapped(size_t size)
{
    return bits_align_up(size + sizeof(struct unregistered), hak__os_page_size());
}

void *hak__emergency_allocate(size_t size, size_t alignment)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - HUGE_HEAD - sizeof(struct unregistered)) {
        return NULL;
    }
    size_t mapped = hak__emergency_mapped(size);
    void *address;
    alignment = alignment < page ? page : alignment;
    if (hak__os_map_behind(HUGE_HEAD, HUGE_HEAD + mapped + HUGE_TAIL, alignment, &address) != 0) {
        return NULL;
    }
    address = (char *)address + HUGE_HEAD;
    unsigned char *end = (unsigned char *)address + mapped;
    struct unregistered *made = (struct unregistered *)(void *)(end - sizeof *made);
    made->block = (struct huge)HUGE_OF((uintptr_t)address, mapped, hak__huge_new_origin());
    struct unregistered **list = &shared_unregistered[emergency_bucket((uintptr_t)address)];
    struct unregistered *first = atomic_load_relaxed(list);
    do {
        made->next = first;
        /* release: pairs with the acquire in emergency_find_in and emergency_register */
    } while (!atomic_cas_weak_release(list, &first, made));
    emergency_note();
    return address;
}

/* More places after `last`, the last ones so far. NULL: no memory. */
static struct waiting *waiting_more(struct waiting *last)
{
    size_t bytes = bits_align_up(sizeof *last, hak__os_page_size());
    struct waiting *next = NULL;
    void *made;
    if (hak__os_map(bytes, hak__os_page_size(), &made) != 0) {
        return NULL;
    }
    /* release: pairs with the acquire in hak__emergency_free and hak__emergency_settle */
    if (!atomic_cas_release(&last->shared_next, &next, (struct waiting *)made)) {
        hak__os_discard(made, bytes); /* another thread was faster */
        return atomic_load_acquire(&last->shared_next);
    }
    atomic_add_relaxed(&shared_waiting_bytes, bytes);
    return made;
}

size_t hak__emergency_metadata_bytes(void)
{
    return atomic_load_relaxed(&shared_waiting_bytes);
}

bool hak__emergency_free(void *pointer)
{
    uint32_t bucket = emergency_bucket((uintptr_t)pointer);
    void *found, **empty;
    do {
        struct waiting *last, *at = &waiting_first;
        empty = NULL;
        do {
            found = atomic_load_relaxed(&at->shared_places[bucket]);
            if (found == pointer) {
                return false;
            }
            empty = found == NULL && empty == NULL ? &at->shared_places[bucket] : empty;
            last = at;
            at = atomic_load_acquire(&last->shared_next); /* pairs with waiting_more */
        } while (at != NULL);
        if (empty == NULL) {
            at = waiting_more(last);
            if (at == NULL) {
                return true;
            }
            empty = &at->shared_places[bucket];
        }
        found = NULL;
        /* release: pairs with the acquire in settle_places */
    } while (!atomic_cas_release(empty, &found, pointer));
    emergency_note();
    return true;
}

/* Takes the address's entry off its list. Under HUGE. */
static bool emergency_unlink(uintptr_t address, struct huge *block)
{
    struct unregistered **list = &shared_unregistered[emergency_bucket(address)];
    /* acquire: pairs with the release in hak__emergency_allocate */
    struct unregistered *first = atomic_load_acquire(list);
    while (first != NULL && first->block.address == address) {
        if (atomic_cas_acquire(list, &first, unregistered_next(first))) {
            *block = first->block;
            return true;
        }
        first = atomic_load_acquire(list); /* a failed exchange orders nothing */
    }
    struct unregistered *next;
    for (struct unregistered *at = first; at != NULL; at = next) {
        next = unregistered_next(at);
        if (next != NULL && next->block.address == address) {
            struct unregistered *behind = unregistered_next(next);
            *block = next->block;
            atomic_store_relaxed(&at->next, behind); /* whole in the child of a fork */
            return true;
        }
    }
    return false;
}

bool hak__emergency_free_huge(void *pointer)
{
    struct huge block;
    bool found = false;
    uint32_t inside = hak__inside;
    if ((inside & INSIDE_OPERATION) == 0) { /* else this thread may hold the lock */
        uint64_t signals = hak__lock_block_signals();
        hak__inside |= INSIDE_LOCK;
        if (lock_try(&hak__huge_lock) || hak__lock_spin(&hak__huge_lock)) {
            found = emergency_unlink((uintptr_t)pointer, &block);
            lock_release(&hak__huge_lock);
        }
        hak__inside = inside;
        hak__os_restore_signals(signals);
    }
    if (!found) {
        return hak__emergency_free(pointer);
    }
    hak__os_discard((char *)pointer - HUGE_HEAD, HUGE_HEAD + block.size + HUGE_TAIL);
    return true;
}

bool hak__emergency_waits(void)
{
    return atomic_load_relaxed(&shared_unsettled) != 0;
}

/* The huge block of the bucket's list that contains `address`; address 0: none. Under HUGE. */
static struct huge emergency_find_in(uint32_t bucket, uintptr_t address)
{
    /* acquire: pairs with the release in hak__emergency_allocate */
    const struct unregistered *at = atomic_load_acquire(&shared_unregistered[bucket]);
    for (; at != NULL; at = unregistered_next(at)) {
        size_t usable = at->block.size - sizeof *at;
        if (address - at->block.address < usable) {
            return (struct huge)HUGE_OF(at->block.address, usable, at->block.origin);
        }
    }
    return (struct huge){0};
}

struct huge hak__emergency_find(uintptr_t address)
{
    struct huge block = emergency_find_in(emergency_bucket(address), address);
    return block.address == address ? block : (struct huge){0};
}

struct huge hak__emergency_containing(uintptr_t address)
{
    struct huge block = {0};
    for (uint32_t bucket = 0; bucket < EMERGENCY_BUCKETS && block.address == 0; bucket++) {
        block = emergency_find_in(bucket, address);
    }
    return block;
}

/* Registers one huge block of the bucket's list. False: none is left, or there is no memory to
 * enlarge the registry. */
static bool emergency_register(uint32_t bucket)
{
    struct unregistered **list = &shared_unregistered[bucket];
    if (atomic_load_relaxed(list) == NULL || !hak__huge_registry_lock()) {
        return false;
    }
    /* acquire: pairs with the release in hak__emergency_allocate. Only the holder of HUGE takes
     * entries off, so there is no ABA: an equal first entry still has the same `next`. */
    struct unregistered *first = atomic_load_acquire(list);
    while (first != NULL && !atomic_cas_acquire(list, &first, unregistered_next(first))) {
        first = atomic_load_acquire(list); /* a failed exchange orders nothing */
    }
    if (first != NULL) {
        hak__huge_registry_add(first->block);
    }
    lock_release(&hak__huge_lock);
    return first != NULL;
}

static void emergency_free_waiting(void *block)
{
    size_t slice = window_slice_of(block);
    uint32_t owner = window_contains_slice(slice) ? window_owner(slice) : OWNER_NOBODY;
    if (owner == OWNER_SPAN_TAKEN && hak__span_pointer(slice) == block) {
        hak__span_free_taken(NULL, NULL, slice);
        return;
    }
    if (owner == OWNER_SAMPLED) {
        hak__sampled_free(block);
        return;
    }
    uint32_t bucket = emergency_bucket((uintptr_t)block);
    while (emergency_register(bucket)) { /* it may be newer than the look at the list */
    }
    /* A library's munmap may have freed it, and would allocate the next one (os/bound.h). Only
     * emergency memory is so small. */
    bool direct = hak__os_go_direct(hak__huge_bytes(block) <= SPAN_SIZE_MAX);
    bool freed = hak__huge_free(block);
    (void)hak__os_go_direct(direct);
    if (!freed) {
        lock_acquire(&hak__huge_lock);
        bool unregistered = hak__emergency_find((uintptr_t)block).address != 0;
        lock_release(&hak__huge_lock);
        if (unregistered) { /* the registry had no memory for it: the next settle tries again */
            (void)hak__emergency_free(block);
        }
    }
}

/* After each block. False: refused, and no longer inside. */
static bool settle_may_go_on(uint32_t *done)
{
    if (++*done % SETTLE_BLOCKS != 0) {
        return true;
    }
    emergency_note(); /* the child of a fork that passes has the rest, but not this thread */
    return hak__gate_let_pass();
}

static bool settle_lists(uint32_t *done)
{
    for (uint32_t bucket = 0; bucket < EMERGENCY_BUCKETS; bucket++) {
        while (emergency_register(bucket)) {
            if (!settle_may_go_on(done)) {
                return false;
            }
        }
        if (atomic_load_relaxed(&shared_unregistered[bucket]) != NULL) {
            emergency_note(); /* no memory for the registry: the next settle tries again */
            break;
        }
    }
    return true;
}

static bool settle_places(uint32_t *done)
{
    for (struct waiting *at = &waiting_first; at != NULL;
         at = atomic_load_acquire(&at->shared_next)) { /* pairs with waiting_more */
        for (uint32_t i = 0; i < EMERGENCY_BUCKETS; i++) {
            void **place = &at->shared_places[i];
            if (atomic_load_relaxed(place) == NULL) {
                continue;
            }
            /* acquire: pairs with the release in hak__emergency_free; one thread gets the block */
            void *block = atomic_exchange_acquire(place, NULL);
            if (block != NULL) {
                emergency_free_waiting(block);
                if (!settle_may_go_on(done)) {
                    return false;
                }
            }
        }
    }
    return true;
}

bool hak__emergency_settle(void)
{
    uint32_t done = 0;
    if (atomic_load_relaxed(&shared_unsettled) == 0 ||
        atomic_exchange_acquire(&shared_unsettled, 0u) == 0) { /* pairs with emergency_note */
        return true;
    }
    return settle_lists(&done) && settle_places(&done);
}
