/* SPDX-License-Identifier: MIT */
/* superslab.h: hands out and takes back slices; claims, purges and releases superslabs.
 *
 * Each superslab has three maps with one bit for each slice:
 *   free    the slice may be handed out: it is claimed, and nobody owns it
 *   dirty   the slice may hold anything but zeroes, or have resident pages of its own. Slices in
 *           use are dirty. Clean ones of a superslab with huge pages are resident with the others.
 *   aged    the slice was free and dirty at the last purge pass, and has not been used since
 *
 * Invariant: aged is a subset of free & dirty.
 *
 * A request gets the lowest run of free dirty slices that fits, or else the lowest run of free
 * ones; an aligned run may be a higher one. Dirty slices go out first because a resident page costs
 * nothing, and the first touch of any other page costs a microsecond (docs/design/region.md).
 *
 * Parts: the superslabs belong to parts, each with its own index, sums and REGION lock, so that
 * many processors do not share them. The first PART_ARENAS_LONE arenas have part 0, and each
 * PART_ARENAS further ones another. A part gets addresses in groups of superslabs. A request gets
 * free slices of its arena's part, else dirty ones of another part of its memory node (numa.h),
 * else new memory, else what any part has. The secure form has a part for each node.
 *
 * Locks: REGION guards every map, state and sum of its part; nobody holds two of these locks.
 * GROWTH serialises claims, releases and the making of parts, and is taken before REGION. PURGE
 * guards a purge pass by ticks. Callers hold at most an arena's lock.
 */
#ifndef HAK_REGION_SUPERSLAB_H
#define HAK_REGION_SUPERSLAB_H

#include "base/atomics.h"
#include "core/limits.h"
#include "core/lock.h"
#include "region/huge_pages.h"
#include "region/superslab_index.h"

enum superslab_state {
    SUPERSLAB_NEW = 0,  /* beyond the frontier, or skipped */
    SUPERSLAB_CLAIMED,  /* its first `claimed` slices are mapped by hakmem */
    SUPERSLAB_RELEASED, /* unmapped again; may be claimed once more */
    SUPERSLAB_LOST      /* released, and then another mapping took its addresses */
};

/* Which pages hakmem has asked for: HUGE sets `huge` of a superslab, SPLIT sets `split`. */
enum superslab_pages { SUPERSLAB_SMALL, SUPERSLAB_HUGE_PAGES, SUPERSLAB_SPLIT };

struct superslab {
    uint64_t free;
    uint64_t dirty;
    uint64_t aged;
    uint16_t state;     /* this and `claimed` are read relaxed without a lock */
    uint16_t claimed;   /* slices, from the first on */
    uint8_t huge_pages; /* 1: it may have huge pages */
    uint8_t split;      /* 1: it has small pages, because a part of its huge page was purged */
    uint16_t part;      /* written before the superslab is claimed; relaxed */
};

HAK_STATIC_ASSERT(sizeof(struct superslab) == 32, "two superslabs' maps are a cache line");

/* Superslabs of a group. Also the fan-out of the index, whose code shifts by 6 bits a level.
 * Doubled: searches compare twice the bytes at each level. Halved: large heaps need more
 * levels. */
#define SUPERSLAB_GROUP 64u

#define GROUP_SLICES ((size_t)SUPERSLAB_GROUP * SUPERSLAB_SLICES)

/* Adjacent superslabs and their part of the index (superslab_index.h). */
struct superslab_group {
    unsigned char index[INDEX_KINDS][SUPERSLAB_GROUP] __attribute__((aligned(HAK_CACHE_LINE)));
    unsigned char upper[INDEX_KINDS][SUPERSLAB_GROUP];
    size_t number; /* among the groups of its part, if that has a list of them */
    struct superslab superslabs[SUPERSLAB_GROUP] __attribute__((aligned(HAK_CACHE_LINE)));
};

#define SLICE_NONE SIZE_MAX

