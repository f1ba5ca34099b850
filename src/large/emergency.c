/* SPDX-License-Identifier: MIT */
/* emergency.c: see emergency.h. */
#include "large/emergency.h"

#include "base/bits.h"
#include "core/gate.h"
#include "large/huge_registry.h"
#include "large/span.h"
#include "os/os.h"
#include "region/window.h"

/* What a place has: nothing; a block that was freed; what only its taker knows. Else a new block:
 * its bytes, a multiple of the OS page, with PLACE_FREED if it was freed. */
enum { PLACE_EMPTY = 0, PLACE_FREED = 1, PLACE_BUSY = 2 };

struct emergency_place {
    size_t shared_state;
    uintptr_t shared_address; /* written by the taker; relaxed */
};

/* More are mapped where all tables' places for a hash are taken, and stay. */
struct emergency_table {
    /* Places of a table, by a hash of the address. Twice: 8 KiB more are touched where threads are
     * refused. Half: while a fork takes long, a free looks at twice as many blocks. */
    struct emergency_place places[511];
    struct emergency_table *shared_next;
};
static struct emergency_table emergency_first HAK_SELDOM;
static size_t shared_emergency_bytes; /* mapped for more of them; relaxed, for reports */
/* 1: some place may be taken. Set after it, cleared before a look at all. */
static uint32_t shared_unsettled;

static uint32_t emergency_hash(uintptr_t address)
{
    uint64_t hash = (uint64_t)(address >> 12) * UINT64_C(0x9e3779b97f4a7c15); /* Knuth 6.4 */
    return (uint32_t)((hash >> 32) * HAK_COUNT_OF(emergency_first.places) >> 32);
}

static struct emergency_table *emergency_next(struct emergency_table *table)
{
    return atomic_load_acquire(&table->shared_next); /* pairs with emergency_more */
}

static void emergency_note(void)
{
    /* release: pairs with the acquire in hak__emergency_settle. An exchange, because after a plain
     * store of this thread the settle need not see what another thread did before its note. */
    (void)atomic_exchange_release(&shared_unsettled, 1u);
}

/* One more table after `last`. NULL: no memory. */
static struct emergency_table *emergency_more(struct emergency_table *last)
{
    size_t bytes = bits_align_up(sizeof *last, hak__os_page_size());
    struct emergency_table *next = NULL;
    void *made;
    if (hak__os_map(bytes, hak__os_page_size(), &made) != 0) {
        return NULL;
    }
    /* release: pairs with the acquire in emergency_next */
    if (!atomic_cas_release(&last->shared_next, &next, (struct emergency_table *)made)) {
        hak__os_discard(made, bytes); /* another thread was faster */
        return emergency_next(last);
    }
    atomic_add_relaxed(&shared_emergency_bytes, bytes);
    return made;
}

size_t hak__emergency_metadata_bytes(void)
{
    return atomic_load_relaxed(&shared_emergency_bytes);
}

/* Takes a place that is in use, and returns its state; PLACE_EMPTY: it is not, or is busy. */
static size_t place_take(struct emergency_place *place)
{
    size_t state = atomic_load_relaxed(&place->shared_state);
    return state != PLACE_EMPTY && state != PLACE_BUSY &&
                   /* acquire: pairs with the release in place_leave */
                   atomic_cas_acquire(&place->shared_state, &state, (size_t)PLACE_BUSY)
               ? state
               : PLACE_EMPTY;
}

static void place_leave(struct emergency_place *place, size_t state)
{
    atomic_store_release(&place->shared_state, state);
}

/* False: no memory. */
static bool emergency_put(uintptr_t address, size_t state)
{
    for (struct emergency_table *table = &emergency_first, *last; table != NULL;) {
        struct emergency_place *place = &table->places[emergency_hash(address)];
        size_t empty = PLACE_EMPTY;
        if (atomic_load_relaxed(&place->shared_state) == PLACE_EMPTY &&
            atomic_cas_acquire(&place->shared_state, &empty, (size_t)PLACE_BUSY)) {
            atomic_store_relaxed(&place->shared_address, address);
            place_leave(place, state);
            emergency_note();
            return true;
        }
        last = table;
        table = emergency_next(last);
        table = table == NULL ? emergency_more(last) : table;
    }
    return false;
}

/* The place of a block; NULL: it has none, or the place is busy. */
static struct emergency_place *emergency_look(uintptr_t address)
{
    for (struct emergency_table *table = &emergency_first; table != NULL;
         table = emergency_next(table)) {
        struct emergency_place *place = &table->places[emergency_hash(address)];
        size_t state = atomic_load_acquire(&place->shared_state); /* pairs with place_leave */
        if (state != PLACE_EMPTY && state != PLACE_BUSY &&
            atomic_load_relaxed(&place->shared_address) == address) {
            return place;
        }
    }
    return NULL;
}

size_t hak__emergency_mapped(size_t size)
{
    return bits_align_up(size, hak__os_page_size());
}

static void emergency_unmap(uintptr_t address, size_t size)
{
    hak__os_discard((char *)address - HUGE_HEAD, size + 2 * HUGE_HEAD);
}

void *hak__emergency_allocate(size_t size, size_t alignment)
{
    size_t page = hak__os_page_size();
    if (size > REQUEST_SIZE_MAX - page - 2 * HUGE_HEAD) {
        return NULL;
    }
    size_t mapped = hak__emergency_mapped(size);
    void *start;
    alignment = alignment < page ? page : alignment;
    if (hak__os_map_behind(HUGE_HEAD, mapped + 2 * HUGE_HEAD, alignment, &start) != 0) {
        return NULL;
    }
    uintptr_t address = (uintptr_t)start + HUGE_HEAD;
    if (!emergency_put(address, mapped)) {
        emergency_unmap(address, mapped);
        return NULL;
    }
    return (void *)address;
}

