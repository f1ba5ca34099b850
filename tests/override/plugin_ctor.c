/* SPDX-License-Identifier: MIT */
/* plugin_ctor.c: a library whose constructor and destructor use the allocator. test_before_main
 * preloads it before and after hakmem. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { BLOCKS_COUNT = 6 };
static const size_t sizes[BLOCKS_COUNT] = {1, 100, 1500, 40000, 500000, 5000000};
static unsigned char *volatile blocks[BLOCKS_COUNT];

EXPORT int plugin_ctor_check(void);

__attribute__((constructor)) static void plugin_start(void)
{
    free(blocks[0]); /* the first call of all when this library comes first */
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        blocks[i] = malloc(sizes[i] / 2 + 1);
        blocks[i] = realloc(blocks[i], sizes[i]);
        if (blocks[i] == NULL) {
            abort();
        }
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
}

/* The number of blocks whose contents are as the constructor left them. */
EXPORT int plugin_ctor_check(void)
{
    int good = 0;
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        size_t same = 0;
        while (same < sizes[i] && blocks[i][same] == i + 1) {
            same++;
        }
        good += same == sizes[i];
    }
    return good;
}

/* Runs after main, after the destructors of the program itself. */
__attribute__((destructor)) static void plugin_stop(void)
{
    if (plugin_ctor_check() != BLOCKS_COUNT) {
        abort();
    }
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        free(blocks[i]);
        blocks[i] = malloc(sizes[i]);
    }
}
