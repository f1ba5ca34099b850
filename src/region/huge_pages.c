/* SPDX-License-Identifier: MIT */
/* huge_pages.c: watches blocks with small pages; rules in huge_pages.h. */
#include "region/huge_pages.h"

#include <errno.h>

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "core/lock.h"
#include "core/watched.h"
#include "os/os.h"

/* Microseconds from which a huge page is slow. It takes about 200, or 4,500 if the host has taken
 * the memory back (docs/decisions/0111). Twice: nothing changes there. Half: a short delay on a
 * busy machine counts as slow. */
uint64_t hak__huge_page_us_max = 1000;

static struct lock HAK_LOCK_LINE huge_pages_lock =
    LOCK_INITIAL(LOCK_RANK_HUGE_PAGES); /* guards all evidence */

/* Counts a look at a block by rule 3. A filled one about doubles `filled`, up to `live`: what was
 * there before may be empty. An unfilled one sets it to 0. Under HUGE_PAGES. */
static void evidence_count(struct huge_pages_evidence *evidence, bool dense, size_t size,
                           size_t live)
{
    size_t filled = 2 * evidence->filled + size;
    filled = filled < live ? filled : live;
    filled = filled > evidence->filled ? filled : evidence->filled;
    atomic_store_relaxed(&evidence->filled, dense ? filled : 0);
}

/* Looks at the watched block, if there is one. If it is not filled yet, a second look decides. No
 * look follows the `last` one. Under HUGE_PAGES. */
static void evidence_look(struct huge_pages_evidence *evidence, bool last)
{
    if (evidence->watched != NULL) {
        bool dense =
            hak__os_resident_percent(evidence->watched, evidence->size) >= evidence->percent;
        if (dense || last || evidence->looked_at) {
            evidence_count(evidence, dense, evidence->size, evidence->live);
            evidence->watched = NULL;
        }
        evidence->looked_at = true;
    }
}

bool hak__huge_pages_are_due(size_t heap)
{
    /* The secure form takes the slices of a superslab at random, and freed ones rest for a while.
     * So the last huge page of a small heap is resident long before it is used. */
    return heap / (HAK_SECURE ? 16 : 1) >= atomic_load_relaxed(&hak__knobs.huge_threshold) &&
           hak__os_page_size() == ARCH_PAGE_SIZE_MIN;
}

bool hak__huge_pages_are_earned(struct huge_pages_evidence *evidence, size_t size, size_t live,
                                size_t heap)
{
    if (!hak__huge_pages_are_due(heap)) {
        return false;
    }
    lock_acquire(&huge_pages_lock);
    evidence_look(evidence, false);
    bool earned = live + size <= 2 * evidence->filled;
    lock_release(&huge_pages_lock);
    return earned;
}

void hak__huge_pages_watch(struct huge_pages_evidence *evidence, const void *address, size_t size,
                           size_t live, uint32_t percent)
{
    lock_acquire(&huge_pages_lock);
    if (evidence->watched == NULL) {
        evidence->watched = address;
        evidence->size = size;
        evidence->live = live + size;
        evidence->percent = percent;
        evidence->looked_at = false;
    }
    lock_release(&huge_pages_lock);
}

bool hak__huge_pages_unwatch(struct huge_pages_evidence *evidence, size_t count,
                             const void *address)
{
    bool watched = false;
    lock_acquire(&huge_pages_lock);
    for (size_t i = 0; i < count && !watched; i++) {
        if (evidence[i].watched == address) {
            evidence_look(&evidence[i], true);
            watched = true;
        }
    }
    lock_release(&huge_pages_lock);
    return watched;
}

void hak__huge_pages_note_growth(struct huge_pages_evidence *evidence, size_t size, size_t live)
{
    lock_acquire(&huge_pages_lock);
    if (evidence->filled != 0) {
        evidence_count(evidence, true, size, live);
    }
    lock_release(&huge_pages_lock);
}

/* Rule 5. Hints: all accesses are relaxed. */
static uint32_t shared_slow; /* superslabs' worth that the last slow page cost; 0: it was quick */
static uint32_t shared_left; /* what is left of that before the next try */

/* True: memory of `size` bytes may be the next try. */
static bool huge_pages_may_try(size_t size)
{
    uint32_t left = atomic_load_relaxed(&shared_left);
    size_t taken = size / HUGE_PAGE_SIZE;
    if (left != 0) {
        atomic_store_relaxed(&shared_left, taken < left ? left - (uint32_t)taken : 0u);
    }
    return left == 0;
}

int hak__huge_pages_ask(void *address, size_t size)
{
    int error = huge_pages_may_try(size) ? hak__os_huge_pages(address, size) : -EAGAIN;
    if (error != 0) { /* a mapping that has grown may have asked before */
        hak__os_small(address, size);
    }
    return error;
}

/* Makes a huge page resident and judges how long that took. False: it was slow. Nothing is learned
 * if the kernel cannot populate (before Linux 5.14). The contents stay. */
static bool huge_pages_time(void *address)
{
    hak__gate_let_ending_signals(true);
    uint64_t start = hak__os_clock_us();
    bool done = hak__os_populate(address, hak__os_page_size()) == 0;
    bool quick = !done || hak__os_clock_us() - start < hak__huge_page_us_max;
    hak__gate_let_ending_signals(false);
    if (!quick) {
        uint32_t slow = 2 * atomic_load_relaxed(&shared_slow);
        slow = slow < HUGE_PAGES_SLOW_MIN ? HUGE_PAGES_SLOW_MIN : slow;
        slow = slow < HUGE_PAGES_SLOW_MAX ? slow : HUGE_PAGES_SLOW_MAX;
        atomic_store_relaxed(&shared_slow, slow);
        atomic_store_relaxed(&shared_left, slow);
    } else if (done) {
        atomic_store_relaxed(&shared_slow, 0u);
    }
    return quick;
}

void *hak__huge_pages_begun;

void hak__huge_pages_look(void)
{
    void *address = atomic_load_relaxed(&hak__huge_pages_begun);
    atomic_store_relaxed(&hak__huge_pages_begun, NULL);
    if (address != NULL && !watched()) {
        (void)huge_pages_time(address);
    }
}

int hak__huge_pages_try(void *address, size_t size, size_t used)
{
    uintptr_t first = bits_align_up((uintptr_t)address + used, HUGE_PAGE_SIZE);
    int error = hak__huge_pages_ask(address, size);
    if (error == 0 && first + 2 * HUGE_PAGE_SIZE <= (uintptr_t)address + size &&
        !huge_pages_time((void *)first)) {
        hak__os_small(address, size);
        error = -EAGAIN;
    }
    return error;
}
