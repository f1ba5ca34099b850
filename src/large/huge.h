/* SPDX-License-Identifier: MIT */
/* huge.h: huge blocks: above 2 MiB, or aligned to more than a superslab. Each
 * is a mapping of its own.
 *
 * Registry (huge_registry.h): a hash table finds each live huge block by its address. It doubles
 * when it is half full.
 *
 * Cache (huge_cache.h): freed huge blocks, as ranges of addresses. A request takes a part of the
 * smallest range that is large enough, and the rest stays. If there is none, it stretches the
 * largest range, or joins the pages of several ranges (huge_join.c), or maps new memory. A purge
 * pass unmaps the ranges that were freed half of knobs.purge_delay_ms ago or earlier.
 *
 * Locks: HUGE guards the registry and the cache; no system call is made under it. Callers of
 * allocate, free, resize and trim are inside the gate (core/gate.h) and hold no lock of rank HUGE
 * or above. The functions that only look may be called by any thread, also in a signal handler. */
#ifndef HAK_LARGE_HUGE_H
#define HAK_LARGE_HUGE_H

#include "core/limits.h"
#include "core/lock.h"
#include "os/os.h"
#include "region/huge_pages.h"
#include "region/numa.h"
#include "region/secure.h"

/* Bytes before and after each huge block that belong to it and are closed (os/os.h): a page each in
 * the secure form. */
#define HUGE_HEAD secure_page()

struct huge {
    uintptr_t address; /* 0: no huge block */
    size_t size;       /* bytes mapped, a multiple of the OS page: all are usable, but for slack */
    uint64_t origin;   /* number of the mapping it is a part of, 0: joined from several mappings;
                          above it that of the memory node (region/numa.h) where it was made */
    /* Secure form, of a live huge block: bytes between the end of the request and its own, and the
     * key of the canary there. */
    size_t slack[HAK_SECURE];
    uint64_t key[HAK_SECURE];
};

#define ORIGIN_NUMBER_BITS 56u

/* The initializer of a huge block without slack. */
#define HUGE_OF(start, bytes, number)                                                              \
    {                                                                                              \
        .address = (start), .size = (bytes), .origin = (number)                                    \
    }

/* True: it was joined from several mappings. */
HAK_INLINE bool huge_is_joined(struct huge block)
{
    return block.origin << (64 - ORIGIN_NUMBER_BITS) == 0;
}

/* Bytes that the program may use. */
HAK_INLINE size_t huge_usable(const struct huge *block)
{
    return block->size - secure_field(block->slack);
}

/* True: whole superslabs side by side can serve such a request, too (large/span.h). */
HAK_INLINE bool huge_may_be_span(size_t size, size_t alignment)
{
    return size > SPAN_SIZE_MAX && alignment <= SUPERSLAB_SIZE && size <= hak__os_ram_size();
}

struct huge_result {
    void *pointer;     /* NULL: no memory, or not possible */
    size_t bytes : 63; /* usable. In a word with `zeroed`: three words would return on the stack */
    size_t zeroed : 1; /* all bytes are 0 */
};

HAK_INLINE struct huge_result huge_result_of(void *pointer, size_t bytes, bool zeroed)
{
    struct huge_result result = {pointer, bytes & SIZE_MAX >> 1, zeroed};
    return result; /* C++ has no compound literals */
}

/* Allocates `size` bytes, 0 to REQUEST_SIZE_MAX, at a multiple of `alignment`, any power of two.
 * `want_zero` prefers a new mapping to a range that would take long to clear; it clears nothing.
 * Without `may_map` only cached ranges serve. */
HAK_HIDDEN struct huge_result hak__huge_allocate(size_t size, size_t alignment, bool want_zero,
                                                 bool may_map);
/* Frees the huge block that starts at `pointer`. False: no huge block starts there, and nothing is
 * done. */
HAK_HIDDEN bool hak__huge_free(void *pointer);
/* Usable bytes of the huge block that starts at `pointer`. 0: no huge block starts there, or the
 * lock was not free within 100 milliseconds in a signal handler. */
HAK_HIDDEN size_t hak__huge_bytes(const void *pointer);
/* Secure form: false if another size than `size` was asked for when the huge block was allocated or
 * last resized. True if no huge block starts at `pointer`, or the request is not known. */
