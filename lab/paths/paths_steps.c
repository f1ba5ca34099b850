/* SPDX-License-Identifier: MIT */
/* paths_steps.c: what the paths' starts and ends are made of. See paths.h. */
#include "paths.h"

#include <stdlib.h>

#include "hakmem/stats.h"

void *paths_pointers[PATHS_BATCH_MAX];
void *paths_held[PATHS_HELD_MAX];

void *paths_allocate(size_t size)
{
    void *block = malloc(size);
    if (block == NULL) {
        paths_fail(PATHS_STATUS_FAILED, "malloc(%zu) returned NULL: there is no memory.", size);
    }
    return block;
}

/* Linked, so that nothing is lost. */
struct kept {
    struct kept *next;
};
static struct kept *kept_first;

void paths_keep(size_t size)
{
    struct kept *block = paths_allocate(size);
    block->next = kept_first;
    kept_first = block;
}

void paths_hold(size_t first, size_t count, size_t size)
{
    for (size_t i = first; i < first + count; i++) {
        paths_held[i] = paths_allocate(size);
    }
}

void paths_release(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        free(paths_held[i]);
    }
}

void paths_prepare_allocate(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < path->count; i++) {
        paths_pointers[i] = paths_allocate(path->size);
    }
}

void paths_finish_free(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < path->count; i++) {
        free(paths_pointers[i]);
    }
}

static size_t superslabs_count(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats);
    return stats.superslabs_count;
}

void paths_claim_superslab(size_t size)
{
    size_t before = superslabs_count();
    while (superslabs_count() == before) {
        paths_keep(size);
    }
}
