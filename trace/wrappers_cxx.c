/* SPDX-License-Identifier: MIT */
/* wrappers_cxx.c: all forms of the operators new and delete, by their mangled names (Itanium C++
 * ABI, 5.1).
 *
 * hakmem and other allocators define these operators themselves, so wrapping malloc is not enough.
 * Each form passes the call on as malloc, memalign or free of the next library: one call, one
 * event. Two cases go to the operator of the next library, which is hakmem or the C++ runtime:
 *
 *   no memory   the runtime's operator calls the new handler, and throws or returns NULL
 *   replaced    the program has an operator of its own, on which this form is built
 *               ([new.delete] in the C++ standard): the next library calls that one
 *
 * What those allocate is recorded where it comes through malloc. This file is C; exceptions pass
 * its functions, but none is caught here. */
#define _GNU_SOURCE
#include "wrappers.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define OPERATOR(symbol) __asm__(symbol) __attribute__((visibility("default")))

struct nothrow;

/* The types of the forms, which differ in what follows the size or the pointer. */
typedef void *new_plain(size_t size);
typedef void *new_nothrow(size_t size, const struct nothrow *tag);
typedef void *new_aligned(size_t size, size_t alignment);
typedef void *new_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *tag);
typedef void delete_plain(void *pointer);
typedef void delete_sized(void *pointer, size_t size);
typedef void delete_nothrow(void *pointer, const struct nothrow *tag);
typedef void delete_aligned(void *pointer, size_t alignment);
typedef void delete_sized_aligned(void *pointer, size_t size, size_t alignment);
typedef void delete_aligned_nothrow(void *pointer, size_t alignment, const struct nothrow *tag);

/* Looks an operator up behind this library, or in a runtime that a plugin brought along. */
static void *find_operator(const char *symbol)
{
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1"};
    void *found = dlsym(RTLD_NEXT, symbol);
    for (unsigned i = 0; found == NULL && i < 2; i++) {
        void *library = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        found = library != NULL ? dlsym(library, symbol) : NULL;
    }
    return found;
}

static void *find_operator_once(void *_Atomic *shared_found, const char *symbol)
{
    void *found = atomic_load_explicit(shared_found, memory_order_relaxed);
    if (found == NULL) {
        found = find_operator(symbol);
        atomic_store_explicit(shared_found, found, memory_order_relaxed);
    }
    return found;
}

static _Noreturn void no_runtime(void)
{
    static const char text[] = "hakmem: operator new found no memory, and no C++ runtime\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    __builtin_trap();
}

/* Whether the runtime is visible for the next library, which needs it to catch what a handler or a
 * form of the program throws. */
static bool has_runtime(void)
{
    return dlsym(RTLD_DEFAULT, "__cxa_begin_catch") != NULL;
}

/* --- what the program has replaced --- */

/* BASIC(name, type, symbol): declares a form on which others are built, `own_name`, another name of
 * it that nothing can replace, and `bound_name`, what the loader has bound. */
#define BASIC(name, type, symbol)                                                                  \
    type operator_##name OPERATOR(symbol);                                                         \
    type own_##name __attribute__((alias(symbol), visibility("hidden")));                          \
    static type *const volatile bound_##name = operator_##name;
BASIC(new, new_plain, "_Znwm")
BASIC(new_array, new_plain, "_Znam")
BASIC(new_aligned, new_aligned, "_ZnwmSt11align_val_t")
BASIC(new_array_aligned, new_aligned, "_ZnamSt11align_val_t")
BASIC(delete, delete_plain, "_ZdlPv")
BASIC(delete_array, delete_plain, "_ZdaPv")
BASIC(delete_aligned, delete_aligned, "_ZdlPvSt11align_val_t")
BASIC(delete_array_aligned, delete_aligned, "_ZdaPvSt11align_val_t")

#define REPLACED(name) UNLIKELY(bound_##name != own_##name)

/* PASS_ON(type, symbol, arguments): calls the form of the next library and returns, if there is
 * one. */
#define PASS_ON(type, symbol, arguments)                                                           \
    do {                                                                                           \
        static void *_Atomic shared_found;                                                         \
        void *address = find_operator_once(&shared_found, symbol);                                 \
        type *found;                                                                               \
        memcpy(&found, &address, sizeof found);                                                    \
        if (found != NULL) {                                                                       \
            return found arguments;                                                                \
        }                                                                                          \
    } while (false)

/* --- new --- */

/* DEFINE_NEW(function, symbol, parameters, type, arguments, allocation, replaced): a form that
 * throws. */
#define DEFINE_NEW(function, symbol, parameters, type, arguments, allocation, replaced)            \
    void *function parameters                                                                      \
    {                                                                                              \
        void *pointer;                                                                             \
        if (replaced) {                                                                            \
            PASS_ON(type, symbol, arguments);                                                      \
        }                                                                                          \
        pointer = allocation;                                                                      \
        if (LIKELY(pointer != NULL)) {                                                             \
            return pointer;                                                                        \
        }                                                                                          \
        PASS_ON(type, symbol, arguments);                                                          \
        no_runtime();                                                                              \
    }

/* A form that returns NULL. */
#define DEFINE_NEW_NOTHROW(function, symbol, parameters, type, arguments, allocation, replaced)    \
    void *function parameters OPERATOR(symbol);                                                    \
    void *function parameters                                                                      \
    {                                                                                              \
        void *pointer;                                                                             \
        if (replaced) {                                                                            \
            PASS_ON(type, symbol, arguments);                                                      \
        }                                                                                          \
        pointer = allocation;                                                                      \
        if (UNLIKELY(pointer == NULL) && has_runtime()) {                                          \
            PASS_ON(type, symbol, arguments);                                                      \
        }                                                                                          \
        return pointer;                                                                            \
    }

