/* SPDX-License-Identifier: MIT */
/* large.c: see large.h. */
#define _GNU_SOURCE
#include "large.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_SLOTS 8192u
#define LARGE_PROBES 32u
#define SLOT_GONE 1u /* was used: later entries of the same hash may follow */

struct large_slot {
    _Atomic uintptr_t shared_address;
    _Atomic uint64_t shared_size;
};

_Atomic uint32_t shared_large_count;
static struct large_slot slots[LARGE_SLOTS];

static struct large_slot *slot_at(uintptr_t address, uint32_t probe)
{
    uint64_t hash = (uint64_t)(address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return &slots[(hash + probe) % LARGE_SLOTS];
}

void large_add(const void *pointer, uint64_t size)
{
    uintptr_t address = (uintptr_t)pointer;
    for (uint32_t i = 0; i < LARGE_PROBES; i++) {
        struct large_slot *slot = slot_at(address, i);
        uintptr_t found = atomic_load(&slot->shared_address);
        if (found <= SLOT_GONE &&
            atomic_compare_exchange_strong(&slot->shared_address, &found, address)) {
            atomic_store(&slot->shared_size, size);
            atomic_fetch_add(&shared_large_count, 1);
            return;
        }
    }
}

/* Bytes of the block in pages that are resident. */
static uint64_t resident_bytes(uintptr_t address, uint64_t size)
{
    unsigned char pages[512];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = address + size;
    uint64_t bytes = 0;
    for (uintptr_t at = address & ~(page - 1); at < end; at += sizeof pages * page) {
        uintptr_t length = (end - at + page - 1) & ~(page - 1);
        length = length < sizeof pages * page ? length : sizeof pages * page;
        if (mincore((void *)at, length, pages) != 0) { /* NOLINT(performance-no-int-to-ptr) */
            return size;
        }
        for (uintptr_t i = 0; i < length / page; i++) {
            bytes += (pages[i] & 1) != 0 ? page : 0;
        }
    }
    return bytes < size ? bytes : size;
}

static void record_slot(struct lane *lane, uintptr_t address, uint64_t size)
{
    int error = errno;
    uint64_t stamp = stamp_now();
    lane_record(lane, KIND_TOUCHED, 0, 0, (const void *)address, /* NOLINT */
                resident_bytes(address, size), stamp);
    errno = error;
}

void large_end(struct lane *lane, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    for (uint32_t i = 0; i < LARGE_PROBES; i++) {
        struct large_slot *slot = slot_at(address, i);
        uintptr_t found = atomic_load_explicit(&slot->shared_address, memory_order_relaxed);
        if (found == address) {
            uint64_t size = atomic_load(&slot->shared_size);
            atomic_fetch_sub(&shared_large_count, 1);
            atomic_store(&slot->shared_address, SLOT_GONE);
            record_slot(lane, address, size);
            return;
        }
        if (found == 0) {
            return;
        }
    }
}

void large_record_all(struct lane *lane)
{
    for (uint32_t i = 0; i < LARGE_SLOTS && atomic_load(&shared_large_count) != 0; i++) {
        uintptr_t address = atomic_load(&slots[i].shared_address);
        if (address > SLOT_GONE) {
            record_slot(lane, address, atomic_load(&slots[i].shared_size));
        }
    }
}

void large_forget_all(void)
{
    for (uint32_t i = 0; i < LARGE_SLOTS; i++) {
        if (atomic_load_explicit(&slots[i].shared_address, memory_order_relaxed) != 0) {
            atomic_store(&slots[i].shared_address, 0);
        }
    }
    atomic_store(&shared_large_count, 0);
}