/* What a run of slices is for, which the rules of huge_pages.h ask. A filled slab: by rule 2. */
enum slices_for { FOR_SLAB, FOR_FILLED_SLAB, FOR_SPAN };

/* A run of slices that was handed out. */
struct slice_run {
    size_t slice; /* SLICE_NONE: no memory */
    bool zeroed;  /* every byte reads as zero, and no page of a slice is resident yet */
};

/* Called by the window at start, when its tables exist. `groups_end` is the end of the first group;
 * the other groups lie below that group. */
HAK_HIDDEN void hak__superslab_tables(struct superslab_group *groups_end);

/* Takes `count` (1 to SUPERSLAB_SLICES) adjacent slices of one superslab, of this part if it can.
 * SLICE_NONE: no memory, or refused. The number of the first one is a multiple of `alignment`
 * (slices, a power of two up to SUPERSLAB_SLICES). Claims more memory if no free run fits. The
 * owner words stay 0. Any thread; it holds no lock
 * but an arena's. */
HAK_HIDDEN struct slice_run hak__superslab_take(uint32_t part, uint32_t count, uint32_t alignment,
                                                enum slices_for use);

/* Gives back slices of one superslab, which are then free and dirty. The caller has set their owner
 * words to 0, and nobody uses the slices. Any thread. */
HAK_HIDDEN void hak__superslab_give(size_t slice, uint32_t count);
/* The same for slices that are zero and have no memory. */
HAK_HIDDEN void hak__superslab_give_clean(size_t slice, uint32_t count);

/* Takes exactly these slices, for a span that grows in place. False: they are not all free, or do
 * not lie in the superslab of the slice before them. Any thread. */
HAK_HIDDEN bool hak__superslab_take_exact(size_t slice, uint32_t count);

/* region/superslab_run.c: takes `superslabs` adjacent whole superslabs, for a huge block when
 * the kernel allows no further mapping. Slow: it looks at every superslab. The owner words stay 0.
 */
HAK_HIDDEN struct slice_run hak__superslab_take_run(size_t superslabs);
HAK_HIDDEN void hak__superslab_give_run(size_t slice, size_t superslabs);
/* The run of slices to look for. */
struct superslab_wish {
    struct superslab_part *part;
    uint32_t count;     /* slices */
    uint32_t alignment; /* slices, a power of two */
    enum slices_for use;
    bool dirty_only; /* all of them are dirty */
    size_t run;      /* whole superslabs side by side, instead; 0: a run of slices */
};

/* Maps a released superslab of the node again (of any: NODE_ANY) for the wish. False: there is
 * none, an error, or refused. Under GROWTH. */
#define NODE_ANY UINT32_MAX
HAK_HIDDEN bool hak__superslab_reclaim(uint32_t node, const struct superslab_wish *wish);
/* Maps slices at the part's frontier, enough for the wish; before a run of superslabs also the rest
 * of the superslab there, so that they continue its mapping. False: no memory. Under GROWTH. */
HAK_HIDDEN bool hak__superslab_advance(struct superslab_part *part,
                                       const struct superslab_wish *wish);
/* Chooses pages for the newly claimed slices [first, end), and makes them free. Returns the first
 * one that is not; those from there on are unmapped again: refused. Under GROWTH. */
HAK_HIDDEN size_t hak__superslab_publish(size_t first, size_t end,
                                         const struct superslab_wish *wish);

/* REGION may be stuck: its holder may be stopped by a signal (core/lock.h). Then nobody gets slices
 * (hak__superslab_lock refuses, as beside a fork), and slices that become free are put on a
 * lock-free stack. They are free after the next settle.
 *
 * Takes a part's REGION for an operation that needs slices. False: refused. */
HAK_HIDDEN bool hak__superslab_lock(struct lock *lock);
/* Lets the next settle mark slices of one superslab free. Nobody uses them. Any thread. */
HAK_HIDDEN void hak__superslab_give_late(size_t index, uint64_t mask);
/* Marks the waiting slices free, if REGION can be had. The caller is inside the gate. */
HAK_HIDDEN void hak__superslab_settle(void);
/* True: there is something to settle. A hint. */
HAK_HIDDEN bool hak__superslab_waits(void);

