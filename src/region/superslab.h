/* superslab.h: which slices are free; claiming and releasing superslabs.
 *
 * Each superslab has three maps, one bit a slice:
 *   free    may be handed out (claimed, owned by nobody)
 *   dirty   may hold anything but zeroes, or resident pages; allocated slices are dirty, and where
 *           huge pages are welcome all slices of a huge page once one of them is
 *   aged    was free and dirty at the last purge pass and has not been touched since
 * Invariants: aged is a subset of free & dirty; where huge pages are welcome all slices are dirty
 * or none.
 *
 * Slices go out lowest address first, dirty ones before clean ones: a warm page costs nothing, a
 * new one a microsecond (docs/design/region.md).
 *
 * Locks: REGION for every map; callers hold at most a heap's lock. GROWTH, taken before REGION,
 * serialises claims.
 */
#ifndef HAK_REGION_SUPERSLAB_H
#define HAK_REGION_SUPERSLAB_H

#include "base/atomics.h"
#include "core/limits.h"
#include "core/lock.h"
#include "region/superslab_index.h"

enum superslab_state {
    SUPERSLAB_NEW = 0,  /* beyond the frontier, or skipped by it */
    SUPERSLAB_CLAIMED,  /* its first `claimed` slices are ours */
    SUPERSLAB_RELEASED, /* unmapped again, may be reclaimed */
    SUPERSLAB_LOST      /* somebody else's addresses */
};

/* HUGE: `huge` is 1. SPLIT: `split` is; it had huge ones until a part of it was purged. */
enum superslab_pages { SUPERSLAB_SMALL, SUPERSLAB_HUGE, SUPERSLAB_SPLIT };

struct superslab {
    uint64_t free;
    uint64_t dirty;
    uint64_t aged;
    uint16_t state;   /* this and the next are read relaxed */
    uint16_t claimed; /* slices, from the first on */
    uint16_t huge;    /* 1: huge pages are welcome */
    uint16_t split;   /* 1: it had huge pages until a part of it was purged */
};

HAK_STATIC_ASSERT(sizeof(struct superslab) == 32, "two superslabs' maps are a cache line");

#define SUPERSLAB_GROUP 64u

/* Neighbours, and their part of the index (superslab_index.h). */
struct superslab_group {
    unsigned char index[INDEX_KINDS][SUPERSLAB_GROUP] __attribute__((aligned(HAK_CACHE_LINE)));
    unsigned char upper[INDEX_KINDS][SUPERSLAB_GROUP];
    struct superslab superslabs[SUPERSLAB_GROUP];
};

#define SLICE_NONE SIZE_MAX

/* A run of slices handed out. */
struct slice_run {
    size_t slice; /* SLICE_NONE: no memory */
    bool zeroed;  /* every byte reads as zero */
};

/* Called by the window once its tables exist; the first group ends there, the others lie below it.
 */
HAK_HIDDEN void hak__superslab_tables(struct superslab_group *groups_end);

/* Takes `count` (1..SUPERSLAB_SLICES) adjacent slices whose first is a multiple of `alignment` (in
 * slices, a power of two up to SUPERSLAB_SLICES); claims a superslab when none fits. Owner words
 * are left 0. Any thread, no lock of rank above HEAP held. */
HAK_HIDDEN struct slice_run hak__superslab_take(uint32_t count, uint32_t alignment);

/* Gives slices back. Their owner words are 0 and nobody uses them. */
HAK_HIDDEN void hak__superslab_give(size_t slice, uint32_t count);

/* Takes exactly these slices if all are free: growth in place. */
HAK_HIDDEN bool hak__superslab_take_exact(size_t slice, uint32_t count);

/* region/superslab_run.c: takes so many whole superslabs side by side, without a mapping of their
 * own, when there can be none. Slow: looks at every superslab. The caller writes owner words. */
HAK_HIDDEN struct slice_run hak__superslab_take_run(size_t superslabs);
HAK_HIDDEN void hak__superslab_give_run(size_t slice, size_t superslabs);
/* Adds claimed slices [first, first + count) of one superslab to the free ones. Under GROWTH. */
HAK_HIDDEN void hak__superslab_publish(size_t first, uint32_t count);

/* Bytes of claimed superslabs; of free dirty slices. Relaxed reads. */
HAK_HIDDEN size_t hak__superslab_bytes_claimed(void);
HAK_HIDDEN size_t hak__superslab_bytes_dirty(void);
HAK_HIDDEN size_t hak__superslab_bytes_free(void);

/* With `count` slices more as many would be in use as never since memory last went back: a purge
 * pass, or a release. A hint. */
HAK_HIDDEN bool hak__superslab_would_grow(uint32_t count);

