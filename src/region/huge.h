/* huge.h: asks the kernel for huge pages while it has them at hand.
 *
 * A huge page takes the kernel a seventh of the time of the 512 small ones it stands for, unless
 * room has to be made for it: by the guest, which moves other memory out of its way, or by the host
 * of a virtual machine that was given back what the guest did not use (free page reporting) and
 * faults it in anew in small pages: 5.2 ms instead of 0.09 measured, where 512 small pages take 0.7
 * (docs/decisions/0036). So of what is asked for the first huge page is made resident at once,
 * which the program was about to do, and timed. After one that took too long none are asked for
 * during a pause, twice as long each time, until one comes quickly.
 *
 * State: two words, hints: relaxed. Any thread. Superslabs are chosen pages for under the GROWTH
 * lock and their heap's: those wait for that one page, at most once in a tick of the clock.
 */
#ifndef HAK_REGION_HUGE_H
#define HAK_REGION_HUGE_H

#include "core/limits.h"

/* Asks for huge pages for a mapping, of which the first `used` bytes are not new. 0: what is new
 * has them. Else that has small ones, but the first whole huge page of it may be resident. Contents
 * stay. */
HAK_HIDDEN int hak__huge_ask(void *address, size_t size, size_t used);

/* The last that was timed came quickly. */
HAK_HIDDEN bool hak__huge_is_quick(void);

/* Microseconds that are too long for one; UINT64_MAX: none is timed. No option: tests change it. */
HAK_HIDDEN extern uint64_t hak__huge_page_us_max;

#endif
