/* SPDX-License-Identifier: MIT */
/* paths_small.c: the thread cache and the slabs. See paths.h.
 *
 * With the option that allows a thread no cache every free goes to its slab at once and every bin
 * holds one refill only: that makes the stages behind the bin reachable one by one. With the bins'
 * upper bound at 1 KiB a bin that was filled a few times has its limit, 16 objects, for good, so
 * that the rounds below are exact.
 */
#include "paths.h"

#include <stdlib.h>

enum {
    BIN_LIMIT = 16,            /* objects, with the option bin_bytes */
    BIN_MOVED = BIN_LIMIT + 1, /* what an overflow takes from the bin */
    BIN_USED = 64,             /* objects, in any bin */
    CARVED_FIRST = 36,         /* by the refills of 256 bytes and 2 KiB; the next: PATHS_CARVED */
    CARVES_A_SLAB = 7,         /* of PATHS_CARVED objects each, after the first ones */
    MID_SIZE = 2000,
    MANY_SLICES_SIZE = 16384, /* its slabs have more than one */
    LARGEST_SIZE = 65536,     /* of an object; its slabs have 9 slices */
    LARGEST_SLAB = 4,         /* objects of that size in a slab */
    SUPERSLAB_OBJECTS = 28,   /* of that size in one superslab, each carved by itself */
    GROW_CYCLES = 12,         /* enough for any limit to reach its bound */
    SCATTERED_SLABS = 64,
    FILLERS = 1600,
    FILLER_SIZE = 8000, /* 12 MiB in all */
    SMALL_FILLERS = 2000,
    SMALL_FILLER_SIZE = 400 /* their slabs have one slice */
};

/* ---- Hits. ---- */

static void bin_fill(size_t size)
{
    for (int cycle = 0; cycle < GROW_CYCLES; cycle++) {
        paths_hold(0, BIN_USED, size);
        paths_release(0, BIN_USED);
    }
}

static void hit_start(const struct path *path, unsigned rounds)
{
    bin_fill(path->size);
}

static void aligned_start(const struct path *path, unsigned rounds)
{
    /* the class that aligned_alloc will choose */
    bin_fill((path->size + path->other - 1) / path->other * path->other);
}

static void null_prepare(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < path->count; i++) {
        paths_pointers[i] = NULL;
    }
}

/* ---- Full bins. ---- */

/* A bin at its bound, and empty, as is the only slab of its class. */
static void flush_grow(size_t size)
{
    bin_fill(size);
    paths_hold(0, PATHS_SLAB, size);
}

/* Frees until the first overflow, which empties the bin: all later ones follow no refill. */
static void flush_fill(void)
{
    paths_next = BIN_MOVED;
    paths_release(0, paths_next);
}

/* In address order, and of each slab the first object stays in use, so that none is given back. */
static void flush_start(const struct path *path, unsigned rounds)
{
    size_t needed = BIN_MOVED + (size_t)rounds * BIN_MOVED;
    size_t slabs = needed / (PATHS_SLAB - 1) + 1;
    flush_grow(path->size);
    paths_hold(0, slabs * PATHS_SLAB, path->size);
    size_t kept = 0;
    for (size_t i = 0; i < slabs * PATHS_SLAB; i++) {
        if (i % PATHS_SLAB != 0) {
            paths_held[kept++] = paths_held[i];
        }
    }
    flush_fill();
}

/* The same with each object in another slab than the one before. */
static void scattered_start(const struct path *path, unsigned rounds)
{
    static void *ordered[SCATTERED_SLABS * PATHS_SLAB];
    flush_grow(path->size);
    paths_hold(0, SCATTERED_SLABS * PATHS_SLAB, path->size);
    for (size_t i = 0; i < SCATTERED_SLABS * PATHS_SLAB; i++) {
        ordered[i % PATHS_SLAB * SCATTERED_SLABS + i / PATHS_SLAB] = paths_held[i];
    }
    for (size_t i = SCATTERED_SLABS; i < SCATTERED_SLABS * PATHS_SLAB; i++) {
        paths_held[i - SCATTERED_SLABS] = ordered[i];
    }
    flush_fill();
}

static void flush_prepare(const struct path *path, unsigned round)
{
    paths_release(paths_next, BIN_MOVED - 1);
    paths_next += BIN_MOVED;
    paths_pointers[0] = paths_held[paths_next - 1];
}

/* ---- Slabs, without a cache before them. ---- */

/* One slab wholly in use. */
static void slab_start(const struct path *path, unsigned rounds)
{
    paths_hold(0, PATHS_SLAB, path->size);
    paths_pointers[0] = paths_held[0];
}

/* The same, of a class with more than a refill takes: two of its objects are free. */
static void part_start(const struct path *path, unsigned rounds)
{
    paths_hold(0, LARGEST_SLAB, path->size);
}

static void part_prepare(const struct path *path, unsigned round)
{
    paths_release(0, 2);
}