bool hak__emergency_free(void *pointer, bool stays)
{
    uintptr_t address = (uintptr_t)pointer;
    struct emergency_place *place = emergency_look(address);
    size_t state = place != NULL ? place_take(place) : PLACE_EMPTY;
    if (state != PLACE_EMPTY && atomic_load_relaxed(&place->shared_address) != address) {
        place_leave(place, state); /* another block's since the look */
        state = PLACE_EMPTY;
    }
    bool waits = (state & PLACE_FREED) != 0;
    if (state == PLACE_EMPTY) { /* without memory for it the block is lost */
        (void)emergency_put(address, PLACE_FREED);
    } else if (waits || stays) {
        place_leave(place, state | PLACE_FREED);
        emergency_note();
    } else {
        emergency_unmap(address, state);
        place_leave(place, PLACE_EMPTY);
    }
    return !waits;
}

bool hak__emergency_waits(void)
{
    return atomic_load_relaxed(&shared_unsettled) != 0;
}

/* The new block in the place, if it contains `address`; address 0: it does not. Under HUGE. */
static struct huge place_block(const struct emergency_place *place, uintptr_t address)
{
    size_t bytes = atomic_load_acquire(&place->shared_state); /* pairs with place_leave */
    bytes &= ~(size_t)(PLACE_FREED | PLACE_BUSY);
    uintptr_t start = atomic_load_relaxed(&place->shared_address);
    struct huge block = HUGE_OF(start, bytes, huge_origin_here(0));
    return address - start < bytes ? block : (struct huge){0};
}

struct huge hak__emergency_find(uintptr_t address)
{
    const struct emergency_place *place = emergency_look(address);
    return place != NULL ? place_block(place, address) : (struct huge){0};
}

struct huge hak__emergency_containing(uintptr_t address)
{
    struct huge block = {0};
    for (struct emergency_table *table = &emergency_first; table != NULL && block.address == 0;
         table = emergency_next(table)) {
        for (uint32_t i = 0; i < HAK_COUNT_OF(emergency_first.places) && block.address == 0; i++) {
            block = place_block(&table->places[i], address);
        }
    }
    return block;
}

/* Makes the place's block a huge block, if it is a new one that was not freed. Both under HUGE: a
 * look finds it in one of the two. False: no memory to enlarge the registry. */
static bool settle_new(struct emergency_place *place)
{
    size_t state = atomic_load_relaxed(&place->shared_state);
    if (state <= PLACE_BUSY || (state & PLACE_FREED) != 0) {
        return true;
    }
    if (!hak__huge_registry_lock()) {
        return false;
    }
    state = place_take(place);
    if (state != PLACE_EMPTY) {
        bool is_new = (state & PLACE_FREED) == 0; /* still */
        uintptr_t address = atomic_load_relaxed(&place->shared_address);
        if (is_new) {
            hak__huge_registry_add((struct huge)HUGE_OF(address, state, hak__huge_new_origin()));
        }
        place_leave(place, is_new ? PLACE_EMPTY : state);
    }
    lock_release(&hak__huge_lock);
    return true;
}

static void settle_freed(uintptr_t address, size_t bytes)
{
    void *block = (void *)address;
    size_t slice = window_slice_of(block);
    uint32_t owner = window_contains_slice(slice) ? window_owner(slice) : OWNER_NOBODY;
    if (owner == OWNER_SPAN_TAKEN && hak__span_pointer(slice) == block) {
        hak__span_free_taken(NULL, NULL, slice);
        return;
    }
    /* A library's munmap may have freed it, and would allocate the next one (os/bound.h). Only
     * emergency memory is so small. */
    bool direct = hak__os_go_direct(bytes != 0 || hak__huge_bytes(block) <= SPAN_SIZE_MAX);
    if (bytes != 0) {
        emergency_unmap(address, bytes);
    } else {
        (void)hak__huge_free(block);
    }
    (void)hak__os_go_direct(direct);
}

/* After each block. False: refused, and no longer inside. */
static bool settle_may_go_on(uint32_t *done)
{
    /* Blocks that settle registers or frees before it lets a fork pass. Twice: a fork, and a signal
     * of this thread, wait up to 0.5 ms longer. Half: where forks follow closely, half as many are
     * done between two. */
    if (++*done % 64 != 0) {
        return true;
    }
    emergency_note(); /* the child of a fork that passes has the rest, but not this thread */
    return hak__gate_let_pass();
}

static bool settle_table(struct emergency_table *table, uint32_t *done)
{
    for (uint32_t i = 0; i < HAK_COUNT_OF(emergency_first.places); i++) {
        struct emergency_place *place = &table->places[i];
        if (atomic_load_relaxed(&place->shared_state) == PLACE_EMPTY) {
            continue;
        }
        if (!settle_new(place)) {
            emergency_note(); /* the next settle tries again */
            continue;
        }
        size_t state = place_take(place);
        if (state != PLACE_EMPTY && (state & PLACE_FREED) != 0) {
            uintptr_t address = atomic_load_relaxed(&place->shared_address);
            place_leave(place, PLACE_EMPTY);
            settle_freed(address, state - PLACE_FREED);
        } else if (state != PLACE_EMPTY) { /* another one since */
            place_leave(place, state);
            emergency_note();
        }
        if (!settle_may_go_on(done)) {
            return false;
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
    struct emergency_table *table = &emergency_first;
    while (table != NULL && settle_table(table, &done)) {
        table = emergency_next(table);
    }
    return table == NULL;
}
