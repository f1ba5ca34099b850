/* SPDX-License-Identifier: MIT */
/* bound.h: how os/ calls the functions that map memory.
 *
 * Libraries put functions of these names before the C library's, to follow what is mapped. Such a
 * function must not be called before its library is ready (override/direct.c). Until then these
 * functions make the system call.
 *
 * Such a function may allocate. If this was called for that, too, it would allocate again, without
 * end: so what a thread does inside it are system calls. And it is called in the middle of an
 * operation, as of one that returns the objects of a bin: so the bins are hidden from it. */
#ifndef HAK_OS_BOUND_H
#define HAK_OS_BOUND_H

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"

#ifndef MAP_FIXED_NOREPLACE /* of Linux 4.17; the value is part of the kernel's ABI */
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum {
    BOUND_PLAINLY, /* override/direct.c has found that nobody follows mappings */
    BOUND_DIRECT,  /* somebody does, and is not ready yet: make the system call */
    BOUND_FOLLOWED /* somebody may, and may allocate meanwhile. Static programs begin so and stay */
};

/* One of these; relaxed: DIRECT and FOLLOWED are both right once it is FOLLOWED. */
HAK_HIDDEN extern uint8_t hak__os_shared_bound;

/* Hides this thread's bins, and shows those that it has hidden; NULL: none. Set where somebody
 * follows mappings, before there are threads; NULL in static programs. */
HAK_HIDDEN extern void *(*hak__os_hide_bins)(void *hidden);

HAK_INLINE uint8_t bound_state(void)
{
    return atomic_load_relaxed(&hak__os_shared_bound);
}

/* One of the four calls, where somebody follows them. Apart from the others for their stacks. */
HAK_HIDDEN HAK_COLD long hak__os_bound_call(long number, void *address, size_t size, long third,
                                            long fourth, void *fifth);

HAK_INLINE void *bound_mmap(void *address, size_t size, int protection, int flags, int file)
{
    return HAK_LIKELY(bound_state() == BOUND_PLAINLY)
               ? mmap(address, size, protection, flags, file, 0)
               : (void *)hak__os_bound_call(SYS_mmap, address, size, protection, flags,
                                            (void *)(long)file);
}

HAK_INLINE int bound_munmap(void *address, size_t size)
{
    return HAK_LIKELY(bound_state() == BOUND_PLAINLY)
               ? munmap(address, size)
               : (int)hak__os_bound_call(SYS_munmap, address, size, 0, 0, NULL);
}

HAK_INLINE void *bound_mremap(void *address, size_t old_size, size_t size, int flags, void *place)
{
    return HAK_LIKELY(bound_state() == BOUND_PLAINLY)
               ? mremap(address, old_size, size, flags, place)
               : (void *)hak__os_bound_call(SYS_mremap, address, old_size, (long)size, flags,
                                            place);
}

HAK_INLINE int bound_madvise(void *address, size_t size, int advice)
{
    return HAK_LIKELY(bound_state() == BOUND_PLAINLY)
               ? madvise(address, size, advice)
               : (int)hak__os_bound_call(SYS_madvise, address, size, advice, 0, NULL);
}

#endif
