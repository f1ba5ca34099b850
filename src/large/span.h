/* SPDX-License-Identifier: MIT */
/* span.h: blocks above 64 KiB and up to 2 MiB, and each arena's cache of freed ones.
 *
 * A span is a run of adjacent slices. The owner word of its first slice is OWNER_SPAN. The other
 * slices have OWNER_NOBODY, because a pointer into them is no allocation. The slab metadata of the
 * first slice, which no slab needs, holds the span's length and the offset of the block. A span
 * belongs to no arena, and any thread may free it. Only the cache belongs to an arena.
 *
 * Start of the block: if the last slice has room, the block starts up to 63 cache lines into the
 * span, and in each span at another line. If all blocks started at slices, a matrix whose rows are
 * allocated one by one would have each column in a few sets of the cache (docs/decisions/0051).
 * jemalloc's "cache-oblivious" large allocations do the same, at the price of one page more.
 *
 * Cache: freed spans, in a list for each length. A request takes the shortest one that fits. So
 * programs that allocate and free such blocks in turn make no system call and take no shared lock.
 * Each tick of a thread returns the cached spans of its arena that were freed before the last two
 * ticks to their superslabs. There they serve any slab or span, and are purged later. All of them
 * go back before a span or slab of the arena would raise the peak.
 *
 * Secure form: the block lies at a random page of its span, and the pages behind it are closed: an
 * access beyond the block's end faults. So are those before the page of the canary before it. A
 * freed span is closed as a whole, so that each use after free faults, or else cleared. It rests
 * for a random time (span_quarantine.c), then one that was not closed goes to the cache. A block
 * that is aligned to slices or more has one more slice before it, for the canary.
 *
 * Locks: a caller that passes a cache holds the lock of the cache's arena. Any other caller that
 * allocates, frees or resizes holds an arena's lock or is inside the gate (core/gate.h). */
#ifndef HAK_LARGE_SPAN_H
#define HAK_LARGE_SPAN_H

#include "core/counters.h"
#include "core/limits.h"
#include "os/os.h"
#include "region/window.h"

struct resting_span {
    uint32_t slice;  /* slice numbers stay below 2^29 */
    uint32_t slices; /* 0: none */
    bool closed;     /* as a whole */
    bool empty;      /* it has no memory; also if it is closed */
};
/* Secure form: freed spans that rest, in no order: nobody gets them yet. A new one takes the place
 * of a random one. Twice as many: a use after free faults, or reads zero, for twice as long. */
struct span_quarantine {
    struct resting_span spans[32];
    uint64_t random;
    uint32_t held;          /* slices that have memory */
    uint32_t closed_slices; /* since closed_ms */
    uint32_t closed_ms;
};

/* One in each arena, under the arena's lock. */
struct span_cache {
    uint64_t lengths; /* bit n: there are spans of n + 1 slices */
    /* [length - 1]: the span freed last, its first slice, plus 1; 0: none. Linked through their
     * metadata. */
    uint32_t first[SUPERSLAB_SLICES];
    uint32_t slices; /* of all spans; reports read it without the lock */
    uint32_t trims;  /* so far */
    uint32_t part;   /* of the arena (region/superslab.h) */
    struct span_quarantine quarantine[QUARANTINES];
};

struct span {
    void *pointer; /* NULL: no memory */
    bool zeroed;   /* all bytes are 0 */
};

/* True: hak__span_allocate serves such a request, of any size and alignment. */
HAK_HIDDEN bool hak__span_serves(size_t size, size_t alignment);
/* Secure form: true if spans for such requests, which it serves, leave a quarter of each superslab
 * or more to smaller ones, and the process has a limit on its address space. Then a mapping is
 * better. */
HAK_HIDDEN bool hak__span_wastes(size_t size, size_t alignment);
/* Allocates `size` bytes, not 0, at a multiple of `alignment`, a power of two. `cache` may be NULL,
 * `counters` may not. */
HAK_HIDDEN struct span hak__span_allocate(struct span_cache *cache, struct counters *counters,
                                          size_t size, size_t alignment);
/* True if the cache has a span for such a request. */
HAK_HIDDEN bool hak__span_is_cached(struct span_cache *cache, size_t size, size_t alignment);
/* Allocates more than SPAN_SIZE_MAX bytes in whole superslabs side by side, at a multiple of
 * `alignment`, at most SUPERSLAB_SIZE: for when the kernel allows no mapping for a huge block. */
HAK_HIDDEN struct span hak__span_allocate_long(struct counters *counters, size_t size,
                                               size_t alignment);
/* Takes the span whose first slice is `slice` away from the program, which frees or resizes it. Of
 * several threads that do so at the same time one gets it; the process of the others aborts. Any
 * thread, no lock. */
HAK_HIDDEN void hak__span_take(size_t slice);
/* Frees a span that was taken, into `cache` if there is room. If `cache` is NULL or the span is a
 * long one, its slices go back to their superslabs. `counters` may be NULL. */
