/* SPDX-License-Identifier: MIT */
/* attacks_free.c: frees of what malloc never returned, and deletes with another size or form than
 * that of new. */
#include "attacks.h"

#include <dlfcn.h>

/* operator new[], delete[] and delete; the last two with the size. */
void *_Znam(size_t size);
void _ZdaPvm(void *block, size_t size);
void _ZdlPvm(void *block, size_t size);

enum target { STACK, GLOBAL, CODE, LITERAL, LIBRARY, MAPPED, OTHER_HEAP };

static unsigned char global[256] __attribute__((aligned(16))) = {1};
static const char literal[256] __attribute__((aligned(16))) = "literal";

__attribute__((aligned(16), noinline)) static void code(void)
{
    __asm__ volatile("");
}

/* All but code are as aligned as a block. */
static void *find_target(enum target target, unsigned char *stack)
{
    switch (target) {
    case STACK:
        return stack;
    case GLOBAL:
        return global;
    case CODE:
        return (void *)(uintptr_t)code;
    case LITERAL:
        return (void *)(uintptr_t)literal;
    case LIBRARY:
        return (void *)((uintptr_t)stdout / 16 * 16 + 16);
    case MAPPED:
        return (char *)mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0) +
               1024;
    case OTHER_HEAP:
        break;
    }
    void *library = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_NOW);
    void *(*libc_malloc)(size_t);
    *(void **)&libc_malloc = library == NULL ? NULL : dlsym(library, "__libc_malloc");
    return libc_malloc == NULL ? NULL : libc_malloc(100);
}

static void free_target(const struct attack *attack)
{
    unsigned char stack[256] __attribute__((aligned(16)));
    memset(hide(stack), 's', sizeof stack);
    make(32);
    void *target = find_target((enum target)attack->at, stack);
    free(hide(target));
    for (int i = 0; i < 100; i++) {
        if (make(i * 3 + 1) == target && attack->at != OTHER_HEAP) {
            exit(STATUS_HARMED);
        }
    }
}

static void delete_array(const struct attack *attack)
{
    _ZdaPvm(hide(_Znam(attack->size)), attack->at);
    work(attack->size);
}

static void delete_array_as_one(const struct attack *attack)
{
    _ZdlPvm(hide(_Znam(attack->size)), attack->at);
    work(attack->size);
}

#define FREE(name, what, target)                                                                   \
    {                                                                                              \
        "free_" name, "free of " what, free_target, 0, target, 0                                   \
    }

const struct attack free_attacks[] = {
    FREE("stack", "a variable", STACK),
    FREE("global", "a global variable", GLOBAL),
    FREE("code", "a function", CODE),
    FREE("literal", "a constant of the program", LITERAL),
    FREE("library", "a variable of a shared library", LIBRARY),
    FREE("mapped", "memory from mmap", MAPPED),
    FREE("other_heap", "memory of another allocator (no mistake under glibc)", OTHER_HEAP),
    {"delete_array_size", "delete[] of 40 bytes with the size 400", delete_array, 40, 400, 0},
    {"delete_array_less", "delete[] of 4,000 bytes with the size 400", delete_array, 4000, 400, 0},
    {"delete_array_as_one", "Sized delete of an array", delete_array_as_one, 40, 40, 0},
    {0}};
