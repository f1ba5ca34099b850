/* huge.c: see huge.h. */
#include "region/huge.h"

#include "base/atomics.h"
#include "base/bits.h"
#include "os/os.h"

#include <errno.h>

uint64_t hak__huge_page_us_max = HUGE_PAGE_US_MAX;

static uint32_t shared_timed_ms; /* when the last one was timed */
static uint32_t shared_pause_ms; /* from then on; 0: none */

/* The pause after the huge page at `address` has been made resident: a longer one than `pause` if
 * that took too long, none if it came quickly. What is resident (memory that is locked as it is
 * mapped) says nothing, nor does a kernel before 5.14. */
static uint32_t huge_time(uintptr_t address, uint32_t pause)
{
    if (hak__os_resident((const void *)address, HUGE_PAGE_SIZE) == HUGE_PAGE_SIZE) {
        return pause;
    }
    uint64_t start = hak__os_clock_us();
    if (hak__os_populate((void *)address, HUGE_PAGE_SIZE) != 0) {
        return pause;
    }
    if (hak__os_clock_us() - start <= hak__huge_page_us_max) {
        return 0;
    }
    pause = pause == 0 ? HUGE_PAUSE_MS_MIN : 2 * pause;
    return pause < HUGE_PAUSE_MS_MAX ? pause : HUGE_PAUSE_MS_MAX;
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
    uint32_t since_ms = now_ms - atomic_load_relaxed(&shared_timed_ms);
    uint32_t pause = atomic_load_relaxed(&shared_pause_ms);
    if (since_ms < pause) {
        if (used != 0) { /* it may have asked in better times */
            hak__os_small(address, size);
        }
        return -EAGAIN;
    }
    int error = hak__os_huge(address, size);
    bool untimed = since_ms == 0 || hak__huge_page_us_max == UINT64_MAX;
    if (error != 0 || untimed || first + HUGE_PAGE_SIZE > end) {
        return error;
    }
    pause = huge_time(first, pause);
    atomic_store_relaxed(&shared_timed_ms, now_ms);
    atomic_store_relaxed(&shared_pause_ms, pause);
    if (pause != 0 && first + 2 * HUGE_PAGE_SIZE <= end) { /* more than the one it now has */
        hak__os_small(address, size);
        return -EAGAIN;
    }
    return 0;
}
