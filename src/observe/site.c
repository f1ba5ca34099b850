/* SPDX-License-Identifier: MIT */
/* site.c: the functions of hakmem/site.h, and placement (observe/sites.h).
 *
 * State of placement: a mark in each long-lived site. One thread at a time writes it, under
 * SAMPLES; others read it relaxed. A reader that misses a change places a few objects as before. */
#include "hakmem/site.h"

#include "arena/arena.h"
#include "base/atomics.h"
#include "core/options.h"
#include "hakmem/profile.h"
#include "learn/learner.h"
#include "observe/samples.h"
#include "observe/sites.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

bool hak__placement_on;

static uint32_t shared_placement_looked_ms;

/* Samples are wanted now. A period that the user chose stays. */
static void placement_switch_on(void)
{
    uint64_t period = hak__sampling_of(SAMPLING_OWN);
    if (period == 0 || period == SAMPLE_PERIOD_MAX) {
        hak__sampling_set(SAMPLING_OWN, HAK_PROFILE_PERIOD, true);
    }
    atomic_store_relaxed(&hak__placement_on, true);
}

/* A site got its name: begins to look at lifetimes, if the process learns. Under SAMPLES. */
static void placement_begin(const char *name, uintptr_t id)
{
    /* Many names share the entry "other", which is never judged. */
    if (!hak__learner_runs() || id == SITE_ID_OTHER) {
        return;
    }
    if (!hak__placement_on) {
        placement_switch_on();
    }
    if (hak__learn_knows_site(name)) {
        atomic_store_relaxed(&hak__site_find(id)->shared_apart, true);
    }
}

/* Percent of the site's blocks that lived shortly. */
static double placement_short_percent(const struct site_sums *sums)
{
    double brief = 0;
    /* Counters of lifetimes below which a block is short-lived: the first 7 count those to 4 s.
     * Blocks that live longer outlive a purge and its delay. One less: to 1 s. */
    for (uint32_t i = 0; i < 7; i++) {
        brief += sums->lifetimes[i];
    }
    return 100 * brief / sums->allocated_count;
}

bool hak__placement_judge(const struct site_sums *sums, bool apart, uint64_t now_ms)
{
    /* Samples that a proof takes. Half: sites are placed earlier, and more often in error. Twice:
     * rare long-lived objects, which hold as much memory, take twice the time. Milliseconds that a
     * site is watched before it is judged. Blocks of the last 4 s, which may be short-lived still,
     * are then a quarter of them if the rate is even. Half: they are half. */
    if (sums->samples_count < 16 || now_ms - sums->began_ms < 16384) {
        return apart;
    }
    /* At most 10 percent of a site's blocks may be short-lived before it is placed. Twice: holes
     * among long-lived objects, which cost what was to be saved. From 30 percent on it is placed no
     * longer: nearer to the other one, sites would go to and fro. */
    return placement_short_percent(sums) <= (apart ? 30.0 : 10.0);
}

/* The learner may be busy or full. The site then stays as it is until the next look. Under
 * SAMPLES. */
static void placement_look_at(struct site *site, uint64_t now_ms)
{
    bool apart = hak__placement_judge(&site->sums, site->shared_apart, now_ms);
    if (apart != site->shared_apart && hak__learn_note_site(site->name, apart)) {
        atomic_store_relaxed(&site->shared_apart, apart);
    }
}

static void placement_look(void)
{
    uint32_t now_ms = hak__os_clock_ms(),
             looked_ms = atomic_load_relaxed(&shared_placement_looked_ms);
    /* Time between two looks at all sites, ms. Half: twice the work, which takes some microseconds
     * for each hundred sites. Twice: sites are placed a second later. */
    if (now_ms - looked_ms < 1000 ||
        !atomic_cas_acquire(&shared_placement_looked_ms, &looked_ms, now_ms) ||
        !hak__samples_enter(false)) {
        return;
    }
    for (struct site *site = hak__site_first(); site != NULL; site = site->older) {
        if (!site->is_address && hak__site_is_named(site)) {
            placement_look_at(site, hak__samples_clock_ms());
        }
    }
    hak__samples_leave();
}

/* The calling thread goes back to the scope of this site; 0: of none. Keeps errno. */
static void placement_leave(uintptr_t site)
{
    HAK_KEEP_ERRNO;
    const struct site *found = hak__site_find(site);
    hak__thread_turn(found != NULL && atomic_load_relaxed(&found->shared_apart));
}

/* The same on the way in; now and then it looks which sites are proven. */
static void placement_enter(uintptr_t site)
{
    HAK_KEEP_ERRNO;
    placement_look();
    placement_leave(site);
}

/* --- the functions of hakmem/site.h --- */

/* Copies the name, cut to the size and with '?' for each byte that some view would have to quote.
 * Fills the rest with zeroes. */
static void site_clean(char clean[SITE_NAME_SIZE], const char *name)
{
    memset(clean, 0, SITE_NAME_SIZE);
    for (size_t i = 0; i < SITE_NAME_SIZE - 1 && name[i] != '\0'; i++) {
        char c = name[i];
        clean[i] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
    }
}

uintptr_t hak_site_register(const char *name)
{
    char clean[SITE_NAME_SIZE];
    uintptr_t id = 0;
    HAK_KEEP_ERRNO;
    if (name == NULL || *name == '\0') {
        return 0;
    }
    site_clean(clean, name);
    /* Not patiently: a constructor in dlopen holds a lock of the loader, for which fork may
     * wait. */
    if (hak__samples_enter(false)) { /* else the caller tries again */
        id = hak__start() ? hak__site_named(clean) : 0;
        if (id != 0) {
            placement_begin(clean, id);
        }
        hak__samples_leave();
    }
    return id;
}

uintptr_t hak_site_enter(uintptr_t site)
{
    uintptr_t before = hak__site_current;
    hak__site_current = site;
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__placement_on))) {
        placement_enter(site);
    }
    return before;
}

void hak_site_leave(uintptr_t before)
{
    hak__site_current = before;
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__placement_on))) {
        placement_leave(before);
    }
}
