/* SPDX-License-Identifier: MIT */
/* whale_join.h: makes a whale from parts of freed ones. It moves their page tables and copies
 * nothing.
 *
 * It maps new memory and moves the pages of one part after another into it. Moving the page tables
 * of 2 MiB takes about 2 microseconds; 512 new page faults take about 900 (docs/decisions/0070).
 * Memory that the parts do not cover stays new. The caller is inside the gate (core/gate.h) and
 * holds no lock.
 */
#ifndef HAK_LARGE_WHALE_JOIN_H
#define HAK_LARGE_WHALE_JOIN_H

#include "large/whale_cache.h"

/* Joins a whale of `size` bytes, a multiple of the OS page, from `taken`, of which it consumes all
 * parts: a part that cannot move is unmapped. Address 0: no memory. */
HAK_HIDDEN struct whale hak__whale_join(const struct whale_parts *taken, size_t size,
                                        bool want_zero);

/* Grows a joined whale to `size` bytes: moves it into a new mapping, 2 MiB at a time. If one step
 * fails, the earlier ones are copied back. Needs Linux 5.7. Address 0: that failed, and the whale
 * is as it was. */
HAK_HIDDEN struct whale hak__whale_join_grow(struct whale whale, size_t size);

#endif