/* Bytes of claimed slices; of free dirty ones; of free ones: relaxed reads, no lock. The last two
 * read a line of each part, which others write. */
HAK_HIDDEN size_t hak__superslab_bytes_claimed(void);
HAK_HIDDEN size_t hak__superslab_bytes_dirty(void);
HAK_HIDDEN size_t hak__superslab_bytes_free(void);
/* Claimed bytes without what a fork's child has from its parent. */
HAK_HIDDEN size_t hak__superslab_bytes_grown(void);
/* Bytes of claimed slices without the free clean ones. A hint as hak__superslab_taken. */
HAK_HIDDEN size_t hak__superslab_bytes_touched(void);
/* superslab_has_grown is false until they have grown by so many bytes. Any thread. */
HAK_HIDDEN void hak__superslab_set_growth(size_t bytes);

/* In fork's child, before it has two threads: memory claimed so far is shared with the parent, and
 * is no part of the heap that rule 2 of huge_pages.h asks for. A small child gets small pages. Its
 * arenas have parts as if they were the first. */
HAK_HIDDEN void hak__superslab_inherit(void);

/* Tells how many bytes live huge blocks have, for the peak below. Under HUGE. */
HAK_HIDDEN void hak__superslab_note_huge(size_t bytes);
/* After slices were taken: notes it, and a new peak. Any thread. */
HAK_HIDDEN void hak__superslab_note_peak(void);
/* So many more slices have become free: notes what is in use now, and was before that, for what
 * follows. Any thread. */
HAK_HIDDEN void hak__superslab_note_fall(size_t slices);
/* The bytes of free memory that the program is expected to use soon: as many as those in use rose
 * again after a fall, in this period and the one before, and RESERVE_BYTES. A hint. */
HAK_HIDDEN size_t hak__superslab_expected(void);
/* True: the bytes in use have fallen by BURST_BYTES more than that, in these periods. A hint. */
HAK_HIDDEN bool hak__superslab_has_fallen(void);
/* Bytes of free memory to keep. After a burst (hak__superslab_has_fallen), what is expected. Else
 * what brings the bytes in use back to their most, and what was missed, up to half of that most. A
 * hint. */
HAK_HIDDEN size_t hak__superslab_wanted(void);
/* Notes that so many bytes that counted as in use were never touched. */
HAK_HIDDEN void hak__superslab_note_sparse(size_t bytes);
/* Another period begins for these two; they remember the one before, unless `anew`. Any thread. */
HAK_HIDDEN void hak__superslab_turn_use(bool anew);
/* The most bytes that were in use at the same time, since start or the last reset: slices of slabs
 * and spans, those that arenas keep included, and live huge blocks. Any thread. */
HAK_HIDDEN size_t hak__superslab_peak_bytes(void);
/* Milliseconds since then. UINT64_MAX: unknown, because no clock can be read without a system call,
 * which a new peak is not worth. Any thread. */
HAK_HIDDEN uint64_t hak__superslab_peak_ago_ms(void);
HAK_HIDDEN void hak__superslab_reset_peak(void);

/* Would taking `count` more slices make more bytes be in use than in these periods? A hint. */
HAK_HIDDEN bool hak__superslab_would_grow(uint32_t count);

/* region/purge.c: purges all free dirty slices. It stops early if fork turns this thread away.
 * Returns the bytes purged. The caller holds no lock. */
HAK_HIDDEN size_t hak__superslab_purge(void);
/* Does a part of a pass over aged slices: goes on where the last part stopped. If no pass is under
 * way, or that one ends, it begins one if `begin`, over all free dirty slices if `everything`.
 * Stops as soon as it has purged `bytes`; its last step may purge up to a superslab more. Each
 * search for the next slices to purge counts as one purged slice, because it takes time. Does
 * nothing if another thread purges. Returns the bytes purged. Any thread. */
