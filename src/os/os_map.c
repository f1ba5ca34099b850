/* SPDX-License-Identifier: MIT */
/* os_map.c: mappings and the limit on their bytes, a part of os.h on Linux. See os_machine.c for
 * how the kernel is called. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alone.h"
#include "base/arch.h"
#include "base/bits.h"
#include "base/probe.h"
#include "base/tags.h"
#include "os/bound.h"
#include "os/charge.h"

uint8_t hak__os_shared_bound = BOUND_FOLLOWED;
void *(*hak__os_hide_bins)(void *hidden);
uint64_t hak__os_calls[OS_CALL_COUNT];
const char hak__os_call_names[OS_CALL_COUNT][20] = {
    "mmap",
    "munmap",
    "mremap",
    "madvise_dontneed",
    "madvise_hugepage",
    "madvise_nohugepage",
    "madvise_populate",
    "mincore",
    "futex",
};

/* Written by each mapping; not in a cache line of words that all threads read. */
static struct {
    uint64_t shared_bytes __attribute__((aligned(HAK_CACHE_LINE)));
    uint64_t shared_peak;
} os_mapped;
static uint64_t shared_mapped_limit = UINT64_MAX;

uint64_t hak__os_mapped_bytes(void)
{
    return atomic_load_relaxed(&os_mapped.shared_bytes);
}

void hak__os_set_limit(uint64_t bytes)
{
    atomic_store_relaxed(&shared_mapped_limit, bytes);
}

void hak__os_recharge(size_t size)
{
    atomic_add_relaxed(&os_mapped.shared_bytes, (uint64_t)size);
}

void hak__os_uncharge(size_t size)
{
    atomic_sub_relaxed(&os_mapped.shared_bytes, (uint64_t)size);
}

uint64_t hak__os_mapped_peak(void)
{
    return atomic_load_relaxed(&os_mapped.shared_peak);
}

void hak__os_reset_mapped_peak(void)
{
    atomic_store_relaxed(&os_mapped.shared_peak, hak__os_mapped_bytes());
}

void hak__os_note_peak(void)
{
    uint64_t bytes = hak__os_mapped_bytes(), peak = atomic_load_relaxed(&os_mapped.shared_peak);
    while (bytes > peak && !atomic_cas_acquire(&os_mapped.shared_peak, &peak, bytes)) {
    }
}

/* Before the system call, so that two threads cannot exceed the limit together. */
bool hak__os_charge(size_t size)
{
    uint64_t before = atomic_add_relaxed(&os_mapped.shared_bytes, (uint64_t)size);
    bool fits = before + size <= atomic_load_relaxed(&shared_mapped_limit);
    if (!fits) {
        hak__os_uncharge(size);
    }
    return fits;
}

static int os_protection = PROT_READ | PROT_WRITE; /* written before there are threads */

bool hak__os_start_tags(void)
{
    /* Linux on aarch64; headers older than 5.10 lack them. */
    enum { HWCAP2_TAGS = 1 << 18, PROT_TAGS = 0x20, TAGGED_ADDRESSES = 55 /* of prctl */ };
    enum { TAGS_ON = 1 << 0, TAGS_FAULT_AT_ONCE = 1 << 1, TAGS_ALL_BUT_0 = 0xfffe << 3 };
    if (!HAK_TAGS || (getauxval(AT_HWCAP2) & HWCAP2_TAGS) == 0) {
        return false;
    }
    HAK_KEEP_ERRNO;
    uint64_t how = TAGS_ON | TAGS_FAULT_AT_ONCE | TAGS_ALL_BUT_0;
    bool on = syscall(SYS_prctl, TAGGED_ADDRESSES, how, 0, 0, 0) == 0;
    os_protection |= on ? PROT_TAGS : 0;
    return on;
}

bool hak__os_replace(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_MAP);
    return bound_mmap(address, size, os_protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1) == address;
}

