/* SPDX-License-Identifier: MIT */
/* whale_rests.c: secure form: the addresses of freed whales rest, closed and without memory, before
 * anybody can map them again. See whale_cache.h and whale.h. */
#include "large/whale_cache.h"
#include "os/os.h"

/* With heads and tails; size 0: none. Twice as many: a use after free faults for twice as long.
 * Under the lock. */
#define WHALES_RESTING 64u
static struct whale whales_resting[WHALES_RESTING];
static uint32_t whale_next_resting;

static void whale_release(struct whale rested)
{
    if (rested.size != 0) {
        hak__os_release_addresses((void *)rested.address, rested.size);
    }
}

void hak__whale_retire(struct whale whale)
{
    char *start = (char *)whale.address - WHALE_HEAD;
    whale = (struct whale)WHALE_OF((uintptr_t)start, WHALE_HEAD + whale.size + WHALE_TAIL, 0);
    if (!hak__os_keep_addresses(start, whale.size)) {
        if (hak__os_open_pages(start, WHALE_HEAD)) { /* a discard may write to the first page */
            hak__os_discard(start, whale.size);
        } else {
            hak__os_leave(WHALE_HEAD);
            hak__os_discard(start + WHALE_HEAD, whale.size - WHALE_HEAD);
        }
        return;
    }
    lock_acquire(&hak__whale_lock);
    struct whale *place = &whales_resting[whale_next_resting++ % WHALES_RESTING];
    struct whale rested = *place;
    *place = whale;
    lock_release(&hak__whale_lock);
    whale_release(rested);
}

HAK_RACY_READER bool hak__whale_is_resting(uintptr_t address)
{
    bool found = false;
    for (uint32_t i = 0; i < WHALES_RESTING; i++) {
        found |= address - whales_resting[i].address < whales_resting[i].size;
    }
    return found;
}

void hak__whale_end_rests(void)
{
    for (uint32_t i = 0; i < WHALES_RESTING; i++) {
        lock_acquire(&hak__whale_lock);
        struct whale rested = whales_resting[i];
        whales_resting[i].size = 0;
        lock_release(&hak__whale_lock);
        whale_release(rested);
    }
}
