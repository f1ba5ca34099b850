/* whale_list.h: where the whales lie, and the tables about them: for reports.
 *
 * The functions take WHALES themselves. A whale that another thread is resizing is not listed. What
 * they return may be unmapped at any moment after that, so the caller only asks the kernel about
 * it. */
#ifndef HAK_LARGE_WHALE_LIST_H
#define HAK_LARGE_WHALE_LIST_H

#include "large/whale.h"

struct whale_view {
    uintptr_t address;
    size_t size; /* bytes; 0: an empty place of the registry */
    bool kept;   /* freed, and in the cache */
};

/* The `most` lowest whales and kept ranges that start at `from` or above, by rising address.
 * Returns their number. Looks at every whale. */
HAK_HIDDEN uint32_t hak__whale_list(uintptr_t from, struct whale_view *views, uint32_t most);

struct whale_tables {
    struct whale_view registry; /* size 0: there is none yet */
    struct whale_view cache;    /* size 0: it is still the first one, in the library's own data */
};
HAK_HIDDEN struct whale_tables hak__whale_tables(void);

#endif
