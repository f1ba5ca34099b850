/* SPDX-License-Identifier: MIT */
/* whale.h: huge allocations, called whales: above 2 MiB, or aligned to more than a superslab. Each
 * is a mapping of its own.
 *
 * Registry (whale_registry.h): a hash table finds each live whale by its address. It doubles when
 * it is half full.
 *
 * Cache (whale_cache.h): freed whales, as ranges of addresses. A request takes a part of the
 * smallest range that is large enough, and the rest stays. If there is none, it stretches the
 * largest range, or joins the pages of several ranges (whale_join.c), or maps new memory. A purge
 * pass unmaps the ranges that were freed half of knobs.purge_delay_ms ago or earlier.
 *
 * Locks: WHALES guards the registry and the cache; no system call is made under it. Callers of
 * allocate, free, resize and trim are inside the gate (core/gate.h) and hold no lock of rank WHALES
 * or above. The functions that only look may be called by any thread, also in a signal handler. */
#ifndef HAK_LARGE_WHALE_H
#define HAK_LARGE_WHALE_H

#include "core/limits.h"
#include "core/lock.h"
#include "os/os.h"
#include "region/huge.h"
#include "region/numa.h"

/* Bytes before and after each whale that belong to it and are closed (os/os.h): a page each in the
 * secure form. */
#define WHALE_HEAD (HAK_SECURE ? hak__os_page_size() : (size_t)0)
#define WHALE_TAIL WHALE_HEAD

struct whale {
    uintptr_t address; /* 0: no whale */
    size_t size;       /* bytes mapped, a multiple of the OS page: all are usable, but for slack */
    uint64_t origin;   /* number of the mapping it is a part of, 0: joined from several mappings;
                          above it that of the memory node (region/numa.h) where it was made */
    size_t
        slack[HAK_SECURE]; /* of a live whale: bytes between the end of the request and its own */
};

#define ORIGIN_NUMBER_BITS 56u

/* The initializer of a whale without slack. */
#define WHALE_OF(start, bytes, number)                                                             \
    {                                                                                              \
        .address = (start), .size = (bytes), .origin = (number)                                    \
    }

/* True: it was joined from several mappings. */
HAK_INLINE bool whale_is_joined(struct whale whale)
{
    return whale.origin << (64 - ORIGIN_NUMBER_BITS) == 0;
}

/* Bytes that the program may use. */
HAK_INLINE size_t whale_usable(const struct whale *whale)
{
    return whale->size - (HAK_SECURE ? *whale->slack : 0);
}

/* True: whole superslabs side by side can serve such a request, too (large/span.h). */
HAK_INLINE bool whale_may_be_span(size_t size, size_t alignment)
{
    return size > SPAN_SIZE_MAX && alignment <= SUPERSLAB_SIZE && size <= hak__os_ram_size();
}

struct whale_result {
    void *pointer; /* NULL: no memory */
    bool zeroed;   /* all bytes are 0 */
};

/* Allocates `size` bytes, 0 to REQUEST_SIZE_MAX, at a multiple of `alignment`, any power of two. If
 * mappings are short (region/mappings.h), what may be a span gets cached ranges only. `want_zero`
 * prefers a new mapping to a range that would take long to clear; it clears nothing. */
HAK_HIDDEN struct whale_result hak__whale_allocate(size_t size, size_t alignment, bool want_zero);
/* As hak__whale_allocate, even if mappings are short. The kernel joins mappings side by side, so
 * there may be far fewer than hakmem counts. */
HAK_HIDDEN struct whale_result hak__whale_allocate_anyway(size_t size, size_t alignment,
                                                          bool want_zero);
/* Frees the whale that starts at `pointer`. False: no whale starts there, and nothing is done. */
HAK_HIDDEN bool hak__whale_free(void *pointer);
/* Usable bytes of the whale that starts at `pointer`. 0: no whale starts there, or the lock was not
 * free within WHALE_LOOKS_MAX milliseconds in a signal handler. */
HAK_HIDDEN size_t hak__whale_bytes(const void *pointer);
/* Secure form: false if another size than `size` was asked for when the whale was allocated or last
 * resized. True if no whale starts at `pointer`, or the request is not known. */
