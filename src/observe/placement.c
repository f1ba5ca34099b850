/* placement.c: see placement.h.
 *
 * State: a short list of the ids of long-lived sites. One thread at a time writes it, under
 * SAMPLES; others read it relaxed. A reader that misses a change places a few objects as before. */
#include "observe/placement.h"

#include <errno.h>

#include "base/atomics.h"
#include "core/options.h"
#include "hakmem/profile.h"
#include "heap/heap.h"
#include "learn/learner.h"
#include "observe/samples.h"
#include "os/os.h"

/* Sites that are placed at the same time. */
#define PLACEMENT_SITES_MAX LEARN_SITES_MAX
/* Time between two looks at all sites, ms. Half: twice the work, which takes some microseconds for
 * each hundred sites. */
#define PLACEMENT_LOOK_MS 1000u
/* Samples that a proof takes. Half: sites are placed earlier, and more often in error. */
#define PLACEMENT_SAMPLES_LEAST 16u
/* Counters of lifetimes below which a block is short-lived: the first 7 count those to 4 s. Blocks
 * that live longer outlive a purge and its delay. */
#define PLACEMENT_SHORT 7u
#define PLACEMENT_SHORT_MS 4095u
/* Percent of a site's blocks that may be short-lived before it is placed, and from which on it is
 * no longer. */
#define PLACEMENT_SHORT_PERCENT 10.0
#define PLACEMENT_BACK_PERCENT 30.0

bool hak__placement_on;

static uintptr_t shared_placement_ids[PLACEMENT_SITES_MAX]; /* 0: free */
static uint32_t shared_placement_looked_ms;

static uintptr_t *placement_find(uintptr_t id)
{
    for (uint32_t i = 0; i < PLACEMENT_SITES_MAX; i++) {
        if (atomic_load_relaxed(&shared_placement_ids[i]) == id) {
            return &shared_placement_ids[i];
        }
    }
    return NULL;
}

void hak__placement_begin(const char *name, uintptr_t id)
{
    uint64_t period = atomic_load_relaxed(&hak__sampling.period);
    if (!hak__learner_runs()) {
        return;
    }
    uintptr_t *place = placement_find(id) == NULL ? placement_find(0) : NULL;
    if (place != NULL && hak__learn_knows_site(name)) {
        atomic_store_relaxed(place, id);
    }
    if (period == 0 || period == SAMPLE_PERIOD_MAX) {
        hak__sampling_set(HAK_PROFILE_PERIOD, true);
    }
    atomic_store_relaxed(&hak__placement_on, true);
}

/* True if there are samples enough, and if the first one is old enough to have been freed early. */
static bool placement_is_known(const struct site *site, uint64_t now_ms)
{
    return site->sums.samples_count >= PLACEMENT_SAMPLES_LEAST &&
           now_ms - site->sums.began_ms >= 4 * PLACEMENT_SHORT_MS;
}

/* Percent of the site's blocks that lived shortly. */
static double placement_short_percent(const struct site_sums *sums)
{
    double brief = 0;
    for (uint32_t i = 0; i < PLACEMENT_SHORT; i++) {
        brief += sums->lifetimes[i];
    }
    return 100 * brief / sums->allocated_count;
}

/* Under SAMPLES. */
static void placement_judge(const struct site *site, uint64_t now_ms)
{
    if (!placement_is_known(site, now_ms)) {
        return;
    }
    double percent = placement_short_percent(&site->sums);
    uintptr_t *place = placement_find(site->key);
    if (place == NULL && percent <= PLACEMENT_SHORT_PERCENT) {
        place = placement_find(0);
        if (place != NULL) {
            atomic_store_relaxed(place, site->key);
            hak__learn_note_site(site->name, true);
        }
    } else if (place != NULL && percent >= PLACEMENT_BACK_PERCENT) {
        atomic_store_relaxed(place, (uintptr_t)0);
        hak__learn_note_site(site->name, false);
    }
}

static void placement_look(void)
{
    uint32_t now_ms = hak__os_clock_ms(),
             looked_ms = atomic_load_relaxed(&shared_placement_looked_ms);
    if (now_ms - looked_ms < PLACEMENT_LOOK_MS ||
        !atomic_cas_acquire(&shared_placement_looked_ms, &looked_ms, now_ms) ||
        !hak__samples_enter(false)) {
        return;
    }
    for (const struct site *site = hak__site_first(); site != NULL; site = site->older) {
        if (!site->is_address && hak__site_is_named(site)) {
            placement_judge(site, hak__samples_clock_ms());
        }
    }
    hak__samples_leave();
}

void hak__placement_turn(uintptr_t site)
{
    int saved = errno;
    placement_look();
    hak__thread_turn(site != 0 && placement_find(site) != NULL);
    errno = saved;
}
