/* SPDX-License-Identifier: MIT */
/* tiny_allocator.c: for test_peers.py: a library that serves the malloc family from glibc's own
 * heap, whole or with one fault that a macro names. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void __libc_free(void *pointer);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *pointer, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

#if !defined(WITHOUT_MALLOC)
void *malloc(size_t size)
{
#if defined(CRASHES)
    static size_t calls;
    if (++calls > 1000) {
        *(volatile int *)8 = 0;
    }
#endif
    return __libc_malloc(size);
}
#endif

void free(void *pointer)
{
    __libc_free(pointer);
}

void *calloc(size_t count, size_t size)
{
    void *memory = __libc_calloc(count, size);
#if defined(CALLOC_DIRTY)
    if (memory != NULL && size > 8) {
        ((char *)memory)[8] = 1;
    }
#endif
    return memory;
}

#define FORWARD(name, parameters, call)                                                            \
    void *name parameters                                                                          \
    {                                                                                              \
        return call;                                                                               \
    }

FORWARD(realloc, (void *pointer, size_t size), __libc_realloc(pointer, size))
FORWARD(memalign, (size_t alignment, size_t size), __libc_memalign(alignment, size))
FORWARD(aligned_alloc, (size_t alignment, size_t size), __libc_memalign(alignment, size))

int posix_memalign(void **result, size_t alignment, size_t size)
{
    *result = __libc_memalign(alignment, size);
    return *result != NULL ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *pointer)
{
    static size_t (*original)(void *);
    if (original == NULL) {
        original = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    }
    return original(pointer);
}

#if !defined(WITHOUT_NEW)
FORWARD(_Znwm, (size_t size), __libc_malloc(size))
FORWARD(_Znam, (size_t size), __libc_malloc(size))

void _ZdlPv(void *pointer)
{
    __libc_free(pointer);
}

void _ZdaPv(void *pointer)
{
    __libc_free(pointer);
}
#endif

#if defined(WITHOUT_PER_CPU)
_Bool MallocExtension_Internal_GetPerCpuCachesActive(void)
{
    return 0;
}
#endif

#if defined(COMPLAINS)
__attribute__((constructor)) static void complain(void)
{
    static const char line[] = "hakmem: HAKMEM_NONSENSE=1 ignored: unknown option\n";
    if (write(2, line, sizeof(line) - 1) < 0) {
        _exit(1);
    }
}
#endif
