/* SPDX-License-Identifier: MIT */
/* family.c: the malloc and free that the process uses. A program may have its own, or one of
 * another allocator that it was linked with. Such a family often lacks some functions: jemalloc has
 * no reallocarray. The loader then takes hakmem's, which must give the process blocks that its free
 * knows.
 *
 *   reallocarray              -> realloc, as in the C library
 *   cfree, sized frees        -> free
 *   aligned functions, new    -> the process's aligned functions, or malloc if that is enough;
 *                                hakmem's if it has none, as with the C library
 *   hak_free, delete          -> free, for a block that is not hakmem's
 *
 * The process's functions may be no more than wrappers of hakmem's, which count calls or put
 * something before a block. Aligned functions, new and delete then go past them, because delete
 * would not know such a block from hakmem's own.
 *
 * Fast paths know nothing of this: the bins of a process that never calls hakmem's malloc are
 * empty, and its blocks lie outside the window. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "override/family.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "arena/arena.h"
#include "base/atomics.h"
#include "core/diagnose.h"
#include "core/lock.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

/* The addresses that the loader has bound. Volatile, so that the compiler does not replace them by
 * hakmem's functions. */
#define FAMILY_BOUND(name) static __typeof__(&(name)) const volatile family_##name = (name)
FAMILY_BOUND(malloc);
FAMILY_BOUND(realloc);
FAMILY_BOUND(free);
FAMILY_BOUND(memalign);
FAMILY_BOUND(aligned_alloc);
FAMILY_BOUND(posix_memalign);

/* Where the functions of a recorder of traces begin and end (trace/wrappers.c). */
extern const uintptr_t family_recorder[2] __asm__("hakmem_recorder_range")
    __attribute__((weak, visibility("default")));

bool hak__family_is_recorded(uintptr_t function)
{
    return family_recorder != NULL &&
           function - family_recorder[0] < family_recorder[1] - family_recorder[0];
}

bool hak__family_is_other(void)
{
    return HAK_UNLIKELY(family_malloc != hak__own_malloc || family_free != hak__own_free);
}

/* True: the process's functions are wrappers of hakmem's. A block of theirs tells, once; a recorder
 * of traces would record it. */
static bool family_wraps(void)
{
    static uint32_t shared_wraps; /* 1: no, 2: yes. Relaxed: found out twice without harm */
    if (hak__family_is_recorded((uintptr_t)family_malloc)) {
        return true;
    }
    if (atomic_load_relaxed(&shared_wraps) == 0) {
        void *block = family_malloc(1);
        bool wraps = block != NULL && hak_owns(block);
        family_free(block);
        atomic_store_relaxed(&shared_wraps, wraps ? 2u : 1u);
    }
    return atomic_load_relaxed(&shared_wraps) == 2;
}

/* False: the process has no function for this alignment. */
static bool family_call(size_t alignment, size_t size, void **result)
{
    if (alignment <= OBJECT_ALIGNMENT && family_malloc != hak__own_malloc) {
        *result = family_malloc(size);
    } else if (family_posix_memalign != hak__own_posix_memalign) {
        int error = family_posix_memalign(result, alignment, size);
        errno = error != 0 ? error : errno;
        *result = error != 0 ? NULL : *result;
    } else if (family_memalign != hak__own_memalign) {
        *result = family_memalign(alignment, size);
    } else if (family_aligned_alloc != hak__own_aligned_alloc) {
        *result = family_aligned_alloc(alignment, size);
    } else {
        return false;
    }
    return true;
}

bool hak__family_allocate(size_t alignment, size_t size, void **result)
{
    if (!hak__family_is_other() || hak__own.in_family) {
        return false;
    }
    void *block = NULL;
    hak__own.in_family = true; /* a function of the process may call hakmem's */
    bool called = !family_wraps() && family_call(alignment, size, &block);
    if (called && block != NULL && hak_owns(block)) { /* a wrapper for some sizes */
        family_free(block);
        called = false;
    }
    hak__own.in_family = false;
    if (called) {
        *result = block;
    }
    return called;
}

bool hak__family_free(void *pointer)
{
    if (family_free == hak__own_free || hak__own.in_family) {
        return false;
    }
    hak__own.in_family = true;
    bool called = !family_wraps();
    if (called) {
        family_free(pointer);
    }
    hak__own.in_family = false;
    return called;
}

void *hak__family_realloc(void *pointer, size_t size)
{
    return family_realloc(pointer, size);
}

void hak__family_free_any(void *pointer)
{
    family_free(pointer);
}

/* --- sanitizers that have a malloc --- */

/* The first function of such a sanitizer. */
#define FAMILY_SANITIZER(name)                                                                     \
    extern void family_##name(void) __asm__("__" #name "_init")                                    \
        __attribute__((weak, visibility("default")))
FAMILY_SANITIZER(asan);
FAMILY_SANITIZER(tsan);
FAMILY_SANITIZER(msan);
FAMILY_SANITIZER(lsan);

/* Without its own malloc it would report races and leaks wrongly. */
void hak__start_refuse(void)
{
    bool sanitized =
        family_asan != NULL || family_tsan != NULL || family_msan != NULL || family_lsan != NULL;
    if (sanitized && !hak__family_is_other()) {
        DIAGNOSE_SAY(256, "hakmem: the program's sanitizer must serve its memory: put the "
                          "sanitizer's library (as libasan.so) before hakmem in "
                          "LD_PRELOAD, or run the program without hakmem");
        hak__os_exit(1);
    }
}
