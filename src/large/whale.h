/* whale.h: above 2 MiB (or alignments above a superslab): own mappings, a registry to find them by
 * address, and a cache of freed ones.
 *
 * Registry: an open-addressed hash table of every live whale, grown by doubling; no capacity but
 * memory. Cache (whale_cache.h): bounded by what was in use lately. A request takes the smallest
 * range of it that is large enough, and leaves the rest; failing that a whale is joined from the
 * page tables of several (whale_join.h). A purge pass unmaps what was freed half of
 * knobs.purge_delay_ms ago. Locks: WHALES for all; system calls are made without it. Free of a
 * pointer that is no whale: hak__whale_free says so, and the caller decides what it means.
 */
#ifndef HAK_LARGE_WHALE_H
#define HAK_LARGE_WHALE_H

#include "core/limits.h"
#include "core/lock.h"

struct whale {
    uintptr_t address; /* 0: no whale */
    size_t size;       /* bytes mapped, a multiple of the OS page: all usable */
    uint64_t origin;   /* the mapping it is a part of; 0: it is joined from parts of several */
};

struct whale_result {
    void *pointer; /* NULL: no memory */
    bool zeroed;
};

/* `size` up to REQUEST_SIZE_MAX, `alignment` any power of two. `want_zero`: prefers a new mapping
 * over clearing a large old one. */
HAK_HIDDEN struct whale_result hak__whale_allocate(size_t size, size_t alignment, bool want_zero);
/* False when no whale starts at `pointer`. */
HAK_HIDDEN bool hak__whale_free(void *pointer);
/* Bytes of the whale that starts at `pointer`, 0 when none does. */
HAK_HIDDEN size_t hak__whale_bytes(const void *pointer);
/* True when one of the last whales freed started at `pointer`. */
HAK_HIDDEN bool hak__whale_was_freed(const void *pointer);
/* The whale that contains `pointer`, address 0 when none does. Slow: looks at every whale. */
HAK_HIDDEN struct whale hak__whale_containing(const void *pointer);
/* Grows or shrinks by page tables, not copies; the whale may move. NULL when it cannot: it is as it
 * was. */
HAK_HIDDEN void *hak__whale_resize(void *pointer, size_t size);
/* Unmaps cached whales: those freed `age_ms` ago or longer, and those that the rule of
 * whale_cache.h has no room for; 0: all, and what was in use before counts no more. UINT32_MAX: by
 * the rule only. Returns bytes. */
HAK_HIDDEN size_t hak__whale_cache_trim(uint32_t age_ms);

/* Huge pages are worth asking for (region/huge.h), for a whale of `size` bytes that is not live
 * yet; `zeroed`: by calloc. */
HAK_HIDDEN bool hak__whale_earns_huge(size_t size, bool zeroed);

/* A number for a new mapping. */
HAK_HIDDEN uint64_t hak__whale_new_origin(void);

struct whale_totals {
    size_t live_count;
    size_t live_bytes;
    size_t cached_bytes; /* mapped */
    size_t metadata_bytes;
};
HAK_HIDDEN struct whale_totals hak__whale_totals(void);

HAK_HIDDEN extern struct lock hak__whale_lock; /* for fork */

#endif
