/* SPDX-License-Identifier: MIT */
/* huge_pages.h: which memory gets huge pages.
 *
 *   1. A new superslab has small pages, even if the machine prefers huge ones, and a new huge block
 *      has what the machine prefers, until the heap has knobs.huge_threshold bytes (in the secure
 *      form 16 times that; for a superslab in a fork's child: without those of the parent).
 *   2. Then a superslab that is claimed for a slab of objects up to 1,024 bytes gets
 *      huge pages if the arena has handed out half of its slabs (slab/slab.c).
 *   3. Other memory gets huge pages if memory of its kind was seen filled. hakmem watches one new
 *      block with small pages. At the next allocation of that kind, and if need be at the one after
 *      that, it asks the kernel how much of the block is resident. Three quarters are enough, or
 *      92 % of a superslab that was claimed for a span. Then the memory of this
 *      kind may double with huge pages. Otherwise no block gets them until one is seen filled.
 *   4. A huge page's slices are resident before anybody uses them. Unused ones go to slabs of rule
 *      2, and to other blocks only while rule 3 allows these huge pages.
 *   5. hakmem is the first to touch a huge page, and times the kernel. After a millisecond or more,
 *      32 MiB get small pages before the next try, and twice as much after each further slow page,
 *      up to 128 MiB.
 *   6. A superslab of which a part is purged has small pages until all of it is free and purged
 *      (region/superslab_pages.c).
 *
 * Why: a huge page takes the kernel a quarter of the time of the 512 small pages that it replaces,
 * and the processor finds it faster. But all of it becomes resident at the first touch, so a sparse
 * table would take its whole size. Objects of rule 2 need no look: malloc touches each page of
 * theirs. A huge page is slow if the host of a virtual machine has taken the memory back. Small
 * pages of such memory take as long together, but the kernel has other small pages first
 * (docs/decisions/0111).
 *
 * Bound: by rule 2, as much as the slabs' bytes that were handed out, which only heaps of a few MiB
 * come near to, and a superslab for each part of the region. By rule 3, twice what was filled.
 *
 * Locks: HUGE_PAGES, which these functions take themselves. Any thread may call them.
 */
#ifndef HAK_REGION_HUGE_PAGES_H
#define HAK_REGION_HUGE_PAGES_H

#include "base/atomics.h"
#include "core/limits.h"

/* What one kind of memory shows: superslabs of one part (superslab.h) for other memory than that of
 * rule 2, huge blocks of malloc, or huge blocks of calloc. */
struct huge_pages_evidence {
    const void *watched; /* a block with small pages; NULL: none */
    size_t size;         /* of that block, bytes */
    size_t live;         /* bytes of its kind when it was new, and itself */
    uint32_t percent;    /* it is filled if so much of it is resident */
    bool looked_at;
    size_t filled; /* bytes that count as filled, by rule 3; relaxed readers */
};

/* True if a new block of `size` bytes should get huge pages, by rule 3. `live`: bytes of its kind
 * without the new block. `heap`: bytes of the whole heap, rule 1. */
HAK_HIDDEN bool hak__huge_pages_are_earned(struct huge_pages_evidence *evidence, size_t size,
                                           size_t live, size_t heap);

/* Notes a new block that has small pages. It is watched if no other one is, and filled if `percent`
 * of it are resident. `live` as above. */
HAK_HIDDEN void hak__huge_pages_watch(struct huge_pages_evidence *evidence, const void *address,
                                      size_t size, size_t live, uint32_t percent);

/* Called before a block is freed or resized. If it is watched by one of these, looks at it for the
 * last time and returns true. */
HAK_HIDDEN bool hak__huge_pages_unwatch(struct huge_pages_evidence *evidence, size_t count,
                                        const void *address);

/* Called before a block of `size` bytes grows; `live` includes it. Programs usually fill a block
 * before they grow it, so it counts as filled if such blocks were seen filled. */
HAK_HIDDEN void hak__huge_pages_note_growth(struct huge_pages_evidence *evidence, size_t size,
                                            size_t live);

/* True: the heap is large enough for rules 2 and 3. */
HAK_HIDDEN bool hak__huge_pages_are_due(size_t heap);

/* Asks for huge pages for a mapping. If the kernel refuses, or rule 5, for small ones. 0 or -errno.
 * The contents stay. */
HAK_HIDDEN int hak__huge_pages_ask(void *address, size_t size);

/* Asks, and times the first of the huge pages if there are two or more in the new bytes, which are
 * those from `used` on. -errno: the mapping has small pages, but for one that was slow. */
HAK_HIDDEN int hak__huge_pages_try(void *address, size_t size, size_t used);

/* In the superslab with huge pages that was begun last; NULL: it has been timed. The thread that
 * begins it has locks then, and nobody should wait for a slow page. */
HAK_HIDDEN extern void *hak__huge_pages_begun;

HAK_INLINE bool huge_pages_are_begun(void)
{
    return atomic_load_relaxed(&hak__huge_pages_begun) != NULL;
}

/* Times it. Called at the end of slow operations. The caller holds no lock. */
HAK_HIDDEN HAK_COLD void hak__huge_pages_look(void);

/* A huge page is slow from so many microseconds on. Not an option; tests change it. */
HAK_HIDDEN extern uint64_t hak__huge_page_us_max;

#endif
