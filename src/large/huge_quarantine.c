/* SPDX-License-Identifier: MIT */
/* huge_quarantine.c: unmaps huge blocks; the secure form keeps their addresses for a while. See
 * huge_cache.h. */
#include "large/huge_cache.h"

#include "core/gate.h"
#include "os/os.h"

/* With heads and tails; size 0: none. Twice as many: a use after free faults for twice as long.
 * Under the lock. */
static struct huge huge_quarantine[64] HAK_SELDOM;
static uint32_t huge_quarantine_next;

static void huge_release(struct huge oldest)
{
    if (oldest.size != 0) {
        hak__os_release_addresses((void *)oldest.address, oldest.size);
    }
}

/* Unmaps a huge block with its head and tail, but keeps the addresses. False: it could not keep
 * them. */
static bool huge_keep_addresses(char *start, size_t size)
{
    hak__gate_let_ending_signals(true);
    bool kept = hak__os_keep_addresses(start, size);
    if (!kept && hak__os_open_pages(start, HUGE_HEAD)) {
        hak__os_discard(start, size); /* it may write to the first page */
    } else if (!kept) {
        hak__os_leave(HUGE_HEAD);
        hak__os_discard(start + HUGE_HEAD, size - HUGE_HEAD);
    }
    hak__gate_let_ending_signals(false);
    return kept;
}

/* Unmaps the huge block and its tail, but keeps the addresses until 64 others were
 * freed. */
static void huge_retire(struct huge block)
{
    char *start = (char *)block.address - HUGE_HEAD;
    block = (struct huge)HUGE_OF((uintptr_t)start, block.size + 2 * HUGE_HEAD, 0);
    if (!huge_keep_addresses(start, block.size)) {
        return;
    }
    lock_acquire(&hak__huge_lock);
    struct huge *place = &huge_quarantine[huge_quarantine_next++ % HAK_COUNT_OF(huge_quarantine)];
    struct huge oldest = *place;
    *place = block;
    lock_release(&hak__huge_lock);
    huge_release(oldest);
}

HAK_RACY_READER bool hak__huge_is_quarantined(uintptr_t address)
{
    bool found = false;
    for (uint32_t i = 0; i < HAK_COUNT_OF(huge_quarantine); i++) {
        found |= address - huge_quarantine[i].address < huge_quarantine[i].size;
    }
    return found;
}

void hak__huge_end_quarantine(void)
{
    for (uint32_t i = 0; i < HAK_COUNT_OF(huge_quarantine); i++) {
        lock_acquire(&hak__huge_lock);
        struct huge oldest = huge_quarantine[i];
        huge_quarantine[i].size = 0;
        lock_release(&hak__huge_lock);
        huge_release(oldest);
    }
}

void hak__huge_unmap(struct huge block)
{
    if (block.size != 0 && HAK_SECURE) {
        huge_retire(block);
    } else if (block.size != 0) {
        hak__gate_let_ending_signals(true);
        hak__os_discard((void *)block.address, block.size);
        hak__gate_let_ending_signals(false);
        huge_uncount(block);
    }
}