HAK_HIDDEN bool hak__whale_has_size(const void *pointer, size_t size);
/* True: one of the last WHALE_GRAVES whales that were freed started at `pointer`. A hint. */
HAK_HIDDEN bool hak__whale_was_freed(const void *pointer);
/* True: a freed whale whose addresses rest contains the address. A hint: takes no lock. */
HAK_HIDDEN bool hak__whale_is_resting(uintptr_t address);
/* The whale that contains `pointer`; address 0: none does. Slow: looks at every whale. */
HAK_HIDDEN struct whale hak__whale_containing(const void *pointer);
/* Resizes the whale that starts at `pointer` to `size` bytes. Moves page tables and copies nothing.
 * Returns its new address. NULL: not possible, and the whale is as it was. */
HAK_HIDDEN void *hak__whale_resize(void *pointer, size_t size);
/* Unmaps cached ranges that were freed `age_ms` milliseconds ago or earlier, and the oldest ones
 * beyond the bound of whale_cache.h. UINT32_MAX: only those beyond the bound. 0: all, and the peak
 * starts anew at the memory in use now. Returns the bytes unmapped. */
HAK_HIDDEN size_t hak__whale_cache_trim(uint32_t age_ms);
/* True if slabs and spans have grown beyond what the last trim left room for. Takes no lock. */
HAK_HIDDEN bool hak__whale_cache_exceeds(void);

/* True: a new whale of `size` bytes should get huge pages (region/huge.h). `zeroed`: it is for
 * calloc. */
HAK_HIDDEN bool hak__whale_earns_huge(size_t size, bool zeroed);
/* What it is judged by. [1]: of calloc. Under HUGE. */
HAK_HIDDEN extern struct huge_evidence hak__whale_evidence[2];

/* The origin of a new mapping on the calling thread's memory node, and one with a number. */
HAK_HIDDEN uint64_t hak__whale_new_origin(void);
HAK_INLINE uint64_t whale_origin_here(uint64_t number)
{
    return (uint64_t)numa_node() << ORIGIN_NUMBER_BITS | number;
}

/* For reports. Waits for WHALES. */
struct whale_totals {
    size_t live_count;
    size_t small_count; /* of these, at most SPAN_SIZE_MAX: emergency memory, large alignments */
    size_t live_bytes;
    size_t cached_bytes;   /* of the address ranges in the cache */
    size_t metadata_bytes; /* of the tables of registry and cache, and of large/emergency.h */
};
HAK_HIDDEN struct whale_totals hak__whale_totals(void);

HAK_HIDDEN extern struct lock hak__whale_lock; /* for fork */

/* --- lists, for reports ---
 *
 * A list of whales in use and freed whales that are kept is filled several times. Each time it
 * holds the next whales in the order of addresses. So it needs no memory but the caller's, and no
 * lock is held between two fills. A whale that exists throughout is listed once. n whales take n /
 * WHALE_LIST_MAX looks at all whales. */

/* Whales of one fill. Twice as many: half as many looks at all whales, and 768 bytes more on the
 * stack. */
#define WHALE_LIST_MAX (HAK_TINY_LIMITS ? 3u : 32u)

struct whale_view {
    uintptr_t address;
    size_t size;     /* bytes mapped */
    uint32_t age_ms; /* since it was freed; 0: in use */
    bool kept;       /* freed, and kept for reuse */
};

struct whale_list {
    struct whale_view views[WHALE_LIST_MAX]; /* by rising address */
    uint32_t count;
    uintptr_t after; /* the list holds whales above this address; 0 at first */
};

/* Fills the list with the next whales; `list->after` is where the last fill ended. False: there are
 * no more. Takes WHALES. The caller is inside the gate and holds no lock. */
HAK_HIDDEN bool hak__whale_list_next(struct whale_list *list);

/* The memory of the tables about whales. Takes WHALES. It may be unmapped at any moment after that,
 * so the caller only asks the kernel about it. */
struct whale_tables {
    struct whale_view registry; /* size 0: there is none yet */
    struct whale_view cache;    /* size 0: it is still the first one, in the library's own data */
};
HAK_HIDDEN struct whale_tables hak__whale_tables(void);

#endif
