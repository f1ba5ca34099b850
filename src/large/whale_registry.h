/* whale_registry.h: address -> whale, for the whole process. Under the WHALES lock unless said
 * otherwise.
 *
 * Open addressing with linear probing and backward-shift deletion (Knuth, TAOCP 3, 6.4, algorithm
 * R), at most half full.
 */
#ifndef HAK_LARGE_WHALE_REGISTRY_H
#define HAK_LARGE_WHALE_REGISTRY_H

#include "large/whale.h"

/* Takes the lock itself, since the table may have to grow. False: no memory for it. */
HAK_HIDDEN bool hak__whale_registry_insert(struct whale whale);
/* Its two parts: takes the lock, with room for one more; and puts that in. */
HAK_HIDDEN bool hak__whale_registry_lock(void);
HAK_HIDDEN void hak__whale_registry_add(struct whale whale);
/* Takes a whale out while it is resized; its place stays promised, so that putting it back cannot
 * fail. */
HAK_HIDDEN struct whale hak__whale_registry_lift(uintptr_t address);
HAK_HIDDEN void hak__whale_registry_put_back(struct whale whale);
/* address 0 when there is none. */
HAK_HIDDEN struct whale hak__whale_registry_remove(uintptr_t address);
HAK_HIDDEN struct whale hak__whale_registry_find(uintptr_t address);
HAK_HIDDEN struct whale hak__whale_registry_containing(uintptr_t address);
/* live and metadata figures. */
HAK_HIDDEN struct whale_totals hak__whale_registry_totals(void);

#endif
