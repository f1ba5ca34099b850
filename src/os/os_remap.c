/* SPDX-License-Identifier: MIT */
/* os_remap.c: grows, shrinks and moves mappings. See os.h.
 *
 * mremap to a fixed address may fail after the kernel has unmapped the target. Another thread may
 * then map memory there. So a random mark is written to the target before each move: after a failed
 * move, the mark tells whether the memory there is still the caller's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/probe.h"
#include "os/bound.h"
#include "os/charge.h"

#ifndef MREMAP_DONTUNMAP /* of Linux 5.7; the value is part of the kernel's ABI */
#define MREMAP_DONTUNMAP 4
#endif

static void *os_mremap(void *address, size_t old_size, size_t new_size, int flags, void *place)
{
    os_count(OS_CALL_REMAP);
    void *result = bound_mremap(address, old_size, new_size, flags, place);
    if (result != MAP_FAILED) {
        probe_hakmem_remap((uintptr_t)address, old_size, (uintptr_t)result, new_size,
                           (uint64_t)flags);
    }
    return result;
}

/* A random number that other memory is not expected to contain. */
static uint64_t os_new_mark(void)
{
    static uint64_t shared_marks;
    uint64_t count = atomic_add_relaxed(&shared_marks, UINT64_C(1)) + 1;
    return hak__os_random_seed() + count * UINT64_C(0x9e3779b97f4a7c15);
}

/* True: `value` is at `word`, which may be unmapped or another thread's memory. A futex wait
 * without duration makes the kernel read the word, and changes nothing. */
static bool os_holds(uint32_t *word, uint32_t value)
{
    static const struct timespec none = {0, 0};
    os_count(OS_CALL_FUTEX);
    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &none, NULL, 0) != 0 &&
           errno == ETIMEDOUT;
}

/* After a failed move to `to`: makes `to` the caller's again, mapped and zero. Depending on the
 * kernel's version and on the reason, it is unmapped or as it was. False: another thread has mapped
 * memory there meanwhile, which does not contain `mark`. */
static bool os_is_ours_again(void *to, size_t size, uint64_t mark)
{
    uint32_t *words = to;
    os_count(OS_CALL_MAP);
    void *result = bound_mmap(to, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1);
    if (result == to) {
        return true;
    }
    if (result != MAP_FAILED) { /* a kernel before 4.17 takes the address for a hint */
        hak__os_recharge(size);
        hak__os_discard(result, size);
    }
    if (!os_holds(&words[0], (uint32_t)mark) || !os_holds(&words[1], (uint32_t)(mark >> 32))) {
        return false;
    }
    *(volatile uint64_t *)to = 0;
    return true;
}

/* As hak__os_move; the mapping may grow to `new_size` on the way. Changes errno. */
static int os_move(void *from, size_t old_size, size_t new_size, void *to, bool leaves)
{
    uint64_t mark = os_new_mark();
    *(volatile uint64_t *)to = mark;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (leaves ? MREMAP_DONTUNMAP : 0);
    if (os_mremap(from, old_size, new_size, flags, to) != MAP_FAILED) {
        hak__os_uncharge(leaves ? 0 : old_size); /* the target stays charged */
        return 0;
    }
    int error = -errno;
    if (!os_is_ours_again(to, new_size, mark)) {
        hak__os_uncharge(new_size);
        probe_hakmem_unmap((uintptr_t)to, new_size);
        return -EEXIST;
    }
    return error;
}

int hak__os_move(void *from, size_t size, void *to, bool leaves)
{
    HAK_KEEP_ERRNO;
    return os_move(from, size, size, to, leaves);
}

static void *os_grow(void *address, size_t old_size, size_t new_size, int flags)
{
    void *result = MAP_FAILED;
    errno = ENOMEM;
    if (hak__os_charge(new_size - old_size)) {
        result = os_mremap(address, old_size, new_size, flags, NULL);
        if (result == MAP_FAILED) {
            hak__os_uncharge(new_size - old_size);
        } else {
            hak__os_note_peak();
        }
    }
    return result;
}

int hak__os_extend(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    size_t page = hak__os_page_size();
    void *last = (char *)address - page;
    return os_grow(last, page, page + size, 0) == MAP_FAILED ? -errno : 0;
}

/* Grows a mapping and moves it to a multiple of `alignment`. It maps the target first, because the
 * kernel itself would choose an address with any alignment. Changes errno. */
static void *os_grow_aligned(size_t front, void *address, size_t old_size, size_t new_size,
                             size_t alignment)
{
    void *place;
    if (hak__os_map_behind(front, new_size, alignment, &place) != 0) {
        return MAP_FAILED;
    }
    hak__os_small(place, new_size); /* os_move writes to it, which must not cost a huge page */
    int error = os_move(address, old_size, new_size, place, false);
    if (error != 0 && error != -EEXIST) {
        hak__os_discard(place, new_size);
    }
    return error == 0 ? place : MAP_FAILED;
}

int hak__os_remap(size_t front, void *address, size_t old_size, size_t new_size, size_t alignment,
                  void **moved)
{
    HAK_KEEP_ERRNO;
    size_t page = hak__os_page_size();
    void *result = MAP_FAILED;
    if (new_size <= old_size) {
        result = os_mremap(address, old_size, new_size, 0, NULL);
        hak__os_uncharge(result == MAP_FAILED ? 0 : old_size - new_size);
    } else {
        bool aligned = alignment == 0 || (((uintptr_t)address + front) & (alignment - 1)) == 0;
        if (alignment != page &&
            aligned) { /* grows its last page only: the others may be in other mappings */
            int error = hak__os_extend((char *)address + old_size, new_size - old_size);
            result = error == 0 ? address : MAP_FAILED;
            errno = -error;
        }
        if (result == MAP_FAILED && alignment > page) {
            result = os_grow_aligned(front, address, old_size, new_size, alignment);
        }
        if (result == MAP_FAILED && alignment != 0) {
            result = os_grow(address, old_size, new_size, MREMAP_MAYMOVE);
        }
    }
    if (result == MAP_FAILED) {
        return -errno;
    }
    *moved = result;
    return 0;
}
