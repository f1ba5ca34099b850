/* huge.h: which memory gets huge pages.
 *
 *   1. A new superslab has small pages, also where the machine prefers huge ones; a new large block
 *      has what the machine prefers.
 *   2. Once the heap has knobs.huge_threshold bytes, new memory gets huge pages if the newest but
 *      one of its kind without them is three quarters resident.
 *   3. Each such look lets the memory of the kind double before the next; one that is not filled
 *      ends huge pages.
 *   4. A superslab of which a part is purged has small pages until all of it is free
 *      (region/superslab_pages.c).
 *   5. If a huge page takes the kernel more than a millisecond, there are none for a tenth of a
 *      second; twice as long each time, up to a minute.
 *
 * Why: a huge page takes the kernel a seventh of the time of the 512 small ones it stands for. But
 * all of it is resident at the first touch, so a sparse table would take its whole size. And some
 * virtual machines take 5 ms for one (docs/decisions/0036).
 *
 * A program that stops filling its memory needs at most twice the most that it has filled. Any
 * thread.
 */
#ifndef HAK_REGION_HUGE_H
#define HAK_REGION_HUGE_H

#include "base/atomics.h"
#include "core/limits.h"

/* Programs fill these to different degrees. */
enum huge_kind {
    HUGE_SLABS,         /* superslabs claimed for a slab of one slice */
    HUGE_SPANS,         /* superslabs claimed for more slices at once */
    HUGE_WHALES,        /* blocks above 2 MiB */
    HUGE_ZEROED_WHALES, /* the same, by calloc */
    HUGE_KINDS
};

/* A new block of `size` bytes gets huge pages by rules 2 and 3. `live`: bytes of superslabs, or of
 * large blocks, that there are already; `heap`: bytes of the whole heap. */
HAK_HIDDEN bool hak__huge_is_earned(enum huge_kind kind, size_t size, size_t live, size_t heap);

/* A new block has not got huge pages: later ones are judged by it. `live`: as above; what came
 * since may not be filled. */
HAK_HIDDEN void hak__huge_watch(enum huge_kind kind, void *address, size_t size, size_t live);

/* A block is about to be freed or resized: looks at it for the last time, if it is watched. False:
 * it is not. */
HAK_HIDDEN bool hak__huge_unwatch(const void *address);

/* A block of `size` bytes, which `live` includes, is about to grow. Such blocks are usually full:
 * for rule 3 it is, if there is evidence of others. */
HAK_HIDDEN void hak__huge_note_growth(enum huge_kind kind, size_t size, size_t live);

/* Asks for huge pages for a new mapping, or a grown one whose first `used` bytes are not new. The
 * first new huge page is made resident, and timed. 0: it has them, else it has small ones, but for
 * that first page. Contents stay. */
HAK_HIDDEN int hak__huge_ask(void *address, size_t size, size_t used);

/* The same for a new superslab, without a touch. The calling thread's next slow operation but one
 * says how long the program's first touch took. Under GROWTH. */
HAK_HIDDEN int hak__huge_ask_untouched(void *address);

/* Whose touch is waited for, by the address of the thread's hak__lock_held; NULL: nobody's. */
HAK_HIDDEN extern const uint32_t *hak__huge_watcher;

HAK_INLINE bool huge_is_watched(void)
{
    return atomic_load_relaxed(&hak__huge_watcher) != NULL;
}

/* At the end of each slow operation: the page has come quickly if it did within a millisecond.
 * Three slow ones in a row begin a pause: a thread may also have been busy or preempted. */
HAK_HIDDEN HAK_COLD void hak__huge_look(void);

/* The last huge page came quickly. */
HAK_HIDDEN bool hak__huge_is_quick(void);

/* Microseconds that are too long for one; UINT64_MAX: none is timed. No option: tests change it. */
HAK_HIDDEN extern uint64_t hak__huge_page_us_max;

#endif
