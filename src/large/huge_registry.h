/* SPDX-License-Identifier: MIT */
/* huge_registry.h: the table that finds a huge block of the process by its address.
 *
 * A hash table with open addressing, linear probing and backward-shift deletion (Knuth, TAOCP 3,
 * 6.4, algorithm R). It is at most half full.
 *
 * Locks: the caller holds HUGE unless said otherwise. */
#ifndef HAK_LARGE_HUGE_REGISTRY_H
#define HAK_LARGE_HUGE_REGISTRY_H

#include "large/huge.h"

/* Adds a huge block. Takes HUGE itself and releases it, because the table may have to grow. False:
 * no memory for a larger table. */
HAK_HIDDEN bool hak__huge_registry_insert(struct huge block);
/* The two halves of insert. The first takes HUGE and makes room for one more huge block; on false
 * the lock is not held. The second adds the huge block and keeps the lock. */
HAK_HIDDEN bool hak__huge_registry_lock(void);
HAK_HIDDEN void hak__huge_registry_add(struct huge block);
/* Takes the huge block at `address` out while it is resized. Its place stays reserved, so that
 * putting it back cannot fail. Address 0: there is none. */
HAK_HIDDEN struct huge hak__huge_registry_lift(uintptr_t address);
HAK_HIDDEN void hak__huge_registry_put_back(struct huge block);
/* The huge block that starts at `address`; the first function also takes it out. The third finds
 * the huge block that contains `address`, and looks at the whole table. Address 0: there is
 * none. */
HAK_HIDDEN struct huge hak__huge_registry_remove(uintptr_t address);
HAK_HIDDEN struct huge hak__huge_registry_find(uintptr_t address);
HAK_HIDDEN struct huge hak__huge_registry_containing(uintptr_t address);
/* The figures of live huge blocks and of the table; the others are 0. */
HAK_HIDDEN struct huge_totals hak__huge_registry_totals(void);

#endif
