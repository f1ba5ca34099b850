/* SPDX-License-Identifier: MIT */
/* knobs.h: the numbers that steer the slow paths. The options set them when the process starts.
 * Later, hak_option_set and hak_limit_set may change those that core/option_list.h lets change, and
 * the learner those of learn/tournament.h. Any thread reads them, relaxed. UINT32_MAX and
 * UINT64_MAX mean never or no limit. Writers call seal_open before (core/seal.h). */
#ifndef HAK_CORE_KNOBS_H
#define HAK_CORE_KNOBS_H

#include "base/atomics.h"

struct knobs {
    uint32_t purge_delay_ms;     /* free dirty memory is purged after this time */
    uint32_t bin_bytes_max;      /* limit of one bin, bytes */
    uint64_t cache_bytes;        /* limit of one thread's bins together, bytes */
    uint64_t cache_bytes_total;  /* limit of all threads' bins together, bytes */
    uint64_t huge_cache_bytes;   /* limit of the freed huge blocks that are kept, bytes */
    uint64_t huge_threshold;     /* heap size from which huge pages may be used, bytes */
    uint64_t limit;              /* with more bytes mapped, free memory is purged after 10 ms */
    uint64_t limit_hard;         /* more bytes than this are never mapped */
    uint32_t arenas_max;         /* number of arenas that threads share */
    uint32_t arenas_crowded_max; /* the same for threads that often find their arena's lock taken */
    uint32_t guard;              /* one of so many allocations is guarded; 0: none. Constant */
    bool abort_on_foreign;       /* a free of memory that is not hakmem's ends the process */
    bool abort_on_size;          /* secure form: so does a sized free with another size */
    bool numa; /* threads get memory of their own node (region/numa.h). Constant */
};

HAK_HIDDEN extern struct knobs hak__knobs;

/* How often knobs were turned since the start. A thread that finds another number at its tick
 * lowers the limits of its bins, which would else stay as large as the former knobs let them. */
HAK_HIDDEN extern uint32_t hak__knobs_turns;
/* Whoever turned knobs calls this after it. */
HAK_INLINE void knobs_turned(void)
{
    atomic_add_release(&hak__knobs_turns, 1u); /* pairs with the acquire in arena/collect.c */
}

#endif
