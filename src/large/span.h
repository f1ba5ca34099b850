/* span.h: L2.5: 64 KiB to 2 MiB in whole slices, with a per-heap cache of freed ones.
 *
 * The owner word of a span's first slice is OWNER_SPAN, of the others OWNER_NOBODY (a pointer to
 * them is no allocation). The slab metadata of the first slice is unused for slabs and holds the
 * span's length and offset. Any thread may free any span: spans belong to nobody, only the cache
 * is the heap's.
 *
 * Where the last slice has lines to spare, the allocation starts some of them behind the first
 * one's start, in each span another number, at most a page (again the same in one that was kept, if
 * that will do): rows of a matrix, each allocated by
 * itself, would all have their columns in the same few sets of the cache (docs/decisions/0051).
 * jemalloc's "cache-oblivious" large allocations do the same for one page more.
 *
 * The cache: up to SPAN_CACHE_ENTRIES freed spans, the last one freed first if it fits exactly,
 * else the best fit. A loop around an 800 kB buffer takes and gives one entry; no system call, no
 * shared lock. What is not used between two trims (64 slow operations of a thread) goes back to its
 * superslab: for anybody's slabs and spans, and decays there.
 */
#ifndef HAK_LARGE_SPAN_H
#define HAK_LARGE_SPAN_H

#include "core/counters.h"
#include "core/limits.h"

struct span_entry {
    uint32_t slice;  /* slice numbers stay below 2^28 */
    uint16_t slices; /* 0: empty entry */
    bool used;       /* touched since the last trim */
};

/* Spans in use. What is allocated from one heap and freed through another is counted up in the one
 * and down in the other: only the sum over all says something, and it wraps. */
struct span_totals {
    uint64_t count;
    uint64_t bytes; /* usable */
};

/* Under the heap's lock. */
struct span_cache {
    struct span_entry entries[SPAN_CACHE_ENTRIES];
    uint32_t slices; /* in all entries */
    uint16_t next_victim;
    uint16_t last; /* the entry of the last free */
    struct span_totals totals;
};

struct span {
    void *pointer; /* NULL: no memory */
    bool zeroed;
};

/* `size` 1..SPAN_SIZE_MAX, `alignment` a power of two up to SUPERSLAB_SIZE. `cache` may be NULL.
 * Under its heap's lock. */
HAK_HIDDEN struct span hak__span_allocate(struct span_cache *cache, struct counters *counters,
                                          size_t size, size_t alignment);
/* The same for any larger size, in whole superslabs, aligned to one: for when a whale cannot be
 * had.
 */
HAK_HIDDEN struct span hak__span_allocate_long(struct counters *counters, size_t size);
/* `slice`: the first of a span. `cache` NULL: straight to the superslab. */
HAK_HIDDEN void hak__span_free(struct span_cache *cache, struct counters *counters, size_t slice);
/* Where the allocation in the span whose first slice is `slice` starts, and its bytes. */
HAK_HIDDEN void *hak__span_pointer(size_t slice);
HAK_HIDDEN size_t hak__span_bytes(size_t slice);
/* What an allocation of `size` bytes has at least. */
HAK_HIDDEN size_t hak__span_good_size(size_t size);
/* Makes the span hold `size` bytes; its contents may move, within it. Returns where they are; NULL:
 * it cannot, and is as it was. */
HAK_HIDDEN void *hak__span_resize(size_t slice, size_t size);
/* What was counted without a cache or its lock. Any thread. */
HAK_HIDDEN struct span_totals hak__span_totals_without_cache(void);
/* Returns entries to their superslabs: those not used since the last trim, or all. */
HAK_HIDDEN uint32_t hak__span_cache_trim(struct span_cache *cache, bool everything);

#endif
