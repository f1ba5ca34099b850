/* SPDX-License-Identifier: MIT */
/* huge_ranges.h: the table of ranges of addresses that the huge cache keeps: by age, by size, and
 * by start and end.
 *
 * Entries have numbers, and stay where they are. Entry 0 is no range, so 0 means none. Each range
 * is in a list by age, in one of the lists by size, and in two chains of a hash table. Source:
 * lists by size with a map of those that are not empty are those of TLSF (M. Masmano, I. Ripoll, A.
 * Crespo, J. Real: ECRTS 2004).
 *
 * Locks: the caller holds HUGE. */
#ifndef HAK_LARGE_HUGE_RANGES_H
#define HAK_LARGE_HUGE_RANGES_H

#include "base/bits.h"
#include "large/huge.h"

/* Neighbours in a list. */
struct range_links {
    uint32_t before;
    uint32_t after;
};

struct huge_range {
    struct huge block;
    size_t resident;        /* bytes that the bound counts; less than the size if it is sparse */
    uint32_t freed_ms;      /* time of the free */
    struct range_links age; /* from the oldest to the youngest; entry 0 is both ends */
    struct range_links
        size;            /* in its list by size, the last added first; or the next unused entry */
    uint32_t next_start; /* in the chain of ranges whose start has the same hash */
    uint32_t next_end;   /* the same of ends */
    uint32_t chain_of_starts; /* the first of the chain of which this entry's number is the hash */
    uint32_t chain_of_ends;
};

struct range_table {
    struct huge_range *entries;
    size_t mapped;     /* bytes of the entries; 0: they are not mapped, but static */
    size_t count;      /* ranges; also read without the lock, relaxed */
    size_t size;       /* bytes of all ranges */
    size_t resident;   /* bytes of all ranges that the bound counts */
    size_t units;      /* the sum of range_units */
    uint32_t capacity; /* entries, a power of two */
    uint32_t used;     /* entries that were ever used */
    uint32_t unused;   /* the first of those that are not used any more */
};
HAK_HIDDEN extern struct range_table hak__ranges;

HAK_INLINE uintptr_t huge_end(struct huge block)
{
    return block.address + block.size;
}

/* The oldest range; 0: there is none. */
HAK_INLINE uint32_t ranges_oldest(void)
{
    return hak__ranges.entries[0].age.after;
}

/* Bytes of a range in whole huge pages, which can be joined. 0 for a sparse one: moving pages that
 * are not there gains nothing. */
HAK_INLINE size_t range_units(const struct huge_range *range)
{
    uintptr_t start = bits_align_up(range->block.address, HUGE_PAGE_SIZE);
    uintptr_t end = bits_align_down(huge_end(range->block), HUGE_PAGE_SIZE);
    return range->resident == range->block.size && start < end ? end - start : 0;
}

/* Makes room for `count` more ranges. Releases HUGE while it maps a table, and holds it again
 * when it returns. False: no memory. */
HAK_HIDDEN bool hak__ranges_reserve(uint32_t count);
/* Adds a range, for which there is room. It comes before `younger` in the list by age; 0: it is the
 * youngest. Only huge block, resident and freed_ms of `range` are read. */
HAK_HIDDEN void hak__ranges_add(struct huge_range range, uint32_t younger);
/* Takes a range out and returns it, with the links that it had. */
HAK_HIDDEN struct huge_range hak__ranges_remove(uint32_t index);
/* The range of the mapping `origin` that starts, or ends, at `address`. */
HAK_HIDDEN uint32_t hak__ranges_starting_at(uintptr_t address, uint64_t origin);
HAK_HIDDEN uint32_t hak__ranges_ending_at(uintptr_t address, uint64_t origin);

/* What a search is for. */
struct range_wish {
    size_t size;
    size_t alignment;
    bool want_zero;
};
/* True: the range is suitable and better than `best`, another suitable one; NULL: there is none
 * yet. */
typedef bool range_judge(const struct huge_range *range, const struct huge_range *best,
                         const struct range_wish *wish);
/* Goes through the lists by size, from that of `size` on to the larger ones, or to the smaller
 * ones, until one has a suitable range. Returns the best of those that it looks at in that list. */
HAK_HIDDEN uint32_t hak__ranges_search(size_t size, bool larger, range_judge *judge,
                                       const struct range_wish *wish);

#endif
