/* SPDX-License-Identifier: MIT */
/* paths.h: makes the allocator take one chosen path, again and again, for `./hakmem cost`.
 *
 * A path is a batch of operations that all take it, and what has to happen before and after each
 * batch so that the next one does, too. Only the batch is measured:
 *
 *   start   { prepare  BATCH  finish }  { prepare  BATCH  finish }  ...
 *
 * The library's own counters say whether the path was really taken (mode check). Everything here is
 * single-threaded but for the one worker of paths_remote.c, which sleeps while a batch runs.
 *
 * Sizes: objects of 64 bytes, so that each is a cache line, 64 of them are carved at once, and a
 * slab of 32 KiB holds 512.
 */
#ifndef LAB_PATHS_H
#define LAB_PATHS_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PATHS_BATCH_MAX = 64,
    PATHS_ROUNDS_MAX = 512,
    PATHS_ROUNDS_WARM = 8,    /* before the measured ones: lazy binding, the library's own code */
    PATHS_HELD_MAX = 1 << 17, /* objects a path may keep in hand */
    PATHS_OBJECT = 64,
    PATHS_CARVED = 64, /* objects linked by one carve */
    PATHS_SLAB = 512,  /* objects of one slab */
    PATHS_STATUS_FAILED = 1,
    PATHS_STATUS_USAGE = 2,
    PATHS_STATUS_WRONG_ALLOCATOR = 3
};

enum path_operation { PATH_MALLOC, PATH_FREE, PATH_CALLOC, PATH_REALLOC, PATH_ALIGNED };

struct path {
    const char *name; /* as in lab/cost_model.toml, which has the options that it needs */
    enum path_operation operation;
    unsigned count; /* operations of a batch */
    size_t size;    /* of the request, for PATH_FREE of what `prepare` allocates */
    size_t other;   /* the size before of PATH_REALLOC, the alignment of PATH_ALIGNED */
    void (*start)(const struct path *path, unsigned rounds);
    void (*prepare)(const struct path *path, unsigned round); /* NULL: nothing to do */
    void (*finish)(const struct path *path, unsigned round);
};

/* Each ends with a path without a name. */
extern const struct path paths_small[], paths_large[], paths_remote[];

/* What the batch frees or resizes, and what it was given. */
extern void *paths_pointers[PATHS_BATCH_MAX];
/* A path's objects between rounds, outside every allocator, and the next one to be used. */
extern void *paths_held[PATHS_HELD_MAX];
extern size_t paths_next;

/* Prints "paths: " and the sentence to stderr and ends the process. */
_Noreturn void paths_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* malloc that cannot fail. */
void *paths_allocate(size_t size);
/* Allocates what is never freed. */
void paths_keep(size_t size);
/* Fills paths_held[first, first + count). */
void paths_hold(size_t first, size_t count, size_t size);
void paths_release(size_t first, size_t count);
/* Allocates `size` bytes until that claims a superslab, so that the caller knows where it is. */
void paths_claim_superslab(size_t size);

/* Steps that several paths share. */
void paths_no_start(const struct path *path, unsigned rounds);
void paths_prepare_allocate(const struct path *path, unsigned round);
void paths_finish_free(const struct path *path, unsigned round);

/* One more thread, that does a job when it is told to and sleeps otherwise. True: it runs on
 * another processor than the main thread, and both stay where they are. */
bool paths_worker_start(void);
void paths_worker_do(void (*job)(void));

/* Ticks are cycles of the time stamp counter where there is one, else nanoseconds. */
#if defined(__x86_64__)
#define PATHS_TICKS_ARE_CYCLES true
#else
#define PATHS_TICKS_ARE_CYCLES false /* other processors' counters are too slow for this */
#endif
uint64_t paths_ticks(void);
uint64_t paths_clock_ns(void);

/* Prints what the things cost that the cost model adds up, as a line of JSON. */
void paths_machine(void);

#endif