HAK_HIDDEN void hak__span_free_taken(struct span_cache *cache, struct counters *counters,
                                     size_t slice);
/* Both in one. */
HAK_HIDDEN void hak__span_free(struct span_cache *cache, struct counters *counters, size_t slice);
/* Address and usable bytes of the block in the span whose first slice is `slice`. Any thread, while
 * the span is in use. */
HAK_HIDDEN void *hak__span_pointer(size_t slice);
HAK_HIDDEN size_t hak__span_bytes(size_t slice);
/* The same bytes, a hint if the thread does not own the span. */
HAK_HIDDEN size_t hak__span_bytes_seen(size_t slice);
/* Secure form: false if the canary behind or before a span in use has changed. True, too, if the
 * program has protected pages of it. */
HAK_HIDDEN bool hak__span_is_whole(size_t slice);
/* Reports a span whose canary has changed, and aborts. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__span_report(size_t slice);
/* Slices of a span in use. Any thread; a hint if the thread does not own the span. */
HAK_HIDDEN uint32_t hak__span_slices(size_t slice);
/* Usable bytes that an allocation of `size` bytes has at least. */
HAK_HIDDEN size_t hak__span_good_size(size_t size);
/* Resizes a span in place, so that it holds `size` bytes. Returns the block's address, which may
 * move within the span together with the contents, unless it `stays`. NULL: not possible; nothing
 * has changed. */
HAK_HIDDEN void *hak__span_resize(size_t slice, size_t size, bool stays);
/* Returns the spans that were freed before the last two trims to their superslabs; all if
 * `everything`. Returns the number of slices. */
HAK_HIDDEN uint32_t hak__span_cache_trim(struct span_cache *cache, bool everything);

/* What the metadata of a span's first slice holds. */
struct span_metadata {
    uint32_t slices;
    uint32_t offset; /* bytes from the span's start to the block's */
    uint32_t tail;   /* secure form: bytes of the last page, if it is closed */
    uint32_t slack;  /* secure form: bytes between the end of the request and the tail */
    uint32_t front;  /* secure form: slices before the first that belong to the span, 0 or 1 */
    uint32_t head;   /* secure form: bytes of the first pages that are closed */
    /* of a kept span: */
    uint32_t next;  /* the first slice of the next one of that length, plus 1; 0: there is none */
    uint32_t trims; /* of the cache, when it was freed */
    uint32_t empty; /* 1: it has no memory */
};
HAK_STATIC_ASSERT(sizeof(struct span_metadata) <= HAK_CACHE_LINE, "stored in a slab's metadata");

HAK_INLINE struct span_metadata *span_metadata_at(size_t slice)
{
    return (struct span_metadata *)(void *)window_slab_metadata(slice);
}

/* --- span_quarantine.c: how the slices of freed spans go back, in the secure form after a
 * quarantine --- */

/* Secure form: bytes of closed pages before the canary, at the start of a span whose block begins
 * `offset` bytes behind it. */
HAK_HIDDEN uint32_t hak__span_head(uint32_t offset);
/* The closed pages at both ends of a span that is not closed as a whole. */
HAK_HIDDEN struct os_two hak__span_ends(size_t slice);
/* Secure form: where a block starts in a span that ends with `tail` bytes of closed pages. */
HAK_HIDDEN uint32_t hak__span_end_offset(uint32_t slices, size_t size, size_t alignment,
                                         size_t tail);
/* Secure form: places a block at a random page of its new span, as far as there is room, and closes
 * what it does not need at both ends. Returns its offset. */
HAK_HIDDEN uint32_t hak__span_place(size_t slice, size_t size, size_t alignment);
/* Secure form: opens the closed pages at the start that a block `offset` bytes behind it needs. */
HAK_HIDDEN bool hak__span_open_head(size_t slice, uint32_t offset);
/* Secure form: opens all pages at the end but the last one. If that fails they stay closed. */
HAK_HIDDEN void hak__span_open_tail(size_t slice);
/* Returns slices of a freed span to their superslab. */
HAK_HIDDEN void hak__span_give(struct resting_span span);
/* Secure form: clears or closes a freed span and lets it rest. Returns one that has rested, whose
 * slices may be none. `quarantine` NULL: it clears the span and returns it. */
HAK_HIDDEN struct resting_span hak__span_rest(struct span_quarantine *quarantine, size_t slice,
                                              uint32_t slices);
/* Ends the rest of a random one that has memory, if these have more than `most` slices. */
HAK_HIDDEN struct resting_span hak__span_end_rest(struct span_quarantine *quarantine,
                                                  uint32_t most);
/* Gives a span that was taken new memory, which no thread watches (core/watched.h). */
HAK_HIDDEN void hak__span_renew(size_t slice);
/* Ends all quarantine. Returns the number of slices. */
HAK_HIDDEN uint32_t hak__span_end_quarantine(struct span_quarantine *quarantine);

#endif
