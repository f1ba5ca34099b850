/* SPDX-License-Identifier: MIT */
/* paths_large.c: spans, huge blocks, and what resizes or clears. See paths.h. */
#include "paths.h"

#include <stdlib.h>

#define KIB(count) ((size_t)(count) << 10)
#define MIB(count) ((size_t)(count) << 20)

enum { SPAN_SIZE = 800000, SPAN_SIZE_GROWN = 900000, RESIZED_SIZE = 100, RESIZED_COUNT = 16 };

static void cached_start(const struct path *path, unsigned rounds)
{
    free(paths_allocate(path->size));
}

/* Spans of the largest size fill the arena's span cache, and none of the path fits into it; a tick
 * may have taken them away since the last round. */
static void uncached_prepare(const struct path *path, unsigned round)
{
    void *spans[4];
    for (unsigned i = 0; i < 4; i++) {
        spans[i] = paths_allocate(MIB(2));
    }
    for (unsigned i = 0; i < 4; i++) {
        free(spans[i]);
    }
}

static void uncached_start(const struct path *path, unsigned rounds)
{
    uncached_prepare(path, 0);
    cached_start(path, rounds);
}

static void uncached_prepare_allocate(const struct path *path, unsigned round)
{
    paths_prepare_allocate(path, round);
    uncached_prepare(path, round);
}

static void resize_start(const struct path *path, unsigned rounds)
{
    paths_hold(0, RESIZED_COUNT, path->size); /* the bin is filled for both sizes */
    paths_release(0, RESIZED_COUNT);
    for (unsigned i = 0; i < path->count; i++) {
        paths_pointers[i] = paths_allocate(path->other);
    }
}

/* Objects that were copied are replaced, blocks that have grown become what they were. */
static void copied_finish(const struct path *path, unsigned round)
{
    paths_finish_free(path, round);
    for (unsigned i = 0; i < path->count; i++) {
        paths_pointers[i] = paths_allocate(path->other);
    }
}

static void grown_finish(const struct path *path, unsigned round)
{
    paths_pointers[0] = realloc(paths_pointers[0], path->other);
}

/* Both halves of the newest superslab are taken. */
static void halves_start(const struct path *path, unsigned rounds)
{
    paths_claim_superslab(path->size);
    paths_keep(path->size);
}

/* The first half of a new superslab: the path takes the second. */
static void halves_prepare(const struct path *path, unsigned round)
{
    paths_keep(path->size);
}

static void huge_start(const struct path *path, unsigned rounds)
{
    paths_pointers[0] = paths_allocate(path->other);
}

const struct path paths_large[] = {
    {"span_hit", PATH_MALLOC, 1, SPAN_SIZE, 0, cached_start, NULL, paths_finish_free},
    {"span_free_hit", PATH_FREE, 1, SPAN_SIZE, 0, cached_start, paths_prepare_allocate, NULL},
    {"span_region", PATH_MALLOC, 1, SPAN_SIZE, 0, uncached_start, uncached_prepare,
     paths_finish_free},
    {"span_free_region", PATH_FREE, 1, SPAN_SIZE, 0, uncached_start, uncached_prepare_allocate,
     NULL},
    {"huge_hit", PATH_MALLOC, 1, MIB(3), 0, cached_start, NULL, paths_finish_free},
    {"huge_free_hit", PATH_FREE, 1, MIB(3), 0, cached_start, paths_prepare_allocate, NULL},
    {"huge_map", PATH_MALLOC, 1, MIB(3), 0, paths_no_start, NULL, paths_finish_free},
    {"huge_unmap", PATH_FREE, 1, MIB(3), 0, paths_no_start, paths_prepare_allocate, NULL},
    {"realloc_in_place", PATH_REALLOC, RESIZED_COUNT, RESIZED_SIZE + 5, RESIZED_SIZE, resize_start,
     NULL, NULL},
    {"realloc_copy", PATH_REALLOC, RESIZED_COUNT, 2 * RESIZED_SIZE, RESIZED_SIZE, resize_start,
     NULL, copied_finish},
    {"realloc_span", PATH_REALLOC, 1, SPAN_SIZE_GROWN, SPAN_SIZE, huge_start, NULL, grown_finish},
    {"realloc_huge", PATH_REALLOC, 1, MIB(4), MIB(3), huge_start, NULL, grown_finish},
    {"calloc_fresh", PATH_CALLOC, 1, MIB(1), 0, halves_start, halves_prepare, NULL},
    {"calloc_used", PATH_CALLOC, 1, KIB(128), 0, cached_start, NULL, paths_finish_free},
    {.name = NULL},
};
