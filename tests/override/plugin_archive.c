/* SPDX-License-Identifier: MIT */
/* plugin_archive.c: a library that has the allocator inside, under its own names.
 * ctest: archive */
#include <stddef.h>

#include "hakmem/hakmem.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void *plugin_archive_work(size_t count);

/* A block that is still in use. */
void *plugin_archive_work(size_t count)
{
    void *blocks[100] = {NULL};
    for (size_t i = 0; i < count; i++) {
        hak_free(blocks[i % 100]);
        blocks[i % 100] = hak_malloc(i * 37 % 200000);
    }
    for (size_t i = 0; i < 100; i++) {
        hak_free(blocks[i]);
    }
    return hak_calloc(1, 1000);
}