/* mmap that keeps errno. Returns the address, or NULL, and sets *error to 0 or -errno. */
static void *os_mmap(void *address, size_t size, int extra_flags, int *error)
{
    HAK_KEEP_ERRNO;
    if (!hak__os_charge(size)) {
        *error = -ENOMEM;
        probe_hakmem_map_failed(size, ENOMEM);
        return NULL;
    }
    os_count(OS_CALL_MAP);
    void *result =
        bound_mmap(address, size, os_protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1);
    *error = result == MAP_FAILED ? -errno : 0;
    if (*error != 0) {
        hak__os_uncharge(size);
        probe_hakmem_map_failed(size, (uint64_t) - *error);
    } else {
        hak__os_note_peak();
        probe_hakmem_map((uintptr_t)result, size);
    }
    return result == MAP_FAILED ? NULL : result;
}

static int os_map_there(void *address, size_t size, int extra_flags)
{
    int error;
    void *result = os_mmap(address, size, MAP_FIXED_NOREPLACE | extra_flags, &error);
    if (error == 0 && result != address) { /* a kernel before 4.17 takes the address for a hint */
        hak__os_discard(result, size);
        return -EEXIST;
    }
    return error;
}

int hak__os_map_at(void *address, size_t size)
{
    /* NORESERVE: neighbours become one mapping. With the kernel's default rule for overcommit, a
     * process with a reserved mapping larger than the machine's memory could not fork. */
    return os_map_there(address, size, MAP_NORESERVE);
}

int hak__os_map_apart(void *address, size_t size)
{
    return os_map_there(address, size, 0);
}

int hak__os_map(size_t size, size_t alignment, void **address)
{
    return hak__os_map_behind(0, size, alignment, address);
}

int hak__os_map_behind(size_t front, size_t size, size_t alignment, void **address)
{
    int error;
    void *result = os_mmap(NULL, size, 0, &error);
    if (error != 0) {
        return error;
    }
    if ((((uintptr_t)result + front) & (alignment - 1)) == 0) {
        *address = result;
        return 0;
    }
    hak__os_discard(result, size);
    size_t padded;
    if (__builtin_add_overflow(size, alignment - hak__os_page_size(), &padded)) {
        return -ENOMEM;
    }
    result = os_mmap(NULL, padded, 0, &error);
    if (error != 0) {
        return error;
    }
    uintptr_t start = bits_align_up((uintptr_t)result + front, alignment) - front;
    size_t before = start - (uintptr_t)result;
    size_t after = padded - before - size;
    if (before != 0) {
        hak__os_discard(result, before);
    }
    if (after != 0) {
        hak__os_discard((char *)result + before + size, after);
    }
    *address = (char *)result + before;
    return 0;
}

bool hak__os_go_direct(bool direct)
{
    bool was = hak__own.is_direct;
    hak__own.is_direct = direct;
    return was;
}

static long os_bound_call(long number, void *address, size_t size, long third, long fourth,
                          void *fifth)
{
    switch (number) {
    case SYS_mmap:
        return (long)mmap(address, size, (int)third, (int)fourth, (int)(long)fifth, 0);
    case SYS_munmap:
        return munmap(address, size);
    case SYS_mremap:
        return (long)mremap(address, size, (size_t)third, (int)fourth, fifth);
    default:
        return madvise(address, size, (int)third);
    }
}

long hak__os_bound_call(long number, void *address, size_t size, long third, long fourth,
                        void *fifth)
{
    if (bound_state() == BOUND_DIRECT || hak__own.is_direct) {
        return syscall(number, address, size, third, fourth, fifth, 0L);
    }
    hak__own.is_direct = true;
    void *hidden = hak__os_hide_bins != NULL ? hak__os_hide_bins(NULL) : NULL;
    long result = os_bound_call(number, address, size, third, fourth, fifth);
    if (hidden != NULL) {
        (void)hak__os_hide_bins(hidden);
    }
    hak__own.is_direct = false;
    return result;
}

int hak__os_unmap(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_UNMAP);
    if (bound_munmap(address, size) != 0) {
        return -errno;
    }
    hak__os_uncharge(size);
    probe_hakmem_unmap((uintptr_t)address, size);
    return 0;
}