#define SIZE (size_t size)
#define SIZE_TAG (size_t size, const struct nothrow *tag)
#define SIZE_ALIGNMENT (size_t size, size_t alignment)
#define SIZE_ALIGNMENT_TAG (size_t size, size_t alignment, const struct nothrow *tag)
#define ALIGNED wrap_memalign(alignment, size, KIND_NEW_ALIGNED, CALLER)

DEFINE_NEW(operator_new, "_Znwm", SIZE, new_plain, (size), wrap_malloc(size, KIND_NEW, CALLER),
           false)
DEFINE_NEW(operator_new_array, "_Znam", SIZE, new_plain, (size),
           wrap_malloc(size, KIND_NEW_ARRAY, CALLER), REPLACED(new))
DEFINE_NEW(operator_new_aligned, "_ZnwmSt11align_val_t", SIZE_ALIGNMENT, new_aligned,
           (size, alignment), ALIGNED, false)
DEFINE_NEW(operator_new_array_aligned, "_ZnamSt11align_val_t", SIZE_ALIGNMENT, new_aligned,
           (size, alignment), ALIGNED, REPLACED(new_aligned))
DEFINE_NEW_NOTHROW(operator_new_nothrow, "_ZnwmRKSt9nothrow_t", SIZE_TAG, new_nothrow, (size, tag),
                   wrap_malloc(size, KIND_NEW, CALLER), REPLACED(new))
DEFINE_NEW_NOTHROW(operator_new_array_nothrow, "_ZnamRKSt9nothrow_t", SIZE_TAG, new_nothrow,
                   (size, tag), wrap_malloc(size, KIND_NEW_ARRAY, CALLER),
                   REPLACED(new_array) || REPLACED(new))
DEFINE_NEW_NOTHROW(operator_new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t",
                   SIZE_ALIGNMENT_TAG, new_aligned_nothrow, (size, alignment, tag), ALIGNED,
                   REPLACED(new_aligned))
DEFINE_NEW_NOTHROW(operator_new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t",
                   SIZE_ALIGNMENT_TAG, new_aligned_nothrow, (size, alignment, tag), ALIGNED,
                   REPLACED(new_array_aligned) || REPLACED(new_aligned))

/* --- delete --- */

/* Sizes, alignments and tags mean nothing to free. */
#define DEFINE_DELETE(function, symbol, parameters, type, arguments, kind, replaced)               \
    void function parameters OPERATOR(symbol);                                                     \
    void function parameters                                                                       \
    {                                                                                              \
        if (replaced) {                                                                            \
            PASS_ON(type, symbol, arguments);                                                      \
        }                                                                                          \
        wrap_free(pointer, kind, CALLER);                                                          \
    }

#define UNUSED __attribute__((unused))
#define POINTER (void *pointer)
#define POINTER_SIZE (void *pointer, size_t size UNUSED)
#define POINTER_TAG (void *pointer, const struct nothrow *tag UNUSED)
#define POINTER_ALIGNMENT (void *pointer, size_t alignment UNUSED)
#define POINTER_SIZE_ALIGNMENT (void *pointer, size_t size UNUSED, size_t alignment UNUSED)
#define POINTER_ALIGNMENT_TAG                                                                      \
    (void *pointer, size_t alignment UNUSED, const struct nothrow *tag UNUSED)

/* The forms for single objects or for arrays; `plain` and `aligned` say whether the program has
 * replaced what they are built on. */
#define DEFINE_DERIVED(name, symbol, plain, aligned)                                               \
    DEFINE_DELETE(name##_sized, symbol "m", POINTER_SIZE, delete_sized, (pointer, size),           \
                  KIND_DELETE_SIZED, plain)                                                        \
    DEFINE_DELETE(name##_nothrow, symbol "RKSt9nothrow_t", POINTER_TAG, delete_nothrow,            \
                  (pointer, tag), KIND_DELETE, plain)                                              \
    DEFINE_DELETE(name##_sized_aligned, symbol "mSt11align_val_t", POINTER_SIZE_ALIGNMENT,         \
                  delete_sized_aligned, (pointer, size, alignment), KIND_DELETE_SIZED, aligned)    \
    DEFINE_DELETE(name##_aligned_nothrow, symbol "St11align_val_tRKSt9nothrow_t",                  \
                  POINTER_ALIGNMENT_TAG, delete_aligned_nothrow, (pointer, alignment, tag),        \
                  KIND_DELETE, aligned)

DEFINE_DELETE(operator_delete, "_ZdlPv", POINTER, delete_plain, (pointer), KIND_DELETE, false)
DEFINE_DELETE(operator_delete_array, "_ZdaPv", POINTER, delete_plain, (pointer), KIND_DELETE,
              REPLACED(delete))
DEFINE_DELETE(operator_delete_aligned, "_ZdlPvSt11align_val_t", POINTER_ALIGNMENT, delete_aligned,
              (pointer, alignment), KIND_DELETE, false)
DEFINE_DELETE(operator_delete_array_aligned, "_ZdaPvSt11align_val_t", POINTER_ALIGNMENT,
              delete_aligned, (pointer, alignment), KIND_DELETE, REPLACED(delete_aligned))
DEFINE_DERIVED(operator_delete, "_ZdlPv", REPLACED(delete), REPLACED(delete_aligned))
DEFINE_DERIVED(operator_delete_array, "_ZdaPv", REPLACED(delete_array) || REPLACED(delete),
               REPLACED(delete_array_aligned) || REPLACED(delete_aligned))
