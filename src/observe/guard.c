/* SPDX-License-Identifier: MIT */
/* guard.c: see guard.h. */
#include "observe/guard.h"

#include "base/bits.h"
#include "core/diagnose.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "core/own_stack.h"
#include "observe/stacks.h"

#include <errno.h>
#include <string.h>

/* Fills the open pages beside a block. Not zero, which programs write most. */
#define GUARD_FILL 0xb7u

struct guard hak__guard HAK_SELDOM;

static size_t guard_step(void)
{
    return hak__guard.slot_size + hak__guard.page;
}

/* --- slots --- */

/* Maps the slots, once. False: not mapped, or not yet. Inside the gate. */
static bool guard_map(void)
{
    if (HAK_LIKELY(atomic_load_acquire(&hak__guard.size) != 0)) {
        return true;
    }
    uint32_t none = 0;
    if (!atomic_cas_acquire(&hak__guard.mapping, &none, 1u)) {
        return false;
    }
    struct guard *guard = &hak__guard;
    void *slots, *base;
    guard->page = hak__os_page_size();
    guard->slot_size = bits_align_up(GUARD_SIZE_MAX, guard->page);
    size_t size = GUARD_SLOTS * guard_step() + guard->page;
    size_t slots_size = bits_align_up(GUARD_SLOTS * sizeof(struct guard_slot), guard->page);
    if (hak__os_map(slots_size, guard->page, &slots) != 0) {
        return false;
    }
    if (hak__os_guard_reserve(size, &base) != 0) {
        hak__os_discard(slots, slots_size);
        return false;
    }
    guard->slots = slots;
    guard->base = (uintptr_t)base;
    atomic_store_release(&guard->size, size); /* pairs with the acquire in guard_contains */
    hak__os_fault_watch(hak__guard_fault);
    return true;
}

/* The slot that was freed first, or one that was never used. GUARD_SLOTS: all are in use. */
static uint32_t guard_oldest(uint64_t *state)
{
    uint32_t oldest = GUARD_SLOTS;
    *state = UINT64_MAX;
    for (uint32_t i = 0; i < GUARD_SLOTS && *state != GUARD_UNUSED; i++) {
        uint64_t now = atomic_load_relaxed(&hak__guard.states[i]);
        if (now < *state && now != GUARD_BUSY && now != GUARD_LIVE) {
            *state = now;
            oldest = i;
        }
    }
    return oldest;
}

/* Makes the oldest slot the caller's. GUARD_SLOTS: none. */
static uint32_t guard_take(uint64_t *state)
{
    /* Times that a thread looks for a slot if others take the one it has found. */
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t index = guard_oldest(state);
        /* acquire: pairs with the release of the last owner */
        if (index == GUARD_SLOTS ||
            atomic_cas_acquire(&hak__guard.states[index], state, (uint64_t)GUARD_BUSY)) {
            return index;
        }
    }
    return GUARD_SLOTS;
}

static void guard_set(uint32_t index, uint64_t state)
{
    /* release: pairs with the acquires of the next owner and of reports */
    atomic_store_release(&hak__guard.states[index], state);
}

static bool guard_charge(size_t bytes)
{
    size_t before = atomic_add_relaxed(&hak__guard.open_bytes, bytes);
    if (before + bytes > GUARD_OPEN_BYTES_MAX) {
        atomic_sub_relaxed(&hak__guard.open_bytes, bytes);
        return false;
    }
    return true;
}

uint32_t hak__guard_nearest(uintptr_t address)
{
    size_t distance = address - hak__guard.base, step = guard_step();
    uint32_t index = (uint32_t)(distance / step);
    if (distance % step >= hak__guard.page ||
        index == 0) { /* inside the slot, or before the first */
        return index == GUARD_SLOTS ? index - 1 : index;
    }
    if (index == GUARD_SLOTS) {
        return index - 1;
    }
    /* In the page between two slots. A block in use is a better guess than a freed one. */
    const struct guard_slot *before = &hak__guard.slots[index - 1], *after = before + 1;
    bool live_before = guard_state_of(index - 1) == GUARD_LIVE;
    bool live_after = guard_state_of(index) == GUARD_LIVE;
    if (live_before != live_after) {
        return live_before ? index - 1 : index;
    }
    return address - (before->address + before->size) < after->address - address ? index - 1
                                                                                 : index;
}

