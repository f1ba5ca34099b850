/* wrappers_cxx.c: all forms of the operators new and delete, by their mangled names (Itanium C++
 * ABI, 5.1).
 *
 * hakmem and other allocators define these operators themselves, so wrapping malloc is not enough.
 * Each form passes the call on as malloc, memalign or free of the next library: one call, one
 * event. Only where memory is out the C++ runtime's operator is looked up, which calls the new
 * handler and throws. What it may get then comes from a call of malloc inside, which is
 * recorded as such. This file is C, and no exception ever passes it: it jumps to that operator. */
#define _GNU_SOURCE
#include "wrappers.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define OPERATOR(symbol) __asm__(symbol) __attribute__((visibility("default")))

struct nothrow;

static void find_operator(void *slot, const char *symbol)
{
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1"};
    void *found = dlsym(RTLD_NEXT, symbol);
    for (unsigned i = 0; found == NULL && i < 2; i++) { /* one that a plugin brought along */
        void *library = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        found = library != NULL ? dlsym(library, symbol) : NULL;
    }
    if (found == NULL) {
        static const char text[] = "hakmem: operator new found no memory, and no C++ runtime\n";
        ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
        (void)ignored;
        __builtin_trap();
    }
    memcpy(slot, &found, sizeof found);
}

static void *new_failed(size_t size)
{
    void *(*function)(size_t size);
    find_operator(&function, "_Znwm");
    return function(size);
}

static void *new_failed_aligned(size_t size, size_t alignment)
{
    void *(*function)(size_t size, size_t alignment);
    find_operator(&function, "_ZnwmSt11align_val_t");
    return function(size, alignment);
}

static void *new_failed_nothrow(size_t size, const struct nothrow *tag)
{
    void *(*function)(size_t size, const struct nothrow *tag);
    find_operator(&function, "_ZnwmRKSt9nothrow_t");
    return function(size, tag);
}

static void *new_failed_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *tag)
{
    void *(*function)(size_t size, size_t alignment, const struct nothrow *tag);
    find_operator(&function, "_ZnwmSt11align_val_tRKSt9nothrow_t");
    return function(size, alignment, tag);
}

#define DEFINE_NEW(name, symbol, kind)                                                             \
    void *name(size_t size) OPERATOR(symbol);                                                      \
    void *name(size_t size)                                                                        \
    {                                                                                              \
        void *pointer = wrap_malloc(size, kind, CALLER);                                           \
        return LIKELY(pointer != NULL) ? pointer : new_failed(size);                               \
    }                                                                                              \
    void *name##_nothrow(size_t size, const struct nothrow *tag)                                   \
        OPERATOR(symbol "RKSt9nothrow_t");                                                         \
    void *name##_nothrow(size_t size, const struct nothrow *tag)                                   \
    {                                                                                              \
        void *pointer = wrap_malloc(size, kind, CALLER);                                           \
        return LIKELY(pointer != NULL) ? pointer : new_failed_nothrow(size, tag);                  \
    }                                                                                              \
    void *name##_aligned(size_t size, size_t alignment) OPERATOR(symbol "St11align_val_t");        \
    void *name##_aligned(size_t size, size_t alignment)                                            \
    {                                                                                              \
        void *pointer = wrap_memalign(alignment, size, KIND_NEW_ALIGNED, CALLER);                  \
        return LIKELY(pointer != NULL) ? pointer : new_failed_aligned(size, alignment);            \
    }                                                                                              \
    void *name##_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *tag)         \
        OPERATOR(symbol "St11align_val_tRKSt9nothrow_t");                                          \
    void *name##_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *tag)         \
    {                                                                                              \
        void *pointer = wrap_memalign(alignment, size, KIND_NEW_ALIGNED, CALLER);                  \
        return LIKELY(pointer != NULL) ? pointer                                                   \
                                       : new_failed_aligned_nothrow(size, alignment, tag);         \
    }
DEFINE_NEW(operator_new, "_Znwm", KIND_NEW)
DEFINE_NEW(operator_new_array, "_Znam", KIND_NEW_ARRAY)

/* The other arguments, sizes, alignments and tags, mean nothing to free. */
#define DEFINE_DELETE(name, symbol, parameters, kind)                                              \
    void name parameters OPERATOR(symbol);                                                         \
    void name parameters                                                                           \
    {                                                                                              \
        wrap_free(pointer, kind, CALLER);                                                          \
    }
#define DEFINE_DELETES(name, symbol)                                                               \
    DEFINE_DELETE(name, symbol, (void *pointer), KIND_DELETE)                                      \
    DEFINE_DELETE(name##_sized, symbol "m", (void *pointer, size_t size __attribute__((unused))),  \
                  KIND_DELETE_SIZED)                                                               \
    DEFINE_DELETE(name##_nothrow, symbol "RKSt9nothrow_t",                                         \
                  (void *pointer, const struct nothrow *tag __attribute__((unused))), KIND_DELETE) \
    DEFINE_DELETE(name##_aligned, symbol "St11align_val_t",                                        \
                  (void *pointer, size_t alignment __attribute__((unused))), KIND_DELETE)          \
    DEFINE_DELETE(name##_sized_aligned, symbol "mSt11align_val_t",                                 \
                  (void *pointer, size_t size __attribute__((unused)),                             \
                   size_t alignment __attribute__((unused))),                                      \
                  KIND_DELETE_SIZED)                                                               \
    DEFINE_DELETE(name##_aligned_nothrow, symbol "St11align_val_tRKSt9nothrow_t",                  \
                  (void *pointer, size_t alignment __attribute__((unused)),                        \
                   const struct nothrow *tag __attribute__((unused))),                             \
                  KIND_DELETE)
DEFINE_DELETES(operator_delete, "_ZdlPv")
DEFINE_DELETES(operator_delete_array, "_ZdaPv")
