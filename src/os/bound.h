/* SPDX-License-Identifier: MIT */
/* bound.h: how os/ calls the functions that map memory.
 *
 * Libraries put functions of these names before the C library's, to follow what is mapped. Such a
 * function must not be called before its library is ready (override/direct.c). Until then these
 * functions make the system call. */
#ifndef HAK_OS_BOUND_H
#define HAK_OS_BOUND_H

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"

/* relaxed: both ways are right at any time once it is false */
HAK_HIDDEN extern bool hak__os_shared_unready;

HAK_INLINE bool bound_is_unready(void)
{
    return HAK_UNLIKELY(atomic_load_relaxed(&hak__os_shared_unready));
}

HAK_INLINE void *bound_mmap(void *address, size_t size, int protection, int flags, int file)
{
    return bound_is_unready() ? (void *)syscall(SYS_mmap, address, size, (long)protection,
                                                (long)flags, (long)file, 0L)
                              : mmap(address, size, protection, flags, file, 0);
}

HAK_INLINE int bound_munmap(void *address, size_t size)
{
    return bound_is_unready() ? (int)syscall(SYS_munmap, address, size) : munmap(address, size);
}

HAK_INLINE void *bound_mremap(void *address, size_t old_size, size_t size, int flags, void *place)
{
    return bound_is_unready()
               ? (void *)syscall(SYS_mremap, address, old_size, size, (long)flags, place)
               : mremap(address, old_size, size, flags, place);
}

HAK_INLINE int bound_madvise(void *address, size_t size, int advice)
{
    return bound_is_unready() ? (int)syscall(SYS_madvise, address, size, (long)advice)
                              : madvise(address, size, advice);
}

#endif