/* On a stack of its own, since the program's may be small. */
static void guard_walk(void *argument)
{
    struct guard_event *event = argument;
    uintptr_t frames[2 * GUARD_DEPTH_MAX];
    uint32_t depth = hak__stack_capture(frames, 2 * GUARD_DEPTH_MAX);
    depth -= depth != 0 && frames[depth - 1] == STACK_CUT;
    uint32_t own = hak__stack_own(frames, depth);
    event->depth = depth - own < GUARD_DEPTH_MAX ? depth - own : GUARD_DEPTH_MAX;
    memcpy(event->frames, frames + own, event->depth * sizeof *frames);
}

void hak__guard_note(struct guard_event *event, const void *caller)
{
    event->time_us = hak__os_clock_us();
    event->thread = hak__os_thread_id();
    event->depth = 0;
    (void)hak__own_stack_call(guard_walk, event);
    if (event->depth == 0) {
        event->frames[event->depth++] = (uintptr_t)caller;
    }
}

/* --- allocate --- */

/* Places the block, at the start of its pages or at their end. */
static void guard_place(struct guard_slot *slot, uint32_t index, size_t size, size_t alignment,
                        uint64_t random)
{
    uintptr_t start = guard_slot_start(index);
    slot->size = size;
    slot->open_bytes = bits_align_up(size, hak__guard.page);
    if ((random & 1) != 0) {
        slot->open = start;
        slot->address = start;
    } else {
        slot->open = start + hak__guard.slot_size - slot->open_bytes;
        slot->address = start + hak__guard.slot_size - bits_align_up(size, alignment);
    }
}

/* Bytes of the slot's open pages before the block, and after it. */
static size_t guard_before(const struct guard_slot *slot)
{
    return slot->address - slot->open;
}

static size_t guard_after(const struct guard_slot *slot)
{
    return slot->open + slot->open_bytes - slot->address - slot->size;
}

/* True: an attempt would be in vain, and the stack need not be taken. A hint. */
static bool guard_is_full(size_t size)
{
    return atomic_load_relaxed(&hak__guard.open_bytes) + size > GUARD_OPEN_BYTES_MAX;
}

/* Says once that the guard finds nothing more for now: else a run that is clean would look like a
 * proof. */
static HAK_COLD void guard_say_full(void)
{
    static uint32_t shared_said;
    if (atomic_exchange_acquire(&shared_said, 1) == 0) {
        hak__diagnose_warn("the guard is full: no new block is guarded until a guarded one is "
                           "freed; a larger HAKMEM_GUARD guards fewer",
                           NULL);
    }
}

/* Takes a slot and opens its pages. NULL: not this time. Inside the gate. */
static struct guard_slot *guard_open(size_t size, size_t alignment)
{
    uint64_t state;
    size_t bytes = bits_align_up(size, hak__os_page_size());
    if (!guard_map() || alignment > hak__guard.page || !guard_charge(bytes)) {
        return NULL;
    }
    uint32_t index = guard_take(&state);
    if (index == GUARD_SLOTS) {
        atomic_sub_relaxed(&hak__guard.open_bytes, bytes);
        return NULL;
    }
    struct guard_slot *slot = &hak__guard.slots[index];
    struct guard_slot before = *slot;
    uint64_t random = atomic_load_relaxed(&hak__guard.freed_number) * GUARD_SLOTS + index;
    guard_place(slot, index, size, alignment, bits_mix(random ^ hak__os_random_seed()));
    if (!hak__os_guard_open((void *)slot->open, slot->open_bytes)) {
        *slot = before;
        atomic_sub_relaxed(&hak__guard.open_bytes, bytes);
        guard_set(index, state);
        return NULL;
    }
    return slot;
}

/* Finishes the slot. */
static void guard_fill(struct guard_slot *slot, const struct guard_event *event)
{
    void *block = (void *)slot->address;
    memset((void *)slot->open, GUARD_FILL, guard_before(slot));
    memset((char *)block + slot->size, GUARD_FILL, guard_after(slot));
    slot->allocated = *event;
    slot->freed.depth = 0;
    guard_set((uint32_t)(slot - hak__guard.slots), GUARD_LIVE);
}

