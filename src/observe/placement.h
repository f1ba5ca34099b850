/* SPDX-License-Identifier: MIT */
/* placement.h: objects of sites that are proven long-lived lie in slabs of their own, so that one
 * such object does not hold a slab of dead ones (docs/learning.md).
 *
 * A thread inside the scope of such a site (hakmem/site.h) uses its second struct, whose bins are
 * filled from a heap for long-lived objects (hak__thread_turn). malloc and free do not know it. The
 * sampled blocks of a site say how long they live (observe/sites.h).
 *
 * Only named sites are placed, and only while the process learns (HAKMEM_LEARN). */
#ifndef HAK_OBSERVE_PLACEMENT_H
#define HAK_OBSERVE_PLACEMENT_H

#include "observe/sites.h"

/* True once the process learns and has named a site. Relaxed. */
HAK_HIDDEN extern bool hak__placement_on;

/* True if the site is long-lived by its samples, false if not. `apart` is the answer until now.
 * Exported for tests. */
HAK_HIDDEN bool hak__placement_judge(const struct site_sums *sums, bool apart, uint64_t now_ms);

#endif
