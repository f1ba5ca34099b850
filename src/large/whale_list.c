/* SPDX-License-Identifier: MIT */
/* whale_list.c: see whale_list.h. */
#include "large/whale_list.h"

#include "large/whale_cache.h"
#include "large/whale_registry.h"

/* An insertion into a sorted array. If that is full, the whale with the highest address leaves. */
void hak__whale_list_offer(struct whale_list *list, struct whale_view view)
{
    bool full = list->count == WHALE_LIST_MAX;
    if (view.address <= list->after ||
        (full && view.address >= list->views[WHALE_LIST_MAX - 1].address)) {
        return;
    }
    uint32_t at = full ? WHALE_LIST_MAX - 1 : list->count++;
    for (; at != 0 && list->views[at - 1].address > view.address; at--) {
        list->views[at] = list->views[at - 1];
    }
    list->views[at] = view;
}

struct whale_tables hak__whale_tables(void)
{
    lock_acquire(&hak__whale_lock);
    struct whale_tables tables = {hak__whale_registry_table(), hak__whale_cache_table()};
    lock_release(&hak__whale_lock);
    return tables;
}

bool hak__whale_list_next(struct whale_list *list)
{
    list->count = 0;
    lock_acquire(&hak__whale_lock);
    hak__whale_registry_list(list);
    hak__whale_cache_list(list);
    lock_release(&hak__whale_lock);
    if (list->count == 0) {
        return false;
    }
    list->after = list->views[list->count - 1].address;
    return true;
}
