/* SPDX-License-Identifier: MIT */
/* thread.h: what each thread has: its cache, its sampler, and notes of its slow operations
 * (arena/arena.h). */
#ifndef HAK_ARENA_THREAD_H
#define HAK_ARENA_THREAD_H

#include "cache/cache.h"

struct arena;

/* The largest average distance of samples, in bytes: beyond it all is rare. */
#define SAMPLE_PERIOD_MAX (UINT64_C(1) << 40)

/* When a thread samples an allocation (arena/sampling.c). Written by the thread alone. */
struct sampler {
    int64_t bytes_left;     /* bytes it allocates before the next sample */
    int64_t bytes_from;     /* what bytes_left would be if nothing had been taken: see below */
    uint64_t period;        /* bytes from one sample to the next on average, now */
    uint64_t random;        /* state of its generator; 0: not seeded */
    int32_t countdown_from; /* value of the countdown when bytes_left was last updated */
    uint32_t epoch;         /* hak__sampling.epoch when bytes_left was drawn */
    uint32_t count;         /* samples since started_ms */
    uint32_t started_ms;
    int64_t guard_left; /* bytes it allocates before the next point of guarding */
    bool guard_drawn;   /* guard_left has been drawn */
    bool guard_due;     /* such a point lies in the request that was counted last */
};

struct thread {
    struct arena *arena;        /* that it draws from; NULL while parked. Written under ARENAS */
    struct thread *next;        /* in the list of all; constant once listed */
    struct thread *next_parked; /* under ARENAS */
    uint32_t ticked_ms;         /* clock at the last tick */
    uint32_t trimmed_ms;        /* clock at the last trim of bins */
    uint32_t operations;        /* slow operations since the last tick */
    uint32_t batches;           /* remote batches sent; wraps */
    uint32_t interval;          /* bytes that malloc hands out from one look to the next */
    uint32_t eager_looks;       /* mallocs left that each look at the clock */
    uint32_t freed_much;        /* superslab_freed_much() at the last look or operation */
    uint32_t waits;             /* for the arena's lock to return a full bin, since waits_ms */
    uint32_t waits_ms;          /* clock when the count last started */
    uint32_t epoch;   /* forks before it was last taken; an older one: its thread is gone */
    uint32_t turns;   /* hak__knobs_turns at the last tick */
    bool apart;       /* draws from the arena for long-lived objects */
    uint32_t away_ms; /* clock when it was first seen on another node than its arena's; 0: is not */
    struct thread *twin; /* the thread's other struct, of the other kind; NULL: it has none */
    struct sampler sampler;
    struct cache cache;
};

/* This thread's struct. Before the thread's first slow operation it is hak__thread_none, after its
 * end hak__thread_ended. Both have empty bins and remote entries and a key that matches no owner
 * word, so the fast paths need no test. Nobody writes to them, so they cost a process no page. */
HAK_HIDDEN extern HAK_TLS struct thread *hak__thread;
struct thread_constants {
    struct thread none;
    struct thread ended;
    struct remote_entry remote[REMOTE_ENTRIES]; /* of both; the first of a struct cache_far */
};
HAK_HIDDEN extern const struct thread_constants hak__thread_constants;
#define hak__thread_none hak__thread_constants.none
#define hak__thread_ended hak__thread_constants.ended

#endif
