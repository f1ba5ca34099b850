/* huge.h: which memory gets huge pages.
 *
 *   1. A new superslab gets small pages, even if the machine prefers huge ones. A new whale gets
 *      what the machine prefers.
 *   2. If the heap has knobs.huge_threshold bytes, a new block is judged by an earlier one of its
 *      kind: the newest but one that has small pages. If three quarters of that are resident, the
 *      new block gets huge pages.
 *   3. Each block that is seen filled lets the memory of its kind double. Beyond that, blocks get
 *      small pages and are looked at in turn. A block that is not filled ends huge pages for its
 *      kind, until another one is seen filled.
 *   4. A superslab of which a part is purged has small pages until all of it is free
 *      (region/superslab_pages.c).
 *   5. If one huge page takes the kernel more than a millisecond, hakmem asks for none during 100
 *      ms. The pause doubles each time, up to a minute.
 *
 * Why: a huge page takes the kernel about an eighth of the time of the 512 small pages it replaces.
 * But all of it becomes resident at the first touch, so a sparse table would take its whole size.
 * And some virtual machines need 5 ms for one huge page (docs/decisions/0036).
 *
 * Bound: a program that stops filling its memory needs at most twice the most that it has filled.
 *
 * Locks: HUGE, which these functions take themselves. Any thread may call them; for
 * hak__huge_ask_untouched it must hold GROWTH.
 */
#ifndef HAK_REGION_HUGE_H
#define HAK_REGION_HUGE_H

#include "base/atomics.h"
#include "core/limits.h"

/* A block is a superslab or a whale. Programs fill each kind to another degree. */
enum huge_kind {
    HUGE_SLABS,         /* superslabs claimed for a slab of one slice */
    HUGE_SPANS,         /* superslabs claimed for a run of several slices */
    HUGE_WHALES,        /* whales: blocks above 2 MiB */
    HUGE_ZEROED_WHALES, /* whales of calloc */
    HUGE_KINDS
};

/* True if a new block of `size` bytes should get huge pages, by rules 2 and 3. `live`: bytes of all
 * superslabs, or of all whales, before it. `heap`: bytes of the whole heap. */
HAK_HIDDEN bool hak__huge_is_earned(enum huge_kind kind, size_t size, size_t live, size_t heap);

/* Watches a new block that has small pages: later blocks of its kind are judged by it. `live` as
 * above. It bounds what the block can prove, because memory newer than the block may be empty. */
HAK_HIDDEN void hak__huge_watch(enum huge_kind kind, void *address, size_t size, size_t live);

/* Called before a block is freed or resized. If it is watched, looks at it for the last time and
 * returns true. */
HAK_HIDDEN bool hak__huge_unwatch(const void *address);

/* Called before a block of `size` bytes grows; `live` includes it. Programs usually fill a block
 * before they grow it, so rule 3 counts it as filled if blocks of the kind were seen filled. */
HAK_HIDDEN void hak__huge_note_growth(enum huge_kind kind, size_t size, size_t live);

/* Asks for huge pages for a mapping of `size` bytes whose first `used` bytes are not new. Makes the
 * first new huge page resident and times it, at most once in a tick of the coarse clock. 0: the
 * mapping has huge pages. -errno: it has small ones, except perhaps for the timed page. The
 * contents stay. */
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

/* True if the last huge page that was judged came quickly, or none was judged. */
HAK_HIDDEN bool hak__huge_is_quick(void);

/* The longest time of a quick huge page, in microseconds. UINT64_MAX: none is timed. Not an option;
 * tests change it. */
HAK_HIDDEN extern uint64_t hak__huge_page_us_max;

#endif
