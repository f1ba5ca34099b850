/* SPDX-License-Identifier: MIT */
/* os_pages.c: purging, the choice of page sizes, residency, and clearing. See os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/probe.h"
#include "os/bound.h"

#ifndef MADV_POPULATE_WRITE /* of Linux 5.14; the value is part of the kernel's ABI */
#define MADV_POPULATE_WRITE 23
#endif

/* Purges go by the name: see os_machine.c. */
static int os_advise(enum os_call call, void *address, size_t size, int advice)
{
    if (call != OS_CALL_PURGE && !hak__os_may_ask()) {
        return -EPERM;
    }
    HAK_KEEP_ERRNO;
    os_count(call);
    long result = call == OS_CALL_PURGE ? bound_madvise(address, size, advice)
                                        : syscall(SYS_madvise, address, size, advice);
    return result == 0 ? 0 : -errno;
}

/* qemu-user before 7.1 and some sandboxes answer 0 and do nothing. So the first purge is looked at:
 * it decides for all of them. Relaxed: each thread may find it out itself. */
enum { PURGES_UNKNOWN, PURGES_DONE, PURGES_IGNORED };
static uint32_t shared_os_purges;

/* As hak__os_purge, for memory that is the caller's. A mark shows whether that empties it. */
static int os_purge_first(void *address, size_t size)
{
    HAK_KEEP_ERRNO;
    volatile uint64_t *word = address;
    uint64_t before = *word;
    *word = UINT64_MAX; /* a mark */
    int error = os_advise(OS_CALL_PURGE, address, size, MADV_DONTNEED);
    bool kept = *word != 0;
    if (kept) {
        *word = before;
    } else { /* the look has made a page of zeroes resident */
        (void)bound_madvise(address, hak__os_page_size(), MADV_DONTNEED);
    }
    if (error == 0) {
        atomic_store_relaxed(&shared_os_purges, (uint32_t)(kept ? PURGES_IGNORED : PURGES_DONE));
    }
    return error == 0 && kept ? -ENOSYS : error;
}

int hak__os_purge(void *address, size_t size)
{
    uint32_t purges = atomic_load_relaxed(&shared_os_purges);
    if (HAK_UNLIKELY(purges == PURGES_IGNORED)) {
        return -ENOSYS;
    }
    int error = purges == PURGES_UNKNOWN ? os_purge_first(address, size)
                                         : os_advise(OS_CALL_PURGE, address, size, MADV_DONTNEED);
    if (error == 0) {
        probe_hakmem_purge((uintptr_t)address, size);
    }
    return error;
}

int hak__os_huge_pages(void *address, size_t size)
{
    return os_advise(OS_CALL_HUGE_PAGES, address, size, MADV_HUGEPAGE);
}

int hak__os_small(void *address, size_t size)
{
    return os_advise(OS_CALL_SMALL, address, size, MADV_NOHUGEPAGE);
}

int hak__os_populate(void *address, size_t size)
{
    return os_advise(OS_CALL_POPULATE, address, size, MADV_POPULATE_WRITE);
}

int hak__os_look(const void *address, size_t size, unsigned char *pages)
{
    HAK_KEEP_ERRNO;
    if (!hak__os_may_ask()) {
        return -EPERM;
    }
    return mincore((void *)(uintptr_t)address, size, pages) == 0 ? 0 : -errno;
}

/* The kernel's struct pm_scan_arg, of 12 words, asks for the ranges whose pages are huge, without
 * those of the huge page of zeroes. Ranges that meet are one, so 32 suffice. */
bool hak__os_find_huge_pages(uintptr_t start, size_t count, uint64_t *mask)
{
    enum { IS_ZERO = 1 << 5, IS_HUGE = 1 << 6, UNIT = OS_RESIDENT_SIZE_MAX };
    struct {
        uint64_t start, end, kinds;
    } found[32];
    uint64_t scan[12] = {sizeof scan, 0, start,   start + count * UNIT, 0, (uintptr_t)found,
                         32,          0, IS_ZERO, IS_ZERO | IS_HUGE,    0, IS_HUGE};
    HAK_KEEP_ERRNO;
    long pages = hak__os_may_ask() ? syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/pagemap",
                                             O_RDONLY | O_CLOEXEC)
                                   : -1;
    long ranges = pages < 0 ? -1 : syscall(SYS_ioctl, pages, _IOWR('f', 16, uint64_t[12]), scan);
    if (pages >= 0) {
        syscall(SYS_close, pages);
    }
    *mask = 0;
    for (long i = 0; i < ranges; i++) {
        *mask |= bits_mask((uint32_t)((found[i].start - start) / UNIT),
                           (uint32_t)((found[i].end - found[i].start) / UNIT));
    }
    return ranges >= 0;
}

