/* whale_join.h: a whale from parts of freed ones: their pages are moved, not their contents.
 *
 * A new mapping takes the parts' pages in one after the other. A huge page's worth of page tables
 * moves in about 2 microseconds; faulting its 512 small pages in anew takes some 900
 * (docs/decisions/0070). What the parts do not cover is new. Any thread; no lock held.
 */
#ifndef HAK_LARGE_WHALE_JOIN_H
#define HAK_LARGE_WHALE_JOIN_H

#include "large/whale_cache.h"

/* Takes all parts, and unmaps what it has no use for. address 0: no memory. */
HAK_HIDDEN struct whale hak__whale_join(const struct whale_parts *taken, size_t size,
                                        bool want_zero);

/* A joined whale elsewhere, with room for more: a huge page's place after the other, and each back
 * if one cannot move. Needs Linux 5.7. address 0: that failed, and it is as it was. */
HAK_HIDDEN struct whale hak__whale_join_grow(struct whale whale, size_t size);

#endif
