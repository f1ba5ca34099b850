/* knobs.h: plain numbers that the data plane reads in slow paths and the control plane writes.
 * Written by option parsing at start (and later by the learner); read relaxed by any thread. */
#ifndef HAK_CORE_KNOBS_H
#define HAK_CORE_KNOBS_H

#include "base/compiler.h"

struct knobs {
    uint32_t purge_delay_ms; /* free dirty memory older than this goes back to the OS; UINT32_MAX:
                                never */
    uint32_t bin_bytes_max;  /* a bin's upper bound, bytes */
    uint64_t cache_bytes;    /* one thread's bins together, bytes */
    uint64_t cache_bytes_total; /* all threads' bins together, bytes */
    uint64_t whale_cache_bytes; /* freed whales kept, bytes */
    uint64_t
        huge_threshold; /* bytes mapped from which on huge pages are asked for; UINT64_MAX: never */
    uint64_t limit; /* bytes mapped above which free memory goes back at once; UINT64_MAX: none */
    uint64_t limit_hard;        /* bytes mapped that are never exceeded; UINT64_MAX: none */
    uint32_t heaps_max;         /* heaps that threads share, from that number of threads on */
    uint32_t heaps_crowded_max; /* the same where they keep finding their locks taken */
    bool abort_on_foreign;      /* a free of memory that is not ours is fatal, not just reported */
};

HAK_HIDDEN extern struct knobs hak__knobs;

#endif
