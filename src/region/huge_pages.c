/* SPDX-License-Identifier: MIT */
/* huge_pages.c: watches blocks with small pages and times huge pages; rules in huge_pages.h. */
#include "region/huge_pages.h"

#include <errno.h>

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "core/lock.h"
#include "os/os.h"

uint64_t hak__huge_page_us_max = HUGE_PAGE_US_MAX;

static struct lock HAK_LOCK_LINE huge_pages_lock =
    LOCK_INITIAL(LOCK_RANK_HUGE_PAGES); /* guards all evidence */

/* Counts a look at a block by rule 3. A filled one about doubles `filled`, up to `live`; an
 * unfilled one sets it to 0. Under HUGE_PAGES. */
static void evidence_count(struct huge_pages_evidence *evidence, bool dense, size_t size,
                           size_t live)
{
    size_t filled = 2 * evidence->filled + size;
    filled = filled < live ? filled : live;
    evidence->filled = !dense ? 0 : filled > evidence->filled ? filled : evidence->filled;
}

/* True if the sample's block is filled, or was so when it was freed. Under HUGE_PAGES. */
static bool sample_is_dense(struct huge_pages_sample *sample)
{
    if (sample->address != NULL) {
        sample->dense =
            hak__os_resident_percent(sample->address, sample->size) >= sample->dense_percent;
    }
    return sample->dense;
}

/* Counts a look at the sample. A filled block counts once. Under HUGE_PAGES. */
static void sample_count(struct huge_pages_evidence *evidence, struct huge_pages_sample *sample)
{
    if (!sample->dense || !sample->counted) {
        evidence_count(evidence, sample->dense, sample->size, sample->live);
        sample->counted = sample->dense; /* an unfilled block is counted again when it is filled */
    }
}

/* Under HUGE_PAGES. */
static void sample_look(struct huge_pages_evidence *evidence, struct huge_pages_sample *sample)
{
    (void)sample_is_dense(sample);
    sample_count(evidence, sample);
}

/* Looks at the sample that judges by rule 2. Under HUGE_PAGES. */
static void evidence_look(struct huge_pages_evidence *evidence)
{
    struct huge_pages_sample *before = &evidence->newest[0], *last = &evidence->newest[1];
    if (last->is_superslab && sample_is_dense(last)) {
        sample_count(evidence, last);
    } else {
        sample_look(evidence, before->size == 0 ? last : before);
    }
}

bool hak__huge_pages_are_earned(struct huge_pages_evidence *evidence, size_t size, size_t live,
                                size_t heap)
{
    if (heap < atomic_load_relaxed(&hak__knobs.huge_threshold) ||
        hak__os_page_size() != HUGE_PAGES_OS_PAGE_SIZE) {
        return false;
    }
    lock_acquire(&huge_pages_lock);
    if (evidence->newest[1].size != 0) {
        evidence_look(evidence);
    }
    bool earned = live + size <= 2 * evidence->filled;
    lock_release(&huge_pages_lock);
    return earned;
}

void hak__huge_pages_watch(struct huge_pages_evidence *evidence, struct huge_pages_sample block)
{
    lock_acquire(&huge_pages_lock);
    block.live += block.size;
    evidence->newest[0] = evidence->newest[1];
    evidence->newest[1] = block;
    lock_release(&huge_pages_lock);
}

