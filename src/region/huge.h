/* huge.h: asks the kernel for huge pages while it has them at hand.
 *
 * A huge page takes the kernel a seventh of the time of the 512 small ones it stands for, unless
 * room has to be made for it: by the guest, which moves other memory out of its way, or by the host
 * of a virtual machine that was given back what the guest did not use (free page reporting) and
 * faults it in anew in small pages: 5.2 ms instead of 0.09 measured, where 512 small pages take 0.7
 * (docs/decisions/0036). So the first one is timed. After one that took too long none are asked for
 * during a pause, twice as long each time, until one comes quickly.
 *
 * Of a whale, which may be hundreds of them, the first is made resident at once, which the program
 * was about to do. Of a superslab, which is one, the first touch is the program's, not malloc's
 * (0062): whoever asked looks at its next slow operations whether the page has come, and when:
 *
 *   asked, untouched -> touched by itself, in time: quick
 *                    -> touched by itself, later, most of its processor's time since the last look
 *                       the kernel's: slow
 *                    -> touched by another thread, or later as it was busy or slept, or not during
 *                       HUGE_LOOKS_MAX looks, or it ended: nothing is known, and the next one is
 *                       made resident as a whale's
 *
 * State: hints, relaxed: where two threads' watches meet one is lost or judged wrongly. Any thread.
 */
#ifndef HAK_REGION_HUGE_H
#define HAK_REGION_HUGE_H

#include "base/atomics.h"
#include "core/limits.h"

/* Asks for huge pages for a mapping, of which the first `used` bytes are not new. 0: what is new
 * has them. Else that has small ones, but the first whole huge page of it may be resident. Contents
 * stay. */
HAK_HIDDEN int hak__huge_ask(void *address, size_t size, size_t used);

/* The last that was timed came quickly. */
HAK_HIDDEN bool hak__huge_is_quick(void);

/* Asks for the one at `address`, of which nothing was touched. 0: it may have it. */
HAK_HIDDEN int hak__huge_ask_untouched(void *address);

/* Which thread's first touch is waited for, by the address of its hak__lock_held; NULL: none. */
HAK_HIDDEN extern const uint32_t *hak__huge_watcher;

/* Has it come? For the thread that asked, at the end of its slow operations; others' looks change
 * nothing. No lock held. */
HAK_HIDDEN HAK_COLD void hak__huge_look(void);

/* What the calling thread waits for, as it ends; `anybodys`: in fork's child. */
HAK_HIDDEN void hak__huge_forget(bool anybodys);

HAK_INLINE bool huge_is_watched(void)
{
    return atomic_load_relaxed(&hak__huge_watcher) != NULL;
}

/* Microseconds that are too long for one; UINT64_MAX: none is timed. No option: tests change it. */
HAK_HIDDEN extern uint64_t hak__huge_page_us_max;

#endif