HAK_HIDDEN size_t hak__superslab_purge_part(bool begin, bool everything, size_t bytes);
/* True if such a pass is under way. A hint. */
HAK_HIDDEN bool hak__superslab_purge_is_under_way(void);
/* Purges free dirty slices, those of wholly free superslabs first, until at most `kept` bytes are
 * dirty, or `most` are purged. Stops early if fork turns this thread away, another thread purges,
 * or the kernel refuses. Returns the bytes that are not dirty any more. The caller holds no lock.
 */
HAK_HIDDEN size_t hak__superslab_purge_beyond(size_t kept, size_t most);
/* Unmaps all wholly free superslabs: for a trim, and when address space or memory ran out. It stops
 * early as hak__superslab_purge does. Returns the bytes unmapped. The caller holds no lock. */
HAK_HIDDEN size_t hak__superslab_release(void);

/* region/superslab_pages.c: chooses huge or small pages for newly claimed slices [first, first +
 * claimed), part of a superslab or whole ones. Under GROWTH. */
HAK_HIDDEN void hak__superslab_choose_pages(size_t first, size_t claimed,
                                            const struct superslab_wish *wish);
/* Called when the first slices of a free superslab with huge pages were taken. The superslab keeps
 * its huge pages if a new one would get them for the wish. If not, the program fills less than
 * before, or is a small child of fork. The caller does not hold REGION. */
HAK_HIDDEN HAK_COLD void hak__superslab_begin(size_t slice, const struct superslab_wish *wish);
/* Notes which pages a superslab has; an unmapped one is SMALL. Under REGION. */
HAK_HIDDEN void hak__superslab_set_pages(size_t index, enum superslab_pages pages);
/* Called before a part of the superslab is purged. The caller has taken that part out of the free
 * map. Asks for small pages from now on; resident pages stay. False: the superslab keeps huge
 * pages, because the kernel refused or too many superslabs are split. The purged slices must then
 * stay dirty. */
HAK_HIDDEN bool hak__superslab_split(size_t index);
/* Called when the caller has taken and purged all of a split superslab. Lets it have huge pages
 * again. */
HAK_HIDDEN void hak__superslab_join(size_t index);

/* Used by the files of region/. */
HAK_HIDDEN extern struct lock hak__growth_lock;
HAK_HIDDEN extern struct lock hak__purge_lock;

struct superslab_part {
    /* written whenever slices change hands */
    struct lock lock;     /* REGION */
    uint32_t index_level; /* see superslab_index.c */
    size_t free_slices;   /* this and the next: relaxed readers */
    size_t dirty_free_slices;
    size_t dirty_free_noted; /* dirty free slices when freed_much last grew, or the least since */
    size_t count;     /* its superslabs up to the highest one claimed, by the index's numbers */
    uint32_t *groups; /* its groups, rising. NULL: all groups. Written under GROWTH and REGION */
    uint32_t groups_count;
    uint16_t number; /* of the part */
    uint16_t node;
    /* the sums of all parts know of so many */
    size_t free_told __attribute__((aligned(HAK_CACHE_LINE)));
    size_t dirty_free_told;
    uint64_t random;         /* secure form */
    uint32_t arenas;         /* that have it; under ARENAS */
    size_t aligned_next;     /* superslab at which step 3 of superslab_find_aligned goes on */
    size_t frontier;         /* slice at which it claims next; under GROWTH */
    size_t claimed_slices;   /* this and the next: under GROWTH; this: relaxed readers */
    size_t inherited_slices; /* in fork's child: claimed at the fork */
    bool huge_pages;         /* of the last claim; under GROWTH */
    struct huge_pages_evidence evidence; /* of its superslabs, by rule 3 of huge_pages.h */
};

/* Arenas that share a part. Half: twice the parts, each of which has part of a superslab to spare.
 * Twice: their lock is saturated by half as many processors (lab/README.md). */
#define PART_ARENAS (HAK_TINY_LIMITS || HAK_TSAN ? 1u : 4u)
/* Arenas of part 0. Twice: 16 processors share a lock. Half: a machine of 8 processors has part of
 * a second superslab to spare. */
