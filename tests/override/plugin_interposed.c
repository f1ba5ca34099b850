/* SPDX-License-Identifier: MIT */
/* plugin_interposed.c: a library that puts its own functions before the C library's, as memory
 * hooks and registration caches do. They count their calls and call the next function of their
 * name; on demand they allocate first, so often. Its _exit and _Exit add the number of calls to the
 * status.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const char *const names[] = {"prctl", "dlopen"};
enum { NAMES = sizeof names / sizeof names[0] };
static size_t counts[NAMES];
int plugin_interposed_allocates;

EXPORT extern int plugin_interposed_allocates;
EXPORT size_t plugin_interposed_count(const char *name);

size_t plugin_interposed_count(const char *name)
{
    for (size_t i = 0; i < NAMES; i++) {
        if (strcmp(names[i], name) == 0) {
            return counts[i];
        }
    }
    abort();
}

/* The next function of the name. */
static void *called(const char *name)
{
    for (size_t i = 0; i < NAMES; i++) {
        counts[i] += strcmp(names[i], name) == 0;
    }
    for (int i = 0; i < plugin_interposed_allocates; i++) {
        void *volatile block = malloc((size_t)i * 30);
        free(block);
    }
    return dlsym(RTLD_NEXT, name);
}

EXPORT int madvise(void *address, size_t size, int advice)
{
    return ((int (*)(void *, size_t, int))called("madvise"))(address, size, advice);
}

/* What notes mappings, and allocates for that: not for its own calls. */
static void note_mapping(void)
{
    static __thread void *noted[64];
    static __thread size_t next;
    static __thread bool notes;
    if (!notes) {
        notes = true;
        for (int i = 0; i < plugin_interposed_allocates; i++) {
            free(noted[next]);
            noted[next] = malloc(next * 1000);
            next = (next + 1) % (sizeof noted / sizeof noted[0]);
        }
        notes = false;
    }
}

static void *(*next_mmap)(void *, size_t, int, int, int, off_t);
static int (*next_munmap)(void *, size_t);

/* dlsym frees, and cannot be called by what free calls. */
__attribute__((constructor)) static void find_next(void)
{
    *(void **)&next_mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&next_munmap = dlsym(RTLD_NEXT, "munmap");
}

EXPORT void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    note_mapping();
    return next_mmap(address, size, protection, flags, file, offset);
}

EXPORT int munmap(void *address, size_t size)
{
    note_mapping();
    return next_munmap(address, size);
}

EXPORT int prctl(int option, ...)
{
    va_list rest;
    va_start(rest, option);
    unsigned long word = va_arg(rest, unsigned long);
    va_end(rest);
    return ((int (*)(int, ...))called("prctl"))(option, word, 0ul, 0ul, 0ul);
}

EXPORT void *dlopen(const char *file, int mode)
{
    return ((void *(*)(const char *, int))called("dlopen"))(file, mode);
}

static __attribute__((noreturn)) void ended(const char *name, int status)
{
    ((void (*)(int))dlsym(RTLD_NEXT, name))(status);
    abort();
}

EXPORT void _exit(int status)
{
    static int count;
    ended("_exit", status + ++count);
}

EXPORT void _Exit(int status)
{
    static int count;
    ended("_Exit", status + 10 * ++count);
}
