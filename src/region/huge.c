/* huge.c: see huge.h. */
#include "region/huge.h"

#include "base/atomics.h"
#include "base/bits.h"
#include "os/os.h"

#include <errno.h>

uint64_t hak__huge_page_us_max = HUGE_PAGE_US_MAX;

static uint32_t shared_timed_ms; /* when the last one was timed */
static uint32_t shared_pause_ms; /* from then on; 0: none */

/* Makes the first whole huge page of the range resident, and chooses the pause by how long that
 * takes. What takes no time was resident and says nothing. */
static void huge_time_first(void *address, uint32_t now_ms)
{
    void *first = (void *)bits_align_up((uintptr_t)address, HUGE_PAGE_SIZE);
    uint64_t start = hak__os_clock_us();
    if (hak__os_populate(first, HUGE_PAGE_SIZE) != 0) {
        return; /* before Linux 5.14, or no memory: the program will see */
    }
    uint64_t duration = hak__os_clock_us() - start;
    uint32_t pause = atomic_load_relaxed(&shared_pause_ms);
    if (duration > hak__huge_page_us_max) {
        pause = pause == 0 ? HUGE_PAUSE_MS_MIN : 2 * pause;
        pause = pause < HUGE_PAUSE_MS_MAX ? pause : HUGE_PAUSE_MS_MAX;
    } else if (duration >= HUGE_PAGE_US_MIN) {
        pause = 0;
    }
    atomic_store_relaxed(&shared_timed_ms, now_ms);
    atomic_store_relaxed(&shared_pause_ms, pause);
}

int hak__huge_ask(void *address, size_t size)
{
    uint32_t now_ms = hak__os_clock_ms();
    uint32_t since_ms = now_ms - atomic_load_relaxed(&shared_timed_ms);
    uint32_t pause = atomic_load_relaxed(&shared_pause_ms);
    if (pause != 0 && since_ms < pause) {
        return -EAGAIN;
    }
    int error = hak__os_huge(address, size);
    bool timed = (pause != 0 || since_ms != 0) && hak__huge_page_us_max != UINT64_MAX;
    if (error == 0 && timed) {
        huge_time_first(address, now_ms);
        bool refused = atomic_load_relaxed(&shared_pause_ms) != 0;
        if (refused && size > HUGE_PAGE_SIZE) { /* there are more than the one it now has */
            hak__os_small(address, size);
            error = -EAGAIN;
        }
    }
    return error;
}
