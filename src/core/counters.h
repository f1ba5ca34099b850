/* SPDX-License-Identifier: MIT */
/* counters.h: counts of what the slow paths do. Each arena has a set, written under its lock, and
 * each thread has one that only it writes. Reports read both, relaxed. No fast path counts.
 *
 * X(name, key, text): `text` says what is counted, for the report and
 * docs/observability/README.md. Keep the groups in the order of a report.
 */
#ifndef HAK_CORE_COUNTERS_H
#define HAK_CORE_COUNTERS_H

#include "base/atomics.h"

#define HAK_COUNTERS(X)                                                                            \
    X(MALLOC_SLOW, "malloc_slow", "allocations up to 64 KiB that took the slow path")              \
    X(REFILL_FREE_LIST, "refill_free_list", "refills of a bin from the free list of a slab")       \
    X(REFILL_REMOTE, "refill_remote", "refills of a bin with objects that other threads freed")    \
    X(REFILL_CARVE, "refill_carve", "refills of a bin with newly carved objects of a slab")        \
    X(REFILL_BORROWED, "refill_borrowed", "refills of a bin with free objects of another arena")   \
    X(SLAB_FROM_REGION, "slab_from_region", "slabs taken from the free slices of a superslab")     \
    X(SLAB_TO_REGION, "slab_to_region", "empty slabs returned to their superslab")                 \
    X(FREE_OVERFLOW, "free_overflow", "frees that found their bin full")                           \
    X(FREE_FLUSHED_OBJECTS, "free_flushed_objects", "objects moved from bins back to their slabs") \
    X(FREE_REMOTE, "free_remote", "objects of another arena sent back to their slabs")             \
    X(REMOTE_BATCHES, "remote_batches",                                                            \
      "batches of objects sent to other arenas, one atomic operation each")                        \
    X(REMOTE_NOTIFIED, "remote_notified",                                                          \
      "slabs that other threads reported to this arena after freeing objects in them")             \
    X(SPAN_ALLOCATED, "span_allocated", "spans allocated (64 KiB to 2 MiB)")                       \
    X(SPAN_CACHE_HIT, "span_cache_hit", "spans allocated from the arena's cache of freed spans")   \
    X(SPAN_FREED, "span_freed", "spans freed")                                                     \
    X(HUGE_ALLOCATED, "huge_allocated", "huge blocks allocated (above 2 MiB)")                     \
    X(HUGE_FREED, "huge_freed", "huge blocks freed")                                               \
    X(REALLOC_IN_PLACE, "realloc_in_place", "reallocs of spans and huge blocks without a copy")    \
    X(REALLOC_COPIED, "realloc_copied", "reallocs that copied the contents")                       \
    X(GUARDED, "guarded", "allocations guarded by HAKMEM_GUARD")                                   \
    X(TICKS, "ticks", "times that a thread looked for idle bins to empty")                         \
    X(BINS_TRIMMED, "bins_trimmed", "idle bins that threads emptied at a tick")                    \
    X(ALLOCATION_FAILED, "allocation_failed", "allocations that failed with ENOMEM")

enum counter {
#define X(name, key, text) COUNTER_##name,
    HAK_COUNTERS(X)
#undef X
        COUNTER_COUNT
};

struct counters {
    uint64_t values[COUNTER_COUNT];
};

/* For the one writer. The accesses are atomic because a report may read at any time. */
HAK_INLINE void counter_add(struct counters *counters, enum counter counter, uint64_t amount)
{
    uint64_t *value = &counters->values[counter];
    atomic_store_relaxed(value, atomic_load_relaxed(value) + amount);
}

#endif
