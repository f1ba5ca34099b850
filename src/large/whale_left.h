/* SPDX-License-Identifier: MIT */
/* whale_left.h: huge allocations on which the program has left a protection, an advice or a lock
 * (region/left.h). They are unmapped when they are freed, and never resized in place.
 *
 * The program's calls come here with any address. A table of one bit for each 32 MiB of addresses,
 * hashed, says where huge allocations are or were; most calls end there. The others search the
 * registry, under WHALES, if they concern neither the same gap between whales as the last search
 * nor a whale with a note. In a signal handler the lock may not become free. Then all whales that
 * are freed from then on are unmapped. */
#ifndef HAK_LARGE_WHALE_LEFT_H
#define HAK_LARGE_WHALE_LEFT_H

#include "large/whale.h"
#include "region/left.h"

/* Notes the part of a change that lies in huge allocations. Any thread, also in a signal
 * handler. */
HAK_HIDDEN void hak__whale_left_note(const struct left_change *change);
/* Tells where a whale is that the registry gets. Under WHALES. */
HAK_HIDDEN void hak__whale_left_cover(struct whale whale);
/* True: something is left on the whale at `address`. The second function also forgets it, for the
 * whale is freed. Under WHALES. */
HAK_HIDDEN HAK_COLD bool hak__whale_left_on(uintptr_t address);
HAK_HIDDEN HAK_COLD bool hak__whale_left_end(uintptr_t address);

/* False: nothing was ever noted, as in nearly all programs. Relaxed. */
HAK_HIDDEN extern uint32_t hak__whale_left_used;
HAK_INLINE bool whale_left_end(uintptr_t address)
{
    return HAK_UNLIKELY(atomic_load_relaxed(&hak__whale_left_used) != 0) &&
           hak__whale_left_end(address);
}

#endif