bool hak__huge_pages_unwatch(struct huge_pages_evidence *evidence, size_t count,
                             const void *address)
{
    bool watched = false;
    lock_acquire(&huge_pages_lock);
    for (size_t i = 0; i < 2 * count && !watched; i++) {
        struct huge_pages_sample *sample = &evidence[i / 2].newest[i % 2];
        if (sample->address == address) {
            sample_look(&evidence[i / 2], sample);
            sample->address = NULL;
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

/* How long huge pages take. Hints: all accesses are relaxed. */
static uint32_t shared_timed_ms; /* when the last huge page was judged */
static uint32_t shared_pause_ms; /* how long none is asked for after that; 0: they come quickly */

static bool huge_pages_pause_is_over(uint32_t now_ms)
{
    return now_ms - atomic_load_relaxed(&shared_timed_ms) >= atomic_load_relaxed(&shared_pause_ms);
}

/* Notes whether a huge page came quickly: ends the pauses, or doubles the pause. */
static void huge_pages_judge(bool quick, uint32_t now_ms)
{
    uint32_t pause = 2 * atomic_load_relaxed(&shared_pause_ms);
    pause = pause < HUGE_PAGES_PAUSE_MS_MIN ? HUGE_PAGES_PAUSE_MS_MIN : pause;
    pause = pause < HUGE_PAGES_PAUSE_MS_MAX ? pause : HUGE_PAGES_PAUSE_MS_MAX;
    atomic_store_relaxed(&shared_timed_ms, now_ms);
    atomic_store_relaxed(&shared_pause_ms, quick ? 0 : pause);
}

bool hak__huge_pages_are_quick(void)
{
    return atomic_load_relaxed(&shared_pause_ms) == 0;
}

/* Makes a huge page resident and judges how long that took. Nothing is learned if the page is
 * resident already (mlockall), or if the kernel cannot populate (before Linux 5.14). */
static void huge_pages_time(void *address, uint32_t now_ms)
{
    hak__gate_begin_call();
    uint64_t start = hak__os_clock_us();
    if (hak__os_resident(address, HUGE_PAGE_SIZE) != HUGE_PAGE_SIZE &&
        hak__os_populate(address, HUGE_PAGE_SIZE) == 0) {
        huge_pages_judge(hak__os_clock_us() - start <= hak__huge_page_us_max, now_ms);
    }
    hak__gate_end_call();
}

int hak__huge_pages_ask(void *address, size_t size, size_t used)
{
    uintptr_t first = bits_align_up((uintptr_t)address + used, HUGE_PAGE_SIZE);
    uintptr_t end = (uintptr_t)address + size;
    uint32_t now_ms = hak__os_clock_ms();
    int error = huge_pages_pause_is_over(now_ms) ? hak__os_huge_pages(address, size) : -EAGAIN;
    if (error == 0 && first + 2 * HUGE_PAGE_SIZE <= end && hak__huge_page_us_max != UINT64_MAX &&
        now_ms != atomic_load_relaxed(&shared_timed_ms)) { /* at most one in each clock tick */
        huge_pages_time((void *)first, now_ms);
        error = hak__huge_pages_are_quick() ? 0 : -EAGAIN;
    }
    if (error != 0) { /* a mapping that has grown may have asked before the pause */
        hak__os_small(address, size);
    }
    return error;
}

const uint16_t *hak__huge_pages_watcher;

/* About the thread that hak__huge_pages_watcher names. Hints, relaxed: if two threads use them at
 * the same time, one watch is lost or judged wrongly. */
static uint64_t shared_watched_us; /* the time of its first look; 0: that is still to come */
static uint32_t shared_slow_count; /* slow pages in a row, of all threads */

int hak__huge_pages_ask_untouched(void *address, size_t size)
{
    if (!huge_pages_pause_is_over(hak__os_clock_ms())) {
        return -EAGAIN;
    }
    int error = hak__os_huge_pages(address, size);
    if (error == 0 && hak__huge_page_us_max != UINT64_MAX) {
        atomic_store_relaxed(&shared_watched_us, UINT64_C(0));
        atomic_store_relaxed(&hak__huge_pages_watcher, (const uint16_t *)&hak__lock_own.held);
    }
    return error;
}

void hak__huge_pages_look(void)
{
    if (atomic_load_relaxed(&hak__huge_pages_watcher) != &hak__lock_own.held) {
        return;
    }
    uint64_t now_us = hak__os_clock_us(), since_us = atomic_load_relaxed(&shared_watched_us);
    if (since_us == 0) { /* the operation that asked ends here: the program's touch comes now */
        atomic_store_relaxed(&shared_watched_us, now_us);
        return;
    }
    bool quick = now_us - since_us <= hak__huge_page_us_max;
    uint32_t slow_count = quick ? 0 : atomic_load_relaxed(&shared_slow_count) + 1;
    if (quick || slow_count == HUGE_PAGES_SLOW_COUNT) {
        huge_pages_judge(quick, hak__os_clock_ms());
    }
    atomic_store_relaxed(&shared_slow_count, slow_count % HUGE_PAGES_SLOW_COUNT);
    atomic_store_relaxed(&hak__huge_pages_watcher, NULL);
}