size_t hak__os_resident_pages(const unsigned char *pages, size_t count)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    size_t resident = 0, i = 0;
    for (uint64_t eight; i + 8 <= count; i += 8) {
        memcpy(&eight, pages + i, sizeof eight);
        resident += (eight & ones) * ones >> 56; /* the sum of the bytes' lowest bits */
    }
    for (; i < count; i++) {
        resident += pages[i] & 1;
    }
    return resident;
}

/* One byte for each OS page; its lowest bit says that the page is resident. */
struct residency {
    unsigned char pages[OS_RESIDENT_SIZE_MAX / ARCH_PAGE_SIZE_MIN];
};

static int os_look(const void *address, size_t size, struct residency *residency)
{
    HAK_ASSERT(size <= OS_RESIDENT_SIZE_MAX);
    if (hak__os_may_ask()) {
        os_count(OS_CALL_RESIDENT);
    }
    return hak__os_look(address, size, residency->pages);
}

size_t hak__os_resident(const void *address, size_t size)
{
    struct residency residency;
    size_t page = hak__os_page_size();
    if (os_look(address, size, &residency) != 0) {
        return SIZE_MAX;
    }
    return hak__os_resident_pages(residency.pages, size / page) * page;
}

/* Makes pages zero. It reads each page first and writes only to pages that are not zero, because a
 * page that is only read takes no memory. */
static void clear_pages(unsigned char *start, size_t size)
{
    size_t page = hak__os_page_size();
    for (unsigned char *at = start; at < start + size; at += page) {
        const uint64_t *words = (const uint64_t *)(const void *)at;
        size_t i = 0;
        while (i < page / sizeof *words && words[i] == 0) {
            i++;
        }
        if (i < page / sizeof *words) {
            memset(at, 0, page);
        }
    }
}

/* Makes whole pages zero, at most OS_RESIDENT_SIZE_MAX bytes. A page that is not resident may lie
 * in a swap area with its contents. So long gaps without memory are purged, not skipped. True: all
 * of them are purged. */
static bool clear_part(unsigned char *start, size_t size)
{
    struct residency residency;
    size_t page = hak__os_page_size(), count = size / page, cleared = 0;
    if (os_look(start, size, &residency) != 0) {
        /* Large blocks may be sparse: clearing would make all of one resident. */
        if (size < OS_RESIDENT_SIZE_MAX || hak__os_purge(start, size) != 0) {
            memset(start, 0, size);
            return false;
        }
        return true;
    }
    /* So few resident pages among others are purged with them, by one system call. Twice: more of
     * them are touched anew. Half: three calls for a block of which both ends were used. */
    if (count > 16 && hak__os_resident_pages(residency.pages, count) <= 4 &&
        hak__os_purge(start, size) == 0) {
        return true;
    }
    for (size_t i = 0, end; i < count; i = end) {
        bool resident = (residency.pages[i] & 1) != 0;
        for (end = i; end < count && ((residency.pages[end] & 1) != 0) == resident; end++) {
        }
        /* A gap of fewer pages without memory is cleared with its neighbours, which takes less time
         * than a system call (docs/decisions/0039). Twice: fewer system calls, and more pages to
         * read. Half: the reverse. */
        if (!resident && end - i >= 4 && hak__os_purge(start + i * page, (end - i) * page) == 0) {
            clear_pages(start + cleared * page, (i - cleared) * page);
            cleared = end;
        }
    }
    clear_pages(start + cleared * page, (count - cleared) * page);
    return false;
}

bool hak__os_clear(void *address, size_t size)
{
    unsigned char *start = address, *end = start + size;
    unsigned char *first = (unsigned char *)bits_align_up((uintptr_t)start, hak__os_page_size());
    unsigned char *last = (unsigned char *)bits_align_down((uintptr_t)end, hak__os_page_size());
    if (first >= last) {
        memset(start, 0, size);
        return false;
    }
    bool purged = true;
    memset(start, 0, (size_t)(first - start));
    for (size_t part; first < last; first += part) {
        part = (size_t)(last - first);
        part = part < OS_RESIDENT_SIZE_MAX ? part : OS_RESIDENT_SIZE_MAX;
        purged = clear_part(first, part) && purged;
    }
    memset(last, 0, (size_t)(end - last));
    return purged;
}

uint32_t hak__os_resident_percent(const void *address, size_t size)
{
    size_t look = size < OS_RESIDENT_SIZE_MAX ? size : OS_RESIDENT_SIZE_MAX;
    size_t page = hak__os_page_size();
    uintptr_t middle = (uintptr_t)address + (size - look) / 2;
    uintptr_t start = bits_align_up(middle, page);
    uintptr_t end = bits_align_down(middle + look, page);
    if (start >= end) {
        return 0;
    }
    size_t resident = hak__os_resident((const void *)start, end - start);
    return resident == SIZE_MAX ? 0 : (uint32_t)(resident * 100 / (end - start));
}