void *hak__guard_allocate(size_t size, size_t alignment, const void *caller)
{
    struct guard_event event;
    HAK_KEEP_ERRNO;
    struct guard_slot *slot = NULL;
    size = size == 0 ? 1 : size;
    if (size > GUARD_SIZE_MAX || bits_align_up(size, alignment) > GUARD_SIZE_MAX) {
        return NULL;
    }
    if (HAK_UNLIKELY(guard_is_full(size))) {
        guard_say_full();
        return NULL;
    }
    hak__guard_note(&event, caller); /* before the gate: a walk may take the loader's lock */
    if (hak__gate_enter(GATE_BRIEFLY)) {
        slot = guard_open(size, alignment);
        if (slot != NULL) {
            guard_fill(slot, &event);
            hak__os_fault_watch(hak__guard_fault);
        }
        hak__gate_leave();
    } else {
        hak__own.refused = false;
    }
    return slot != NULL ? (void *)slot->address : NULL;
}

/* --- look and free --- */

/* The slot of the block that starts at `pointer`. If none in use does: a fatal report. `freed`:
 * what is wrong if the block is free. */
static uint32_t guard_find(const void *pointer, const char *freed, const void *caller)
{
    uintptr_t address = (uintptr_t)pointer;
    uint32_t index = hak__guard_nearest(address);
    uint64_t state = guard_state_of(index);
    if (state != GUARD_LIVE) {
        bool starts = address == hak__guard.slots[index].address;
        hak__guard_fatal(state == GUARD_UNUSED ? "invalid pointer (no allocation starts here)"
                         : starts              ? freed
                                               : "invalid pointer (inside a freed block)",
                         index, address, caller);
    }
    if (address != hak__guard.slots[index].address) {
        hak__guard_fatal("invalid pointer (inside an allocation, or beside it)", index, address,
                         caller);
    }
    return index;
}

size_t hak__guard_bytes(const void *pointer)
{
    return hak__guard
        .slots[guard_find(pointer, "use after free (realloc or malloc_usable_size)",
                          __builtin_return_address(0))]
        .size;
}

bool hak__guard_owns(const void *pointer)
{
    uint32_t index = hak__guard_nearest((uintptr_t)pointer);
    const struct guard_slot *slot = &hak__guard.slots[index];
    return guard_state_of(index) == GUARD_LIVE && (uintptr_t)pointer - slot->address < slot->size;
}

/* The byte of the pattern that was written over and lies nearest to the block. 0: none was. */
static uintptr_t guard_overwritten(const struct guard_slot *slot)
{
    const unsigned char *block = (const unsigned char *)slot->address;
    size_t after = guard_after(slot), before = guard_before(slot);
    for (size_t i = 0; i < after; i++) {
        if (block[slot->size + i] != GUARD_FILL) {
            return slot->address + slot->size + i;
        }
    }
    for (size_t i = 1; i <= before; i++) {
        if (*(block - i) != GUARD_FILL) {
            return slot->address - i;
        }
    }
    return 0;
}

void hak__guard_free(void *pointer, const void *caller)
{
    HAK_KEEP_ERRNO;
    uint64_t live = GUARD_LIVE;
    struct guard_event event;
    hak__guard_note(&event, caller);
    bool entered = hak__gate_enter(GATE_BRIEFLY);
    if (!entered) { /* during a fork, or in a signal handler, it goes on without */
        hak__own.refused = false;
    }
    uint32_t index = guard_find(pointer, "double free", caller);
    struct guard_slot *slot = &hak__guard.slots[index];
    if (!atomic_cas_acquire(&hak__guard.states[index], &live, (uint64_t)GUARD_BUSY)) {
        hak__guard_fatal("double free, by two threads at once", index, slot->address, caller);
    }
    uintptr_t written = guard_overwritten(slot);
    if (written != 0) {
        hak__guard_fatal(written < slot->address ? "underflow (found at free)"
                                                 : "overflow (found at free)",
                         index, written, caller);
    }
    slot->freed = event;
    hak__os_guard_close((void *)slot->open, slot->open_bytes);
    atomic_sub_relaxed(&hak__guard.open_bytes, slot->open_bytes);
    guard_set(index, GUARD_FREED + atomic_add_relaxed(&hak__guard.freed_number, UINT64_C(1)));
    hak__os_fault_watch(hak__guard_fault);
    if (entered) {
        hak__gate_leave();
    }
}
