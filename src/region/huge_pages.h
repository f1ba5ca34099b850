/* SPDX-License-Identifier: MIT */
/* huge_pages.h: which memory gets huge pages.
 *
 *   1. A new superslab gets small pages, even if the machine prefers huge ones. A new huge block
 *      gets what the machine prefers.
 *   2. If the heap has at least knobs.huge_threshold bytes (for a superslab in a fork's child:
 *      without those of the parent), a new block is judged by an earlier one of its kind and part:
 *      of those with small pages, the last but one (or the only one), or the last superslab if it
 *      is filled. A block counts as filled if three quarters of it are resident, or 89 % of a
 *      superslab of long spans. The new block then gets huge pages, as far as rule 3 allows.
 *   3. Each block that is seen filled lets the memory of its kind double with huge pages. New
 *      blocks beyond that get small pages, and later blocks are judged by them. After a look at a
 *      block that is not filled, its kind gets no huge pages until another block is seen filled.
 *   4. A superslab of which a part is purged has small pages until all of it is free and purged
 *      (region/superslab_pages.c).
 *   5. If a huge page takes the kernel more than a millisecond, hakmem asks for none for 100 ms.
 *      For superslabs, only three such pages in a row count. The pause doubles each time, up to a
 *      minute.
 *
 * Why: a huge page takes the kernel about an eighth of the time of the 512 small pages it replaces.
 * But all of it becomes resident at the first touch, so a sparse table would take its whole size.
 * And some virtual machines need 5 ms for one huge page (docs/decisions/0036).
 *
 * Bound: a program that stops filling its memory needs at most twice as much memory as it had
 * filled.
 *
 * Locks: HUGE_PAGES, which these functions take themselves. Any thread may call them. The caller of
 * hak__huge_pages_ask_untouched must hold GROWTH.
 */
#ifndef HAK_REGION_HUGE_PAGES_H
#define HAK_REGION_HUGE_PAGES_H

#include "base/atomics.h"
#include "core/limits.h"

/* A block is a superslab or a huge block. Programs fill some kinds more than others, and each part
 * of the region claims superslabs of its own (superslab.h): evidence is that of one kind of block,
 * of huge blocks or in one part. */
enum huge_pages_kind {
    HUGE_PAGES_SLABS, /* superslabs claimed for a slab of one slice */
    HUGE_PAGES_RUNS,  /* superslabs claimed for a run of 2 to SLAB_SLICES_MAX slices */
    HUGE_SPANS,       /* superslabs claimed for a longer run, which no slab is */
    HUGE_PAGES_KINDS
};

/* A watched block: it has small pages, and later blocks are judged by it. */
struct huge_pages_sample {
    const void *address;    /* NULL: the block was freed, or there is no sample */
    size_t size;            /* bytes; 0: there is no sample */
    size_t live;            /* `live` of hak__huge_pages_watch, and the block itself */
    uint32_t dense_percent; /* it is dense if so much of it is resident */
    bool is_superslab;      /* a huge block may be filled long after the next one was allocated */
    bool dense;             /* it was dense at the last look */
    bool counted;           /* it is part of `filled` */
};

struct huge_pages_evidence {
    struct huge_pages_sample
        newest[2]; /* the last two blocks with small pages, the older one first */
    size_t filled; /* bytes that count as filled, by rule 3 */
};

/* True if a new block of `size` bytes should get huge pages, by rules 2 and 3. `live`: bytes of all
 * superslabs of the part, or of all huge blocks, without the new block. `heap`: bytes of the
 * whole heap, rule 2. */
HAK_HIDDEN bool hak__huge_pages_are_earned(struct huge_pages_evidence *evidence, size_t size,
                                           size_t live, size_t heap);

/* Watches a new block that has small pages: later blocks are judged by it. `live` as above. It
 * bounds what the block can prove, because memory newer than the block may be empty. */
HAK_HIDDEN void hak__huge_pages_watch(struct huge_pages_evidence *evidence,
                                      struct huge_pages_sample block);

/* Called before a block is freed or resized. If it is watched by one of these, looks at it for the
 * last time and returns true. */
HAK_HIDDEN bool hak__huge_pages_unwatch(struct huge_pages_evidence *evidence, size_t count,
                                        const void *address);

/* Called before a block of `size` bytes grows; `live` includes it. Programs usually fill a block
 * before they grow it, so rule 3 counts it as filled if such blocks were seen filled. */
HAK_HIDDEN void hak__huge_pages_note_growth(struct huge_pages_evidence *evidence, size_t size,
                                            size_t live);

/* Asks for huge pages for a mapping of `size` bytes whose first `used` bytes are not new. If the
 * new bytes have two huge pages or more, makes the first one resident and times it, at most once in
 * a tick of the coarse clock. 0: the mapping has huge pages. -errno: it has small ones, except
 * perhaps for the timed page. The contents stay. */
HAK_HIDDEN int hak__huge_pages_ask(void *address, size_t size, size_t used);

/* The same for new superslabs, without a touch. The program's first touch is timed instead: from
 * the end of the calling thread's slow operation to the end of its next one. Under GROWTH. */
HAK_HIDDEN int hak__huge_pages_ask_untouched(void *address, size_t size);

/* The thread whose first touch is timed, as the address of its hak__lock_own.held; NULL: none. */
HAK_HIDDEN extern const uint16_t *hak__huge_pages_watcher;

HAK_INLINE bool huge_pages_are_watched(void)
{
    return atomic_load_relaxed(&hak__huge_pages_watcher) != NULL;
}

/* Called at the end of each slow operation while a thread is timed. The thread's first call notes
 * the time. If its second call comes more than a millisecond later, the page was slow. Only three
 * slow pages in a row begin a pause, because the thread may also have been busy or preempted. */
HAK_HIDDEN HAK_COLD void hak__huge_pages_look(void);

/* True if the last huge page that was judged came quickly, or none was judged. */
HAK_HIDDEN bool hak__huge_pages_are_quick(void);

/* The longest time of a quick huge page, in microseconds. UINT64_MAX: none is timed. Not an option;
 * tests change it. */
HAK_HIDDEN extern uint64_t hak__huge_page_us_max;

#endif
