/* huge.c: see huge.h. */
#include "region/huge.h"

#include "base/bits.h"
#include "core/lock.h"
#include "os/os.h"

#include <errno.h>

uint64_t hak__huge_page_us_max = HUGE_PAGE_US_MAX;
const uint32_t *hak__huge_watcher;

static uint32_t shared_timed_ms; /* when the last one was timed */
static uint32_t shared_pause_ms; /* from then on; 0: none */
static uint32_t shared_unknown;  /* 1: of the last watch nothing is known */

/* What hak__huge_watcher waits for. */
static struct {
    uintptr_t address;
    uint64_t looked_us; /* the last look, and what its thread had used by then */
    uint64_t user_us;
    uint64_t system_us;
    uint64_t faults;
    uint32_t looks;
    uint32_t timed_ms; /* the last one that was timed before it */
} shared_watch;

/* May one be asked for? */
static bool huge_pause_is_over(uint32_t now_ms)
{
    return now_ms - atomic_load_relaxed(&shared_timed_ms) >= atomic_load_relaxed(&shared_pause_ms);
}

/* One is timed in a tick of the clock. */
static bool huge_is_to_time(uint32_t now_ms)
{
    return now_ms != atomic_load_relaxed(&shared_timed_ms) && hak__huge_page_us_max != UINT64_MAX;
}

/* Returns `quick`. */
static bool huge_judge(bool quick, uint32_t now_ms)
{
    uint32_t pause = 0;
    if (!quick) {
        pause = 2 * atomic_load_relaxed(&shared_pause_ms);
        pause = pause == 0 ? HUGE_PAUSE_MS_MIN : pause;
        pause = pause < HUGE_PAUSE_MS_MAX ? pause : HUGE_PAUSE_MS_MAX;
    }
    atomic_store_relaxed(&shared_timed_ms, now_ms);
    atomic_store_relaxed(&shared_pause_ms, pause);
    atomic_store_relaxed(&shared_unknown, 0u);
    return quick;
}

/* Makes the huge page at `address` resident; false if that took too long. What is resident (memory
 * that is locked as it is mapped) says nothing, nor does a kernel before 5.14: then it is as it was
 * the last time. */
static bool huge_time(uintptr_t address, uint32_t now_ms)
{
    uint64_t start = hak__os_clock_us();
    if (hak__os_resident((const void *)address, HUGE_PAGE_SIZE) == HUGE_PAGE_SIZE ||
        hak__os_populate((void *)address, HUGE_PAGE_SIZE) != 0) {
        atomic_store_relaxed(&shared_timed_ms, now_ms);
        return atomic_load_relaxed(&shared_pause_ms) == 0;
    }
    return huge_judge(hak__os_clock_us() - start <= hak__huge_page_us_max, now_ms);
}

bool hak__huge_is_quick(void)
{
    return atomic_load_relaxed(&shared_pause_ms) == 0;
}

int hak__huge_ask(void *address, size_t size, size_t used)
{
    uintptr_t first = bits_align_up((uintptr_t)address + used, HUGE_PAGE_SIZE);
    uintptr_t end = (uintptr_t)address + size;
    uint32_t now_ms = hak__os_clock_ms();
    if (!huge_pause_is_over(now_ms)) {
        if (used != 0) { /* it may have asked in better times */
            hak__os_small(address, size);
        }
        return -EAGAIN;
    }
    int error = hak__os_huge(address, size);
    if (error != 0 || first + HUGE_PAGE_SIZE > end || !huge_is_to_time(now_ms)) {
        return error;
    }
    if (!huge_time(first, now_ms) && first + 2 * HUGE_PAGE_SIZE <= end) { /* more than the one */
        hak__os_small(address, size);
        return -EAGAIN;
    }
    return 0;
}

static void huge_note_look(uint64_t now_us, struct os_usage used)
{
    atomic_store_relaxed(&shared_watch.looked_us, now_us);
    atomic_store_relaxed(&shared_watch.user_us, used.user_us);
    atomic_store_relaxed(&shared_watch.system_us, used.system_us);
    atomic_store_relaxed(&shared_watch.faults, used.faults);
}

