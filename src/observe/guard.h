/* SPDX-License-Identifier: MIT */
/* guard.h: guarded blocks: a few allocations live on pages of their own between closed pages, so
 * that a bad access faults at once (HAKMEM_GUARD).
 *
 *   | closed page | slot 0: up to GUARD_SIZE_MAX | closed page | slot 1 | ... | closed page |
 *
 *   allocated   only the pages of the block are open; it lies at the start of the first one, or at
 *               the end of the last one, by chance. A pattern fills the rest of these pages.
 *   freed       all pages of the slot are closed. Slots wait in the order in which they were freed.
 *
 * The idea is GWP-ASan's (K. Serebryany and others, "GWP-ASan: Sampling-Based Detection of
 * Memory-Safety Bugs in Production", ICSE 2024). Which allocations are guarded: arena/sampling.c.
 *
 * State: one word for each slot (enum below), changed by compare and exchange. A thread that has
 * set it to GUARD_BUSY owns the slot. No lock, so a signal handler may free a guarded block.
 * Allocating is an operation at the gate (core/gate.h), so no slot is half allocated in fork's
 * child. */
#ifndef HAK_OBSERVE_GUARD_H
#define HAK_OBSERVE_GUARD_H

#include "base/atomics.h"
#include "os/os.h"

/* Slots. Twice: freed blocks are closed for twice as many further guarded allocations, and records
 * take 0.5 MiB more. Half: errors are found for half as long after the free. */
#define GUARD_SLOTS 1024u
/* The largest guarded request, bytes, and the addresses of a slot; at least one OS page. Twice: the
 * slots take twice the addresses. Half: requests above that are never guarded. */
#define GUARD_SIZE_MAX ((size_t)16 << 10)
/* Bytes of open pages at most: with the records and the page tables it stays below 4 MiB. Twice:
 * more blocks are guarded at the same time. Half: fewer, and long-lived blocks leave room for few
 * others. */
#define GUARD_OPEN_BYTES_MAX ((size_t)3 << 20)
/* Return addresses kept of a stack. Twice: 0.4 MiB more for the records. */
#define GUARD_DEPTH_MAX 24u

enum guard_state {
    GUARD_UNUSED,
    GUARD_BUSY, /* being allocated or freed, or lost: a thread ended in between */
    GUARD_LIVE,
    GUARD_FREED /* this or any larger number: freed; numbers grow with each free */
};

/* What a thread did with a block. */
struct guard_event {
    uint64_t time_us;
    uint32_t thread; /* the kernel's number */
    uint32_t depth;
    uintptr_t frames[GUARD_DEPTH_MAX]; /* the program's return addresses, innermost first */
};

struct guard_slot {
    uintptr_t address; /* of the block */
    size_t size;       /* as requested; 1 for 0 */
    uintptr_t open;    /* its pages */
    size_t open_bytes;
    struct guard_event allocated;
    struct guard_event freed;
};

struct guard {
    uintptr_t base; /* the first closed page */
    size_t size;    /* 0: nothing is mapped; written last */
    size_t slot_size;
    size_t page;
    struct guard_slot *slots;     /* [GUARD_SLOTS] */
    uint64_t states[GUARD_SLOTS]; /* enum guard_state; those of untouched pages take no memory */
    uint64_t freed_number;        /* of the last free */
    size_t open_bytes;            /* of all slots */
    uint32_t mapping;             /* 1: a thread maps, has mapped or has failed to */
    uint32_t reported;            /* 1: a thread reports; the process ends */
};
HAK_HIDDEN extern struct guard hak__guard;

/* True: the address lies in a slot or beside one. */
HAK_INLINE bool guard_contains(const void *pointer)
{
    /* acquire: pairs with the release in guard.c; base is written before */
    size_t size = atomic_load_acquire(&hak__guard.size);
    return HAK_UNLIKELY(size != 0) && (uintptr_t)pointer - hak__guard.base < size;
}

/* Allocates a guarded block. `caller`: the return address of malloc's caller, for stacks that
 * cannot be read; it may be one of hakmem's. NULL: not this time. Keeps errno. */
HAK_HIDDEN void *hak__guard_allocate(size_t size, size_t alignment, const void *caller);
/* Frees the block. A fatal report if none starts there, if it is free already, or if the pattern
 * beside it was written over. Any thread, also in a signal handler. Keeps errno. */
HAK_HIDDEN void hak__guard_free(void *pointer, const void *caller);
/* Bytes of the block that starts at `pointer`; a fatal report if it is none in use. */
HAK_HIDDEN size_t hak__guard_bytes(const void *pointer);
/* True: a block in use contains the address. */
HAK_HIDDEN bool hak__guard_owns(const void *pointer);

/* --- between guard.c and guard_report.c --- */

/* The first byte of a slot. */
HAK_INLINE uintptr_t guard_slot_start(uint32_t index)
{
    return hak__guard.base + hak__guard.page +
           (size_t)index * (hak__guard.slot_size + hak__guard.page);
}
HAK_INLINE uint64_t guard_state_of(uint32_t index)
{
    /* acquire: pairs with the release of who wrote the slot */
    return atomic_load_acquire(&hak__guard.states[index]);
}
/* The slot of an address inside the region: the one that holds it, or the one whose block is
 * nearer. */
HAK_HIDDEN uint32_t hak__guard_nearest(uintptr_t address);
/* Fills `event` with what the calling thread does now. */
HAK_HIDDEN void hak__guard_note(struct guard_event *event, const void *caller);
/* Reports an error that free or another call has found, and aborts. `slot`: the nearest. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__guard_fatal(const char *what, uint32_t slot, uintptr_t address, const void *caller);
/* os_fault_function: reports a fault in the region; returns at once for another one. */
HAK_HIDDEN void hak__guard_fault(const struct os_fault *fault);

/* Writes a report if the address is one of a closed page: behind a live block, or in a freed one.
 * Does nothing otherwise. In the signal's handler; it allocates nothing and waits at most
 * 100 milliseconds for a lock. */
HAK_HIDDEN void hak__secure_fault(const struct os_fault *fault);

#endif
