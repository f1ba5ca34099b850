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

/* What hak__huge_watcher waits for. */
static struct {
    uintptr_t address;
    uint64_t looked_us; /* the last look */
    uint64_t took_us;   /* from the last look but one to that at which it had come; 0: it has not */
    uint32_t looks;
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

static void huge_watch(uintptr_t address)
{
    uint64_t now_us = hak__os_clock_us();
    if (huge_is_watched() &&
        now_us - atomic_load_relaxed(&shared_watch.looked_us) < HUGE_WATCH_US_MAX) {
        return;
    }
    atomic_store_relaxed(&shared_watch.address, address);
    atomic_store_relaxed(&shared_watch.looked_us, now_us);
    atomic_store_relaxed(&shared_watch.took_us, UINT64_C(0));
    atomic_store_relaxed(&shared_watch.looks, 0u);
    atomic_store_relaxed(&hak__huge_watcher, (const uint32_t *)&hak__lock_held);
}

int hak__huge_ask_untouched(void *address)
{
    uint32_t now_ms = hak__os_clock_ms();
    if (!huge_pause_is_over(now_ms)) {
        return -EAGAIN;
    }
    int error = hak__os_huge(address, HUGE_PAGE_SIZE);
    if (error == 0 && huge_is_to_time(now_ms)) {
        huge_watch((uintptr_t)address);
    }
    return error;
}

/* True while nothing is known yet. */
static bool huge_goes_on(uint64_t now_us)
{
    uint64_t since_us = now_us - atomic_load_relaxed(&shared_watch.looked_us);
    uint64_t took_us = atomic_load_relaxed(&shared_watch.took_us);
    uint32_t looks = atomic_load_relaxed(&shared_watch.looks);
    if (took_us != 0) { /* this operation followed it: soon, for a program that was busy then? */
        if (since_us < took_us / HUGE_SOON_SHARE) {
            huge_judge(false, hak__os_clock_ms());
        }
        return false;
    }
    atomic_store_relaxed(&shared_watch.looked_us, now_us);
    const void *address = (const void *)atomic_load_relaxed(&shared_watch.address);
    if (hak__os_resident(address, HUGE_PAGE_SIZE) == 0) {
        atomic_store_relaxed(&shared_watch.looks, looks + 1);
        return looks + 1 < HUGE_LOOKS_MAX;
    }
    if (since_us <= hak__huge_page_us_max) {
        huge_judge(true, hak__os_clock_ms());
        return false;
    }
    atomic_store_relaxed(&shared_watch.took_us, since_us);
    return true;
}

void hak__huge_look(void)
{
    if (atomic_load_relaxed(&hak__huge_watcher) == &hak__lock_held &&
        !huge_goes_on(hak__os_clock_us())) {
        atomic_store_relaxed(&hak__huge_watcher, NULL);
    }
}