static void huge_watch(uintptr_t address, uint64_t now_us)
{
    huge_note_look(now_us, hak__os_usage());
    atomic_store_relaxed(&shared_watch.address, address);
    atomic_store_relaxed(&shared_watch.looks, 0u);
    atomic_store_relaxed(&shared_watch.timed_ms, atomic_load_relaxed(&shared_timed_ms));
    atomic_store_relaxed(&hak__huge_watcher, (const uint32_t *)&hak__lock_held);
}

/* Nothing is known: the next that is to be timed is made resident, as a whale's. */
static void huge_give_up(void)
{
    atomic_store_relaxed(&shared_unknown, 1u);
    atomic_store_relaxed(&hak__huge_watcher, NULL);
}

int hak__huge_ask_untouched(void *address)
{
    uint32_t now_ms = hak__os_clock_ms();
    if (!huge_pause_is_over(now_ms)) {
        return -EAGAIN;
    }
    int error = hak__os_huge(address, HUGE_PAGE_SIZE);
    if (error != 0 || !huge_is_to_time(now_ms)) {
        return error;
    }
    uint64_t now_us = hak__os_clock_us();
    if (huge_is_watched()) {
        if (now_us - atomic_load_relaxed(&shared_watch.looked_us) < HUGE_WATCH_US_MAX) {
            return 0;
        }
        huge_give_up();
    }
    if (atomic_load_relaxed(&shared_unknown) != 0) {
        atomic_store_relaxed(&shared_unknown, 0u);
        huge_time((uintptr_t)address, now_ms);
    } else {
        huge_watch((uintptr_t)address, now_us);
    }
    return 0;
}

/* It has come since the last look. True if that says something: this thread touched it, in time
 * whatever else it did, or with most of its processor's time, too long a time, in the kernel. */
static bool huge_judge_touch(uint64_t since_us, struct os_usage used)
{
    uint64_t user_us = used.user_us - atomic_load_relaxed(&shared_watch.user_us);
    uint64_t system_us = used.system_us - atomic_load_relaxed(&shared_watch.system_us);
    if (atomic_load_relaxed(&shared_watch.timed_ms) != atomic_load_relaxed(&shared_timed_ms)) {
        return true; /* another was timed since it was asked for: that is newer */
    }
    if (used.faults == atomic_load_relaxed(&shared_watch.faults)) {
        return false; /* another thread touched it */
    }
    bool quick = since_us <= hak__huge_page_us_max;
    bool slow = system_us > hak__huge_page_us_max && system_us > user_us;
    if (quick || slow) {
        huge_judge(quick, hak__os_clock_ms());
    }
    return quick || slow;
}

/* A look of the thread that asked. */
static void huge_look(uint64_t now_us)
{
    struct os_usage used = hak__os_usage();
    const void *address = (const void *)atomic_load_relaxed(&shared_watch.address);
    size_t resident = hak__os_resident(address, HUGE_PAGE_SIZE);
    if (resident != 0) {
        /* a part of it: small pages, because there was no huge one, or none is welcome any more */
        if (resident == HUGE_PAGE_SIZE &&
            huge_judge_touch(now_us - atomic_load_relaxed(&shared_watch.looked_us), used)) {
            atomic_store_relaxed(&hak__huge_watcher, NULL);
        } else {
            huge_give_up();
        }
        return;
    }
    uint32_t looks = atomic_load_relaxed(&shared_watch.looks) + 1;
    atomic_store_relaxed(&shared_watch.looks, looks);
    huge_note_look(now_us, used);
    if (looks == HUGE_LOOKS_MAX) {
        huge_give_up();
    }
}

static bool huge_is_watched_by_me(void)
{
    return atomic_load_relaxed(&hak__huge_watcher) == &hak__lock_held;
}

void hak__huge_look(void)
{
    if (huge_is_watched_by_me()) {
        huge_look(hak__os_clock_us());
    }
}

void hak__huge_forget(bool anybodys)
{
    if (huge_is_watched_by_me() || (anybodys && huge_is_watched())) {
        huge_give_up();
    }
}