static void part_finish(const struct path *path, unsigned round)
{
    paths_held[0] = paths_pointers[0];
    paths_hold(1, 1, path->size);
}

/* One slab of which what was carved is in use. */
static void carving_start(const struct path *path, unsigned rounds)
{
    paths_hold(0, CARVED_FIRST, path->size);
    paths_pointers[0] = paths_held[0];
}

static void one_prepare_free(const struct path *path, unsigned round)
{
    free(paths_pointers[0]);
}

static void one_finish_allocate(const struct path *path, unsigned round)
{
    paths_pointers[0] = paths_allocate(path->size);
}

/* The arena keeps as many idle slabs of another class as it may. So what becomes idle after that
 * goes back to its superslab, and new slabs come from there. */
static void region_start(const struct path *path, unsigned rounds)
{
    static void *fillers[FILLERS + SMALL_FILLERS];
    for (int i = 0; i < FILLERS + SMALL_FILLERS; i++) {
        fillers[i] = paths_allocate(i < FILLERS ? FILLER_SIZE : SMALL_FILLER_SIZE);
    }
    for (int i = 0; i < FILLERS + SMALL_FILLERS; i++) {
        free(fillers[i]);
    }
}

static void carve_start(const struct path *path, unsigned rounds)
{
    region_start(path, rounds);
    paths_hold(0, PATHS_SLAB, path->size);
    paths_release(0, PATHS_SLAB);
    paths_next = 0;
}

/* The slab before goes back to its superslab and comes from there. Its first carves are small;
 * the next one is measured. */
static void carve_prepare(const struct path *path, unsigned round)
{
    /* each further refill would carve twice as many */
    paths_release(0, paths_next);
    paths_hold(0, CARVED_FIRST, path->size);
    paths_next = CARVED_FIRST;
}

/* The first carve of a slab comes with the slab; the others, one a round, are measured. */
static void carve_enter_slab(const struct path *path, unsigned round)
{
    if (round % CARVES_A_SLAB == 0) {
        paths_hold(paths_next, PATHS_CARVED, path->size);
        paths_next += PATHS_CARVED;
    }
}

static void carve_finish(const struct path *path, unsigned round)
{
    paths_held[paths_next] = paths_pointers[0];
    paths_hold(paths_next + 1, PATHS_CARVED - 1, path->size);
    paths_next += PATHS_CARVED;
}

static void superslab_start(const struct path *path, unsigned rounds)
{
    paths_claim_superslab(path->size);
}

static void superslab_prepare(const struct path *path, unsigned round)
{
    paths_hold(0, SUPERSLAB_OBJECTS - 1, path->size);
}

const struct path paths_small[] = {
    {"malloc_hit", PATH_MALLOC, 32, PATHS_OBJECT, 0, hit_start, NULL, paths_finish_free},
    {"malloc_hit_mid", PATH_MALLOC, 16, MID_SIZE, 0, hit_start, NULL, paths_finish_free},
    {"free_hit", PATH_FREE, 32, PATHS_OBJECT, 0, hit_start, paths_prepare_allocate, NULL},
    {"free_null", PATH_FREE, 32, PATHS_OBJECT, 0, hit_start, null_prepare, NULL},
    {"calloc_hit", PATH_CALLOC, 32, PATHS_OBJECT, 0, hit_start, NULL, paths_finish_free},
    {"aligned_hit", PATH_ALIGNED, 16, 100, 64, aligned_start, NULL, paths_finish_free},
    {"refill_free_list", PATH_MALLOC, 1, PATHS_OBJECT, 0, carving_start, one_prepare_free, NULL},
    {"refill_partial", PATH_MALLOC, 1, PATHS_OBJECT, 0, slab_start, one_prepare_free, NULL},
    {"refill_part", PATH_MALLOC, 1, LARGEST_SIZE, 0, part_start, part_prepare, part_finish},
    {"refill_carve", PATH_MALLOC, 1, PATHS_OBJECT, 0, carve_start, carve_prepare, carve_finish},
    {"refill_carve_fresh", PATH_MALLOC, 1, PATHS_OBJECT, 0, paths_no_start, carve_enter_slab,
     carve_finish},
    {"refill_slab_region", PATH_MALLOC, 1, MANY_SLICES_SIZE, 0, region_start, NULL,
     paths_finish_free},
    {"refill_superslab", PATH_MALLOC, 1, LARGEST_SIZE, 0, superslab_start, superslab_prepare, NULL},
    {"free_overflow_flush", PATH_FREE, 1, PATHS_OBJECT, 0, flush_start, flush_prepare, NULL},
    {"free_overflow_scattered", PATH_FREE, 1, PATHS_OBJECT, 0, scattered_start, flush_prepare,
     NULL},
    {"free_no_budget", PATH_FREE, 1, PATHS_OBJECT, 0, slab_start, NULL, one_finish_allocate},
    {"free_slab_region", PATH_FREE, 1, MANY_SLICES_SIZE, 0, region_start, paths_prepare_allocate,
     NULL},
    {.name = NULL},
};
