/* SPDX-License-Identifier: MIT */
/* libc.c: the C library's names for hakmem's functions, and operator delete. Calls of malloc from
 * inside the C library come here, too.
 *
 * In the unity build each name is an alias, so the program's free is hak_free itself. The build of
 * many files uses tail calls, because an alias cannot cross files. Operator delete is here under
 * its mangled names (Itanium C++ ABI, 5.1), so that it is an alias as well. Operator new, which may
 * throw, is in cxx.cc. Functions that report or tune are in libc_reports.c. */
#include "front/fast.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "override/family.h"

#include <errno.h>

/* Gives the alias the attributes of its target: compilers warn of an alias with fewer. */
#if defined(__has_attribute)
#if __has_attribute(copy)
#define LIBC_COPY(target) __attribute__((copy(target)))
#endif
#endif
#ifndef LIBC_COPY
#define LIBC_COPY(target)
#endif

/* LIBC_NAME(result, name, (parameters), target, (arguments)): defines `name` as another name of
 * `target`. */
#if defined(HAK_UNITY)
#define LIBC_NAME(result, name, parameters, target, arguments)                                     \
    HAK_API extern result name parameters LIBC_COPY(target) __attribute__((alias(#target)));
#else
#define LIBC_NAME(result, name, parameters, target, arguments)                                     \
    HAK_API result name parameters;                                                                \
    result name parameters                                                                         \
    {                                                                                              \
        return target arguments;                                                                   \
    }
#endif

#define LIBC_FREE(name) LIBC_NAME(void, name, (void *pointer), hak_free, (pointer))

/* Names that exist twice, such as malloc and __libc_malloc. */
#define LIBC_FAMILY(prefix)                                                                        \
    LIBC_NAME(void *, prefix##malloc, (size_t size), hak_malloc, (size))                           \
    LIBC_NAME(void *, prefix##calloc, (size_t count, size_t size), hak_calloc, (count, size))      \
    LIBC_NAME(void *, prefix##realloc, (void *pointer, size_t size), hak_realloc, (pointer, size)) \
    LIBC_NAME(void *, prefix##memalign, (size_t alignment, size_t size), hak_memalign,             \
              (alignment, size))                                                                   \
    LIBC_NAME(void *, prefix##valloc, (size_t size), hak_valloc, (size))                           \
    LIBC_NAME(void *, prefix##pvalloc, (size_t size), hak_pvalloc, (size))                         \
    LIBC_FREE(prefix##free)
LIBC_FAMILY()
LIBC_FAMILY(__libc_)
LIBC_FREE(__libc_cfree)

LIBC_NAME(void *, aligned_alloc, (size_t alignment, size_t size), hak_aligned_alloc,
          (alignment, size))
LIBC_NAME(int, posix_memalign, (void **result, size_t alignment, size_t size), hak_posix_memalign,
          (result, alignment, size))
LIBC_NAME(int, __posix_memalign, (void **result, size_t alignment, size_t size), hak_posix_memalign,
          (result, alignment, size))

/* --- functions that are built on others, which the process may have replaced (family.c) --- */

HAK_API void *reallocarray(void *, size_t, size_t); /* NOLINT(readability-redundant-declaration) */
void *reallocarray(void *pointer, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    return hak__family_realloc(pointer, total);
}

HAK_API void cfree(void *pointer);
void cfree(void *pointer)
{
    hak__family_free_any(pointer);
}

HAK_API void free_sized(void *pointer, size_t size);
void free_sized(void *pointer, size_t size)
{
    if (hak__family_is_other()) {
        hak__family_free_any(pointer);
    } else {
        hak_free_sized(pointer, size);
    }
}

HAK_API void free_aligned_sized(void *pointer, size_t alignment, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    if (hak__family_is_other()) {
        hak__family_free_any(pointer);
    } else {
        hak_free_aligned_sized(pointer, alignment, size);
    }
}

#define LIBC_OWN(result, name, parameters)                                                         \
    HAK_HIDDEN extern result hak__own_##name parameters LIBC_COPY(name)                            \
        __attribute__((alias(#name)));
LIBC_OWN(void *, malloc, (size_t size))
LIBC_OWN(void, free, (void *pointer))
LIBC_OWN(void *, memalign, (size_t alignment, size_t size))
LIBC_OWN(void *, aligned_alloc, (size_t alignment, size_t size))
LIBC_OWN(int, posix_memalign, (void **result, size_t alignment, size_t size))

/* glibc's declaration has no const. The types differ, so this is no alias. */
HAK_API size_t malloc_usable_size(void *pointer);
size_t malloc_usable_size(void *pointer)
{
    return hak_usable_size(pointer);
}

/* The basic forms of operator delete; the others are in cxx.cc. hak_free ignores the alignment,
 * because a slab knows its class; the secure form looks at it. Weak, so that a program linked with
 * libhakmem.a may define its own. */
#pragma weak _ZdlPv
#pragma weak _ZdlPvSt11align_val_t
#if !HAK_SECURE
LIBC_FREE(_ZdlPv)
LIBC_FREE(_ZdlPvSt11align_val_t)
#else
/* Objects of new are told apart. A C++ compiler makes no tail calls in functions that are noexcept,
 * so the sized form is here, too. */
#pragma weak _ZdlPvm
HAK_API void _ZdlPv(void *pointer);
HAK_API void _ZdlPvm(void *pointer, size_t size);
HAK_HIDDEN void cxx_delete_sized(void *pointer, size_t size); /* in cxx.cc */

HAK_FAST_PATH void _ZdlPv(void *pointer)
{
    free_secure(pointer, secure_new_state());
}

HAK_FAST_PATH void _ZdlPvm(void *pointer, size_t size)
{
    if (HAK_UNLIKELY(!hak__secure.kinds || !free_short(pointer, SECURE_NEW, size))) {
        cxx_delete_sized(pointer, size);
    }
}

HAK_API void _ZdlPvSt11align_val_t(void *pointer, size_t alignment);

HAK_FAST_PATH void _ZdlPvSt11align_val_t(void *pointer, size_t alignment)
{
    hak__free_check_alignment(pointer, alignment);
    _ZdlPv(pointer);
}

HAK_HIDDEN void cxx_own_delete(void *pointer) LIBC_COPY(_ZdlPv) __attribute__((alias("_ZdlPv")));
#endif
