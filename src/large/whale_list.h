/* SPDX-License-Identifier: MIT */
/* whale_list.h: lists whales in use and freed whales that are kept, for reports.
 *
 * A list is filled several times. Each time it holds the next whales in the order of addresses. So
 * it needs no memory but the caller's, and no lock is held between two fills. A whale that exists
 * throughout is listed once. A fill looks at all whales: n whales take n / WHALE_LIST_MAX looks. */
#ifndef HAK_LARGE_WHALE_LIST_H
#define HAK_LARGE_WHALE_LIST_H

#include "large/whale.h"

/* Whales of one fill. Twice as many: half as many looks at all whales, and 768 bytes more on the
 * stack. */
#define WHALE_LIST_MAX (HAK_TINY_LIMITS ? 3u : 32u)

struct whale_view {
    uintptr_t address;
    size_t size;     /* bytes mapped */
    uint32_t age_ms; /* since it was freed; 0: in use */
    bool kept;       /* freed, and kept for reuse */
};

struct whale_list {
    struct whale_view views[WHALE_LIST_MAX]; /* by rising address */
    uint32_t count;
    uintptr_t after; /* the list holds whales above this address; 0 at first */
};

/* Fills the list with the next whales; `list->after` is where the last fill ended. False: there are
 * no more. Takes WHALES. The caller is inside the gate and holds no lock. */
HAK_HIDDEN bool hak__whale_list_next(struct whale_list *list);

/* The memory of the tables about whales. Takes WHALES. It may be unmapped at any moment after that,
 * so the caller only asks the kernel about it. */
struct whale_tables {
    struct whale_view registry; /* size 0: there is none yet */
    struct whale_view cache;    /* size 0: it is still the first one, in the library's own data */
};
HAK_HIDDEN struct whale_tables hak__whale_tables(void);

#endif
