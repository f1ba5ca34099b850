/* counters.h: what the slow paths did. Plain numbers, of a heap (written by whoever holds its lock)
 * or of a thread (written by it), read relaxed by reports. Nothing on a fast path counts.
 *
 * X(name, text): keep the groups in the order of a report.
 */
#ifndef HAK_CORE_COUNTERS_H
#define HAK_CORE_COUNTERS_H

#include "base/atomics.h"

#define HAK_COUNTERS(X)                                                                            \
    X(MALLOC_SLOW, "malloc_slow", "allocations that came through the slow door")                   \
    X(REFILL_FREE_LIST, "refill_free_list", "refills by a slab's free list")                       \
    X(REFILL_REMOTE, "refill_remote", "refills by objects other threads had freed")                \
    X(REFILL_CARVE, "refill_carve", "refills by carving fresh objects")                            \
    X(REFILL_BORROWED, "refill_borrowed", "refills by free objects of another heap")               \
    X(SLAB_FROM_POOL, "slab_from_pool", "slabs taken from the lock-free pool")                     \
    X(SLAB_FROM_REGION, "slab_from_region", "slabs taken from a superslab's free slices")          \
    X(SLAB_TO_POOL, "slab_to_pool", "empty slabs given to the pool")                               \
    X(SLAB_TO_REGION, "slab_to_region", "empty slabs given back to their superslab")               \
    X(FREE_OVERFLOW, "free_overflow", "frees that found their bin full")                           \
    X(FREE_FLUSHED_OBJECTS, "free_flushed_objects", "objects flushed from bins to their slabs")    \
    X(FREE_REMOTE, "free_remote", "frees of another heap's objects, counted as they are sent")     \
    X(REMOTE_BATCHES, "remote_batches", "batches sent to other heaps, one atomic operation each")  \
    X(REMOTE_NOTIFIED, "remote_notified", "slabs other threads reported to this heap")             \
    X(SPAN_ALLOCATED, "span_allocated", "spans handed out")                                        \
    X(SPAN_CACHE_HIT, "span_cache_hit", "of these from the heap's span cache")                     \
    X(SPAN_FREED, "span_freed", "spans freed")                                                     \
    X(WHALE_ALLOCATED, "whale_allocated", "whales handed out")                                     \
    X(WHALE_FREED, "whale_freed", "whales freed")                                                  \
    X(REALLOC_IN_PLACE, "realloc_in_place", "reallocs that kept their place or moved pages")       \
    X(REALLOC_COPIED, "realloc_copied", "reallocs that copied")                                    \
    X(TICKS, "ticks", "times that a thread trimmed its idle bins")                                 \
    X(BINS_TRIMMED, "bins_trimmed", "idle bins trimmed at a tick")                                 \
    X(ALLOCATION_FAILED, "allocation_failed", "requests that ended with ENOMEM")

enum counter {
#define X(name, key, text) COUNTER_##name,
    HAK_COUNTERS(X)
#undef X
        COUNTER_COUNT
};

struct counters {
    uint64_t values[COUNTER_COUNT];
};

/* One writer: a relaxed load and store, so that a report may read at any time. */
HAK_INLINE void counter_add(struct counters *counters, enum counter counter, uint64_t amount)
{
    uint64_t *value = &counters->values[counter];
    atomic_store_relaxed(value, atomic_load_relaxed(value) + amount);
}

#endif
