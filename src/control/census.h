/* census.h: counts where the memory is: sums that heaps keep, and one walk over all threads. Its
 * cost does not depend on the size of the heap. For reports; no fast path knows of it.
 *
 * What a thread is changing at that moment may be counted on either side of the change; what is at
 * rest is counted exactly. */
#ifndef HAK_CONTROL_CENSUS_H
#define HAK_CONTROL_CENSUS_H

#include "core/counters.h"
#include "core/limits.h"
#include "heap/heap.h"
#include "large/whale.h"

/* Objects of one size class: carved = in use + in slabs + cached. */
struct class_census {
    uint64_t slabs_count;
    uint64_t slab_bytes;
    uint64_t carved_count;   /* cut so far; the rest of the slabs is untouched memory */
    uint64_t in_slabs_count; /* free, in their slabs */
    uint64_t cached_count;   /* free, in bins and remote buffers */
};

struct census {
    struct class_census classes[CLASS_COUNT];
    struct counters counters; /* of all heaps and threads together */
    uint64_t spans_count;     /* in use */
    uint64_t span_bytes;
    uint64_t span_cached_bytes;
    uint64_t heaps_count;
    uint64_t heaps_parked_count; /* without a thread */
    uint64_t threads_count;      /* that have a cache */
    uint64_t superslabs_count;
    struct whale_totals whales;
};

/* Begins at the gate and takes one heap's lock at a time; none may be held by the caller. All zero
 * when this thread is inside an operation already. */
HAK_HIDDEN void hak__census_take(struct census *census);

HAK_HIDDEN uint64_t hak__census_in_use(const struct class_census *class_census);
/* Objects of slabs, spans and whales together. */
HAK_HIDDEN uint64_t hak__census_objects_in_use(const struct census *census);
HAK_HIDDEN uint64_t hak__census_bytes_in_use(const struct census *census);
HAK_HIDDEN uint64_t hak__census_bytes_cached(const struct census *census);

/* At any time: kept spans; free objects in bins and remote buffer. */
HAK_HIDDEN uint64_t hak__census_span_cached_bytes(const struct heap *heap);
HAK_HIDDEN uint64_t hak__census_cache_bytes(const struct cache *cache);

#endif