#define PART_ARENAS_LONE (HAK_TINY_LIMITS || HAK_TSAN ? 1u : 8u)
/* Half: 8 processors of 256 share a lock. Twice: 512 bytes more. */
#define PARTS_MAX 64u
/* Slices of a part that the sums of all parts need not know of. Twice: the sums are wrong by twice
 * as much. Half: parts write to them twice as often. */
#define PART_UNTOLD (HAK_TINY_LIMITS ? 0u : 16u)

HAK_HIDDEN extern struct superslab_part *hak__superslab_parts[PARTS_MAX];
HAK_HIDDEN extern struct superslab_part hak__superslab_first; /* part 0 */

/* The part for a new arena whose threads run on the memory node `node`. Makes one if it is time for
 * it and there is memory. Under ARENAS. */
HAK_HIDDEN uint32_t hak__superslab_part_for(uint32_t node);
/* A part of the node, for memory of no arena; 0 if it has none. Any thread. */
HAK_HIDDEN uint32_t hak__superslab_part_near(uint32_t node);
/* Bytes of the part's own mapping, for its group list, which begins at *place. 0: it has none. */
HAK_HIDDEN size_t hak__superslab_part_bytes(uint32_t number, uintptr_t *place);
/* If there are several parts: gives the part the next group that none has. False: no memory. Under
 * GROWTH. */
HAK_HIDDEN bool hak__superslab_add_group(struct superslab_part *part);
/* If there are several parts: the end of the part's groups, in slices. Under GROWTH. */
HAK_HIDDEN size_t hak__superslab_end(const struct superslab_part *part);

/* How the bytes in use went up and down during a period of 8 purge passes (purge.c). Threads that
 * write at the same time may lose a change; relaxed. */
struct superslab_use {
    size_t most;
    size_t least;  /* growth beyond what was in use before is added to it */
    size_t reused; /* the most by which they were above the least, of this half or the one before */
    size_t missed; /* bytes that went back to stay within the most, and were mapped again */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): words often written have other lines */
struct superslab_table {
    /* Read by every slow path, and seldom written. The rest is written when a part has grown, or
     * has told the others what it has. */
    struct superslab_group *groups_end;
    uint32_t parts_count;  /* written under GROWTH */
    uint32_t freed_much;   /* see superslab_freed_much; relaxed */
    uint32_t grown;        /* see superslab_has_grown; relaxed */
    uint32_t groups_count; /* groups that parts have, if there are several; written under GROWTH */
    uint32_t limited;      /* secure form: addresses were when it last claimed some; relaxed */
    size_t split_count;    /* superslabs that are split; relaxed */
    size_t borders_count;  /* new superslabs of other pages than the part's last one; relaxed */
    /* written under GROWTH; relaxed readers */
    size_t claimed_slices __attribute__((aligned(HAK_CACHE_LINE)));
    size_t claimed_count;    /* superslabs in state CLAIMED */
    size_t released_count;   /* superslabs in state RELEASED */
    size_t holes_count;      /* runs of superslabs in state RELEASED or LOST, without gaps */
    size_t inherited_slices; /* in fork's child: claimed at the fork */
    size_t count;            /* superslabs up to and including the highest one claimed so far */
    /* of all parts, if there are several; else unused; relaxed */
    size_t free_slices;
    size_t dirty_free_slices;
    size_t growth_due;           /* touched bytes at which `grown` is set; relaxed */
    size_t huge_bytes;           /* of live huge blocks (large/huge_registry.c); relaxed */
    size_t peak_bytes;           /* the most bytes in slices in use and live huge blocks; relaxed */
    uint64_t peak_ms;            /* when that was; 0: unknown; relaxed */
    struct superslab_use use[2]; /* of the present period, and of the one before */
};
HAK_HIDDEN extern struct superslab_table hak__superslabs;

/* Groups lie in falling order: group 0 has the highest address. */
HAK_INLINE struct superslab_group *superslab_group(size_t number)
{
    return hak__superslabs.groups_end - 1 - number;
}

