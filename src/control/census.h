/* SPDX-License-Identifier: MIT */
/* census.h: counts where the memory is, for reports, by one walk over all slices and threads. It
 * reads 4 bytes for each slice (32 KiB) of the heap and a cache line for each slab and span.
 * Nothing else in the program counts for it.
 *
 * Memory at rest is counted exactly. What a thread is changing at that moment may be counted on
 * either side of the change. */
#ifndef HAK_CONTROL_CENSUS_H
#define HAK_CONTROL_CENSUS_H

#include "arena/arena.h"
#include "core/counters.h"
#include "core/limits.h"
#include "large/huge.h"

/* Objects of one size class: carved = in use + in slabs + cached. */
struct class_census {
    uint64_t slabs_count;
    uint64_t slab_bytes;
    uint64_t carved_count;   /* cut so far; the rest of the slabs is not carved */
    uint64_t in_slabs_count; /* free, in their slabs */
    uint64_t cached_count;   /* free, in bins and remote buffers */
    uint64_t requests_count; /* of the class that were seen */
    uint64_t unused_bytes;   /* of their objects, beyond what was asked for */
};

struct census {
    struct class_census classes[CLASS_COUNT];
    struct counters counters; /* sums over all arenas and threads */
    uint64_t spans_count;     /* in use */
    uint64_t span_bytes;
    uint64_t span_cached_bytes;
    uint64_t arenas_count;
    uint64_t arenas_parked_count; /* that no thread draws from */
    uint64_t threads_count;       /* that have a cache */
    uint64_t superslabs_count;
    struct huge_totals huge;
    uint64_t objects_in_use_count; /* of slabs, spans and huge blocks together */
    uint64_t bytes_in_use;         /* theirs, at usable size */
    uint64_t bytes_cached;         /* in thread caches, kept spans and kept huge blocks */
    uint64_t slab_bytes;
    uint64_t sampled_bytes; /* of slab_bytes, those of sampled objects */
};

/* Fills `*census`. Begins at the gate, and waits for the end of a fork. All is zero if this thread
 * is inside an operation already. Any thread, no lock held. */
HAK_HIDDEN void hak__census_take(struct census *census);

/* Objects of one class that the program has in use. */
HAK_HIDDEN uint64_t hak__census_in_use(const struct class_census *class_census);
/* Bytes of the spans that an arena keeps; bytes in the bins and the remote buffer of a thread. Any
 * thread, no lock. Exact while the arena's users are at rest. */
HAK_HIDDEN uint64_t hak__census_span_cached_bytes(const struct arena *arena);
HAK_HIDDEN uint64_t hak__census_cache_bytes(const struct cache *cache);

#endif
