/* os_pages.c: what the kernel is told and asked about pages. See os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/check.h"

#ifndef MADV_POPULATE_WRITE /* of Linux 5.14; the value is part of the kernel's ABI */
#define MADV_POPULATE_WRITE 23
#endif

#define OS_PAGE_SIZE_MIN 4096u

static int os_advise(enum os_call call, void *address, size_t size, int advice)
{
    int saved = errno;
    os_count(call);
    int error = madvise(address, size, advice) == 0 ? 0 : -errno;
    errno = saved;
    return error;
}

int hak__os_purge(void *address, size_t size)
{
    return os_advise(OS_CALL_PURGE, address, size, MADV_DONTNEED);
}

int hak__os_huge(void *address, size_t size)
{
    return os_advise(OS_CALL_HUGE, address, size, MADV_HUGEPAGE);
}

int hak__os_small(void *address, size_t size)
{
    return os_advise(OS_CALL_SMALL, address, size, MADV_NOHUGEPAGE);
}

int hak__os_populate(void *address, size_t size)
{
    return os_advise(OS_CALL_POPULATE, address, size, MADV_POPULATE_WRITE);
}

size_t hak__os_resident(const void *address, size_t size)
{
    /* a byte a page, whose lowest bit says that it is resident; counted eight at a time */
    uint64_t pages[OS_RESIDENT_SIZE_MAX / OS_PAGE_SIZE_MIN / sizeof(uint64_t)] = {0};
    const uint64_t lowest = UINT64_C(0x0101010101010101);
    int saved = errno;
    HAK_ASSERT(size <= OS_RESIDENT_SIZE_MAX);
    os_count(OS_CALL_RESIDENT);
    size_t resident = 0;
    if (mincore((void *)(uintptr_t)address, size, (unsigned char *)pages) == 0) {
        for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
            resident += (pages[i] & lowest) * lowest >> 56; /* the sum of the eight bytes */
        }
    }
    errno = saved;
    return resident * hak__os_page_size();
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
    return (uint32_t)(hak__os_resident((const void *)start, end - start) * 100 / (end - start));
}
