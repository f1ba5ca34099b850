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

/* relaxed: both ways are right at any time once it is false */
HAK_HIDDEN extern bool hak__os_shared_unready;

/* This thread's calls are the system's. */
HAK_HIDDEN extern HAK_TLS bool hak__os_is_direct;

HAK_INLINE bool bound_is_unready(void)
{
    return HAK_UNLIKELY(atomic_load_relaxed(&hak__os_shared_unready));
}

HAK_INLINE bool bound_is_direct(void)
{
    return HAK_UNLIKELY(bound_is_unready() || hak__os_is_direct);
}

/* Called before and after a call of somebody's function; NULL: there is none. Written before there
 * are threads. */
HAK_HIDDEN extern void (*hak__os_around_bound)(bool before);

HAK_INLINE void bound_around(bool before)
{
    hak__os_is_direct = before;
    if (HAK_UNLIKELY(hak__os_around_bound != NULL)) {
        hak__os_around_bound(before);
    }
}

/* Makes one call of what is bound. */
#define BOUND_CALL(type, call)                                                                     \
    ({                                                                                             \
        bound_around(true);                                                                        \
        type result_ = (call);                                                                     \
        bound_around(false);                                                                       \
        result_;                                                                                   \
    })

HAK_INLINE void *bound_mmap(void *address, size_t size, int protection, int flags, int file)
{
    return bound_is_direct() ? (void *)syscall(SYS_mmap, address, size, (long)protection,
                                               (long)flags, (long)file, 0L)
                             : BOUND_CALL(void *, mmap(address, size, protection, flags, file, 0));
}

HAK_INLINE int bound_munmap(void *address, size_t size)
{
    return bound_is_direct() ? (int)syscall(SYS_munmap, address, size)
                             : BOUND_CALL(int, munmap(address, size));
}

HAK_INLINE void *bound_mremap(void *address, size_t old_size, size_t size, int flags, void *place)
{
    return bound_is_direct()
               ? (void *)syscall(SYS_mremap, address, old_size, size, (long)flags, place)
               : BOUND_CALL(void *, mremap(address, old_size, size, flags, place));
}

HAK_INLINE int bound_madvise(void *address, size_t size, int advice)
{
    return bound_is_direct() ? (int)syscall(SYS_madvise, address, size, (long)advice)
                             : BOUND_CALL(int, madvise(address, size, advice));
}

#endif
