/* libc.c: the C library's names for hakmem's functions, and operator delete. The C library's own
 * calls of malloc come here too.
 *
 * In the unity form a name is an alias: the program's free is hak_free itself. In the many-file
 * form it is a tail call, as an alias cannot cross files. Operator delete is here, by its mangled
 * names (Itanium C++ ABI, 5.1), so that it is an alias as well; operator new, which may throw, is
 * in cxx.cc. What tells or tunes instead of allocating is in libc_reports.c. */
#include "hakmem/hakmem.h"

/* The attributes of the target, so that the compiler does not find the alias wanting. */
#if defined(__has_attribute)
#if __has_attribute(copy)
#define LIBC_COPY(target) __attribute__((copy(target)))
#endif
#endif
#ifndef LIBC_COPY
#define LIBC_COPY(target)
#endif

/* LIBC_NAME(result, name, (parameters), target, (arguments)) */
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

/* Names that must exist twice: malloc and __libc_malloc. */
#define LIBC_FAMILY(prefix)                                                                        \
    LIBC_NAME(void *, prefix##malloc, (size_t size), hak_malloc, (size))                           \
    LIBC_NAME(void *, prefix##calloc, (size_t count, size_t size), hak_calloc, (count, size))      \
    LIBC_NAME(void *, prefix##realloc, (void *pointer, size_t size), hak_realloc, (pointer, size)) \
    LIBC_NAME(void *, prefix##memalign, (size_t alignment, size_t size), hak_memalign,             \
              (alignment, size))                                                                   \
    LIBC_NAME(void *, prefix##valloc, (size_t size), hak_valloc, (size))                           \
    LIBC_NAME(void *, prefix##pvalloc, (size_t size), hak_pvalloc, (size))                         \
    LIBC_FREE(prefix##free)                                                                        \
    LIBC_FREE(prefix##cfree)
LIBC_FAMILY()
LIBC_FAMILY(__libc_)

LIBC_NAME(void *, reallocarray, (void *pointer, size_t count, size_t size), hak_reallocarray,
          (pointer, count, size))
LIBC_NAME(void *, aligned_alloc, (size_t alignment, size_t size), hak_aligned_alloc,
          (alignment, size))
LIBC_NAME(int, posix_memalign, (void **result, size_t alignment, size_t size), hak_posix_memalign,
          (result, alignment, size))
LIBC_NAME(int, __posix_memalign, (void **result, size_t alignment, size_t size), hak_posix_memalign,
          (result, alignment, size))
LIBC_NAME(void, free_sized, (void *pointer, size_t size), hak_free_sized, (pointer, size))
LIBC_NAME(void, free_aligned_sized, (void *pointer, size_t alignment, size_t size),
          hak_free_aligned_sized, (pointer, alignment, size))

/* glibc's has no const: another type, so no alias. */
HAK_API size_t malloc_usable_size(void *pointer);
size_t malloc_usable_size(void *pointer)
{
    return hak_usable_size(pointer);
}

/* The two basic forms of operator delete; the others are in cxx.cc. What further registers hold, an
 * alignment, is of no use: a slab knows its class. Weak, so that a program that is linked with
 * libhakmem.a may define its own. */
#pragma weak _ZdlPv
#pragma weak _ZdlPvSt11align_val_t
LIBC_FREE(_ZdlPv)
LIBC_FREE(_ZdlPvSt11align_val_t)