/* region/purge.c: gives dirty free slices back to the OS; `everything` also those not aged, else
 * each slice that has been free since the last pass. Returns bytes given back. No lock held by the
 * caller above HEAP. */
HAK_HIDDEN size_t hak__superslab_purge(bool everything);
/* A part of a pass of those that do not give back everything: goes on where the last one stopped,
 * or begins a new one if `begin`, and stops after `bytes`, each superslab counted as a slice at
 * least, or a superslab more. Any thread; nobody is waited for. */
HAK_HIDDEN void hak__superslab_purge_part(bool begin, size_t bytes);
/* Such a pass is under way. A hint. */
HAK_HIDDEN bool hak__superslab_purge_is_under_way(void);
/* Unmaps wholly free superslabs, for when address space or commit charge ran out or a limit is
 * near, until at least `bytes` have gone. Returns how many. */
HAK_HIDDEN size_t hak__superslab_release(size_t bytes);

/* region/superslab_pages.c: chooses the pages of newly claimed slices, [first, first + claimed) of
 * one superslab, for a run of `count`. Under GROWTH. */
HAK_HIDDEN void hak__superslab_choose_pages(size_t first, uint32_t claimed, uint32_t count);
/* Notes which pages a superslab has; SMALL, when it is unmapped. Under REGION. */
HAK_HIDDEN void hak__superslab_set_pages(size_t index, enum superslab_pages pages);
/* A part of the superslab is about to be purged, which the caller has taken out of the free map: it
 * has small pages from now on. Resident pages stay. False: huge ones are still welcome, as the
 * kernel would not, or too many superslabs are split; the slices then remain dirty. Under PURGE. */
HAK_HIDDEN bool hak__superslab_split(size_t index);
/* All of a split superslab has been purged, and the caller has it: it may have huge pages again.
 * Under PURGE. */
HAK_HIDDEN void hak__superslab_join(size_t index);

/* For purge.c and fork. */
HAK_HIDDEN extern struct lock hak__region_lock;
HAK_HIDDEN extern struct lock hak__growth_lock;
HAK_HIDDEN extern struct lock hak__purge_lock;

struct superslab_table {
    struct superslab_group *groups_end;
    size_t frontier;      /* slices claimed or skipped so far */
    size_t count;         /* superslabs touched by the frontier */
    size_t claimed_count; /* that have slices of ours; relaxed readers */
    size_t released_count;
    size_t aligned_next; /* where the next search for an aligned run goes on */
    size_t claimed_slices;
    size_t free_slices;
    size_t dirty_free_slices;
    size_t dirty_free_noted; /* dirty free slices when freed_much last grew, or the least since */
    uint32_t freed_much;     /* times that FREED_MUCH_SLICES more became free; relaxed readers */
    size_t taken_most;       /* most slices in use since memory last went back; relaxed readers */
    size_t split_count;      /* superslabs that are split; under REGION, relaxed readers */
};
HAK_HIDDEN extern struct superslab_table hak__superslabs;

HAK_INLINE struct superslab_group *superslab_group(size_t number)
{
    return hak__superslabs.groups_end - 1 - number;
}

HAK_INLINE struct superslab *superslab_at(size_t index)
{
    return &superslab_group(index / SUPERSLAB_GROUP)->superslabs[index % SUPERSLAB_GROUP];
}

/* Another value than before: much memory has become free and dirty since. A hint. */
HAK_INLINE uint32_t superslab_freed_much(void)
{
    return atomic_load_relaxed(&hak__superslabs.freed_much);
}

/* A hint, too: whales become free elsewhere. */
HAK_INLINE void superslab_note_freed_much(void)
{
    atomic_add_relaxed(&hak__superslabs.freed_much, 1u);
}

/* The slice's addresses are ours: free or in use. Any thread, for a slice below the limit. What it
 * says of a slice in use stays true. */
HAK_INLINE bool superslab_has_slice(size_t slice)
{
    const struct superslab *superslab = superslab_at(slice / SUPERSLAB_SLICES);
    return atomic_load_relaxed(&superslab->state) == SUPERSLAB_CLAIMED &&
           slice % SUPERSLAB_SLICES < atomic_load_relaxed(&superslab->claimed);
}

/* Of its slices the first `claimed` are ours. Under GROWTH and REGION. */
HAK_HIDDEN void hak__superslab_set_state(size_t index, enum superslab_state state,
                                         uint32_t claimed);

/* Marks slices of one superslab free and keeps the sums; under REGION. */
HAK_HIDDEN void hak__superslab_mark_free(size_t index, uint64_t mask);
/* The opposite. */
HAK_HIDDEN void hak__superslab_mark_taken(size_t index, uint64_t mask);

#endif
