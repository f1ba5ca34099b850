/* SPDX-License-Identifier: MIT */
/* plugin_deepbind.c: a library as test_deepbind loads it, with RTLD_DEEPBIND: it passes memory to
 * and fro, also in its constructor, frees what the C library allocated for it, loads a neighbour by
 * its plain name, and has a function of the same name as the program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void *plugin_deepbind_get(size_t size);
EXPORT void *plugin_deepbind_grow(void *pointer, size_t size);
EXPORT void plugin_deepbind_free(void *pointer);
EXPORT int plugin_deepbind_use_c_library(void);
EXPORT void *plugin_deepbind_load(const char *name);
EXPORT int codec_version(void) __attribute__((weak)); /* else clang puts it into its caller */
EXPORT int plugin_deepbind_version(void);
EXPORT size_t plugin_deepbind_usable(void *pointer);
EXPORT void *plugin_deepbind_aligned(size_t alignment, size_t size);
EXPORT extern void *plugin_deepbind_made[2];

void *plugin_deepbind_made[2];

__attribute__((constructor)) static void make(void)
{
    if (getenv("HAKMEM_KEEP_DEEPBIND") == NULL) { /* else it is the C library's free */
        free(strdup("freed while the library is loaded"));
    }
    plugin_deepbind_made[0] = malloc(1000);
    plugin_deepbind_made[1] = strdup("kept");
}

int codec_version(void)
{
    return 2;
}

int plugin_deepbind_version(void)
{
    return codec_version();
}

size_t plugin_deepbind_usable(void *pointer)
{
    return malloc_usable_size(pointer);
}

void *plugin_deepbind_aligned(size_t alignment, size_t size)
{
    void *result = NULL;
    return posix_memalign(&result, alignment, size) == 0 ? result : NULL;
}

void *plugin_deepbind_get(size_t size)
{
    return malloc(size);
}

void *plugin_deepbind_grow(void *pointer, size_t size)
{
    return realloc(pointer, size);
}

void plugin_deepbind_free(void *pointer)
{
    free(pointer);
}

int plugin_deepbind_use_c_library(void)
{
    char *copy = strdup("a string");
    char *printed = NULL;
    char *line = NULL;
    size_t line_size = 0;
    if (copy == NULL || asprintf(&printed, "%s %d", copy, 1000) < 0) {
        return -1;
    }
    FILE *stream = fmemopen(printed, strlen(printed), "r");
    if (stream == NULL || getline(&line, &line_size, stream) < 0) {
        return -1;
    }
    int same = strcmp(printed, line);
    fclose(stream);
    free(line);
    free(printed);
    free(copy);
    return same;
}

/* Searched for where this library's RUNPATH says: it is what dlopen returns to, not a jump. */
void *plugin_deepbind_load(const char *name)
{
    void *volatile library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library;
}