HAK_HIDDEN bool hak__huge_has_size(const void *pointer, size_t size);
/* True: one of the last huge blocks that were freed started at `pointer`. A hint: takes
 * no lock. */
HAK_HIDDEN bool hak__huge_was_freed(const void *pointer);
/* True: one of them contained the address. A hint, too. */
HAK_HIDDEN bool hak__huge_contained(uintptr_t address);
/* The huge block that contains `pointer`; address 0: none does. Slow: looks at every huge block. */
HAK_HIDDEN struct huge hak__huge_containing(const void *pointer);
/* Resizes the huge block that starts at `pointer` to `size` bytes. Moves page tables and copies
 * nothing. `stays`: it also keeps its address. Pointer NULL: not possible, and the huge block is as
 * it was. */
HAK_HIDDEN struct huge_result hak__huge_resize(void *pointer, size_t size, bool stays);
/* Unmaps cached ranges that were freed `age_ms` milliseconds ago or earlier, and the oldest ones
 * beyond the bound of huge_cache.h. UINT32_MAX: only those beyond the bound. 0: all. Returns the
 * bytes unmapped. */
HAK_HIDDEN size_t hak__huge_cache_trim(uint32_t age_ms);
/* Unmaps the oldest cached ranges until free memory, dirty slices included, is what the program is
 * expected to use soon (hak__superslab_expected). */
HAK_HIDDEN void hak__huge_cache_give_back(void);
/* True if a trim would unmap something, because slabs and spans have grown. Takes no lock. */
HAK_HIDDEN bool hak__huge_cache_exceeds(void);

/* True: a new huge block of `size` bytes should get huge pages (region/huge_pages.h). `zeroed`: it
 * is for calloc. */
HAK_HIDDEN bool hak__huge_earns_huge_pages(size_t size, bool zeroed);
/* What it is judged by. [1]: of calloc. Under HUGE. */
HAK_HIDDEN extern struct huge_pages_evidence hak__huge_evidence[2];

/* The origin of a new mapping on the calling thread's memory node, and one with a number. */
HAK_HIDDEN uint64_t hak__huge_new_origin(void);
HAK_INLINE uint64_t huge_origin_here(uint64_t number)
{
    return (uint64_t)numa_node() << ORIGIN_NUMBER_BITS | number;
}

/* For reports. Waits for HUGE. */
struct huge_totals {
    size_t live_count;
    size_t small_count; /* of these, at most SPAN_SIZE_MAX: emergency memory, large alignments */
    size_t live_bytes;
    size_t cached_bytes;   /* of the address ranges in the cache */
    size_t metadata_bytes; /* of the registry's table, and of large/emergency.h */
};
HAK_HIDDEN struct huge_totals hak__huge_totals(void);

HAK_HIDDEN extern struct lock hak__huge_lock; /* for fork */

/* --- lists, for reports ---
 *
 * A list of huge blocks in use and freed huge blocks that are kept is filled several times. Each
 * time it holds the next huge blocks in the order of addresses. So it needs no memory but the
 * caller's, and no lock is held between two fills. A huge block that exists throughout is listed
 * once. n huge blocks take n / 32 looks at all huge blocks. */

struct huge_view {
    uintptr_t address;
    size_t size;     /* bytes mapped */
    uint32_t age_ms; /* since it was freed; 0: in use */
    bool kept;       /* freed, and kept for reuse */
};

struct huge_list {
    /* Huge blocks of one fill. Twice as many: half as many looks at all huge blocks, and 768 bytes
     * more on the stack. */
    struct huge_view views[HAK_TINY_LIMITS ? 3 : 32]; /* by rising address */
    uint32_t count;
    uintptr_t after; /* the list holds huge blocks above this address; 0 at first */
};

/* Fills the list with the next huge blocks; `list->after` is where the last fill ended. False:
 * there are no more. Takes HUGE. The caller is inside the gate and holds no lock. */
HAK_HIDDEN bool hak__huge_list_next(struct huge_list *list);

/* The memory of the registry; size 0: there is none yet. Takes HUGE. It may be unmapped at any
 * moment after that, so the caller only asks the kernel about it. */
HAK_HIDDEN struct huge_view hak__huge_table(void);

#endif
