/* SPDX-License-Identifier: MIT */
/* whale_registry.h: the table that finds a whale of the process by its address.
 *
 * A hash table with open addressing, linear probing and backward-shift deletion (Knuth, TAOCP 3,
 * 6.4, algorithm R). It is at most half full.
 *
 * Locks: the caller holds WHALES unless said otherwise. */
#ifndef HAK_LARGE_WHALE_REGISTRY_H
#define HAK_LARGE_WHALE_REGISTRY_H

#include "large/whale.h"

/* Adds a whale. Takes WHALES itself and releases it, because the table may have to grow. False: no
 * memory for a larger table. */
HAK_HIDDEN bool hak__whale_registry_insert(struct whale whale);
/* The two halves of insert. The first takes WHALES and makes room for one more whale; on false the
 * lock is not held. The second adds the whale and keeps the lock. */
HAK_HIDDEN bool hak__whale_registry_lock(void);
HAK_HIDDEN void hak__whale_registry_add(struct whale whale);
/* Takes the whale at `address` out while it is resized. Its place stays reserved, so that putting
 * it back cannot fail. Address 0: there is none. */
HAK_HIDDEN struct whale hak__whale_registry_lift(uintptr_t address);
HAK_HIDDEN void hak__whale_registry_put_back(struct whale whale);
/* The whale that starts at `address`; the first function also takes it out. The third finds the
 * whale that contains `address`, and looks at the whole table. Address 0: there is none. */
HAK_HIDDEN struct whale hak__whale_registry_remove(uintptr_t address);
HAK_HIDDEN struct whale hak__whale_registry_find(uintptr_t address);
HAK_HIDDEN struct whale hak__whale_registry_containing(uintptr_t address);
/* The figures of live whales and of the table; the others are 0. */
HAK_HIDDEN struct whale_totals hak__whale_registry_totals(void);

#endif
