/* whale_list.c: shows reports where the whales and their tables lie. See whale_list.h. */
#include "large/whale_list.h"

#include "large/whale_cache.h"
#include "large/whale_registry.h"

/* Puts the view into the sorted array of the `most` lowest ones; *count of them are in it. */
static void list_insert(struct whale_view *views, uint32_t *count, uint32_t most,
                        struct whale_view view)
{
    if (*count == most) {
        if (view.address > views[most - 1].address) {
            return;
        }
        --*count;
    }
    uint32_t at = *count;
    for (; at != 0 && views[at - 1].address > view.address; at--) {
        views[at] = views[at - 1];
    }
    views[at] = view;
    ++*count;
}

uint32_t hak__whale_list(uintptr_t from, struct whale_view *views, uint32_t most)
{
    uint32_t count = 0;
    struct whale_view view;
    lock_acquire(&hak__whale_lock);
    for (size_t i = 0; hak__whale_registry_view(i, &view); i++) {
        if (view.address >= from && view.size != 0) {
            list_insert(views, &count, most, view);
        }
    }
    for (size_t i = 0; hak__whale_cache_view(i, &view); i++) {
        if (view.address >= from) {
            list_insert(views, &count, most, view);
        }
    }
    lock_release(&hak__whale_lock);
    return count;
}

struct whale_tables hak__whale_tables(void)
{
    lock_acquire(&hak__whale_lock);
    struct whale_tables tables = {hak__whale_registry_table(), hak__whale_cache_table()};
    lock_release(&hak__whale_lock);
    return tables;
}