HAK_INLINE struct superslab *superslab_at(size_t index)
{
    return &superslab_group(index / SUPERSLAB_GROUP)->superslabs[index % SUPERSLAB_GROUP];
}

/* The number of parts. acquire: pairs with the release in part_make. Any thread. */
HAK_INLINE uint32_t superslab_parts(void)
{
    return atomic_load_acquire(&hak__superslabs.parts_count);
}

/* The part of a superslab. Any thread. */
HAK_INLINE struct superslab_part *superslab_part_of(size_t index)
{
    return hak__superslab_parts[atomic_load_relaxed(&superslab_at(index)->part)];
}

/* The part's next superslab; SIZE_MAX: its last group ends here. Under its REGION. */
HAK_INLINE size_t superslab_next(const struct superslab_part *part, size_t index)
{
    if (part->groups == NULL || (index + 1) % SUPERSLAB_GROUP != 0) {
        return index + 1;
    }
    size_t number = superslab_group(index / SUPERSLAB_GROUP)->number + 1;
    return number < part->groups_count ? (size_t)part->groups[number] * SUPERSLAB_GROUP : SIZE_MAX;
}

/* A number that grows when SLABS_KEPT_SLICES more slices are free and dirty, and when a huge block
 * of at least that size enters the huge cache. Any thread. A hint. */
HAK_INLINE uint32_t superslab_freed_much(void)
{
    return atomic_load_relaxed(&hak__superslabs.freed_much);
}

/* Notes that as many bytes of huge blocks were mapped as had just gone back. Any thread. */
HAK_INLINE void superslab_note_missed(size_t bytes)
{
    atomic_add_relaxed(&hak__superslabs.use[0].missed, bytes);
}

/* Makes that number grow. Any thread. */
HAK_INLINE void superslab_note_freed_much(void)
{
    atomic_add_relaxed(&hak__superslabs.freed_much, 1u);
}

/* True: as much is touched as hak__superslab_set_growth asked for. Any thread. A hint. */
HAK_INLINE bool superslab_has_grown(void)
{
    return atomic_load_relaxed(&hak__superslabs.grown) != 0;
}

/* True if hakmem has mapped the slice, free or in use. `slice` is below the limit. Any thread. For
 * a slice in use the answer stays true; for a free one it is a hint. */
HAK_INLINE bool superslab_has_slice(size_t slice)
{
    const struct superslab *superslab = superslab_at(slice / SUPERSLAB_SLICES);
    return atomic_load_relaxed(&superslab->state) == SUPERSLAB_CLAIMED &&
           slice % SUPERSLAB_SLICES < atomic_load_relaxed(&superslab->claimed);
}

/* Changes the part's sums of free slices, which wrap. False: the sums of all parts are what they
 * were. Under its REGION. */
HAK_HIDDEN bool hak__superslab_add_free(struct superslab_part *part, size_t free, size_t dirty);
/* Slices that are not free, and free dirty ones. Hints, wrong by up to PART_UNTOLD slices a part if
 * there are several. Any thread. */
HAK_HIDDEN size_t hak__superslab_taken(void);
HAK_HIDDEN size_t hak__superslab_dirty(void);
/* Copies the superslab's maps. False: a stopped thread has the lock. Any thread. */
HAK_HIDDEN bool hak__superslab_copy(size_t index, struct superslab *copy);
/* Sets the state and the number of claimed slices. Under GROWTH and REGION. */
HAK_HIDDEN void hak__superslab_set_state(size_t index, enum superslab_state state,
                                         uint32_t claimed);

/* Marks slices of one superslab free, and updates the sums and the index. Under REGION. */
HAK_HIDDEN void hak__superslab_mark_free(size_t index, uint64_t mask);
/* Marks them taken: no longer free, nor aged. False: as above. Under REGION. */
HAK_HIDDEN bool hak__superslab_mark_taken(size_t index, uint64_t mask);

#endif
