/* SPDX-License-Identifier: MIT */
/* learner.c: see learner.h.
 *
 * State: `*learner` belongs to the thread that has set shared_busy; only the sum of the bytes is
 * everybody's. A process that does not learn has no memory for it. */
#include "learn/learner.h"

#include "arena/arena.h"
#include "base/atomics.h"
#include "base/text.h"
#include "control/life.h"
#include "core/options.h"
#include "os/os.h"

/* Length of a stretch, ms, for knobs that act at once. Twice: decisions take twice the time. Half:
 * fewer allocations in each, and more noise. */
#define LEARN_STRETCH_MS 400u

struct learner {
    uint32_t shared_busy;  /* 1: a thread is at work here */
    uint64_t shared_bytes; /* allocated, as told at ticks; relaxed: a sum */
    struct tournament tournament;
    struct learn_state state;
    struct learn_point point; /* that the knobs stand at */
    uint32_t started_ms;
    uint32_t began_ms; /* the present stretch */
    uint32_t length_ms;
    uint32_t looked_ms;
    bool settled;
    bool unsaved;    /* a site was noted since the state was saved */
    uint64_t cpu_ns; /* these four: since the stretch has settled, or at that moment */
    uint64_t bytes;
    double memory_sum; /* bytes times ms */
    uint32_t memory_ms;
};

static struct learner *learner; /* NULL: this process does not learn; constant once it listens */

static bool learner_enter(void)
{
    uint32_t idle = 0;
    /* acquire: pairs with the release in learner_leave */
    return atomic_cas_acquire(&learner->shared_busy, &idle, 1u);
}

static void learner_leave(void)
{
    atomic_store_release(&learner->shared_busy, 0u); /* pairs with the acquire in learner_enter */
}

static uint32_t learner_length_ms(const struct learn_point *a, const struct learn_point *b)
{
    uint32_t delay_ms =
        a->purge_delay_ms > b->purge_delay_ms ? a->purge_delay_ms : b->purge_delay_ms;
    bool delays =
        a->purge_delay_ms != b->purge_delay_ms || a->huge_cache_bytes != b->huge_cache_bytes;
    if (!delays || delay_ms <= LEARN_STRETCH_MS / 2) {
        return LEARN_STRETCH_MS;
    }
    /* A setting with a delay needs stretches of twice the delay, but at most this. Twice: tests of
     * long delays take minutes. */
    return delay_ms < 10 * LEARN_STRETCH_MS / 2 ? 2 * delay_ms : 10 * LEARN_STRETCH_MS;
}

static void learner_begin_stretch(uint32_t now_ms)
{
    learner->began_ms = now_ms;
    learner->settled = false;
}

static void learner_next(uint32_t now_ms)
{
    const struct tournament *tournament = &learner->tournament;
    learner->point = *hak__tournament_next(&learner->tournament);
    learner->length_ms = learner_length_ms(&tournament->champion, &tournament->test.point);
    hak__learn_point_set(&learner->point);
    learner_begin_stretch(now_ms);
}

static void learner_settle(uint32_t now_ms)
{
    learner->settled = true;
    learner->cpu_ns = hak__os_cpu_ns();
    learner->bytes = atomic_load_relaxed(&learner->shared_bytes);
    learner->memory_sum = 0;
    learner->memory_ms = 0;
    learner->looked_ms = now_ms;
}

static void learner_note(enum learn_verdict verdict, const struct learn_test *test, uint32_t now_ms)
{
    struct learn_state *state = &learner->state;
    state->champion = learner->tournament.champion;
    hak__learn_state_add(state, verdict, test, (now_ms - learner->started_ms) / 1000);
    hak__learn_save(state); /* at once: most servers end by a signal */
}

static void learner_finish(uint32_t now_ms)
{
    uint64_t cpu_ns = hak__os_cpu_ns() - learner->cpu_ns;
    uint64_t bytes = atomic_load_relaxed(&learner->shared_bytes) - learner->bytes;
    /* A stretch in which the program allocates less says nothing about the allocator. Twice:
     * programs that allocate little learn more slowly. */
    if (bytes < (uint64_t)1 << 20) {
        learner_begin_stretch(now_ms); /* the same setting once more */
        return;
    }
    struct learn_cost cost = {.time = (double)cpu_ns / (double)bytes,
                              .memory = learner->memory_sum / (learner->memory_ms + 1.0)};
    struct learn_test test;
    enum learn_verdict verdict =
        hak__tournament_result(&learner->tournament, &cost, (double)cpu_ns, &test);
    if (verdict != LEARN_GOES_ON) {
        learner_note(verdict, &test, now_ms);
    }
    learner_next(now_ms);
}

static void learner_look(void)
{
    uint32_t now_ms = hak__os_clock_ms(), elapsed_ms = now_ms - learner->began_ms;
    if (!learner->settled) {
        /* The first part of each stretch does not count: the memory is still that of the setting
         * before. */
        if (elapsed_ms >= learner->length_ms / 4) {
            learner_settle(now_ms);
        }
        return;
    }
    uint32_t part_ms = now_ms - learner->looked_ms;
    /* The resident memory is read so often in a stretch, which takes three system calls each time.
     * Half: short peaks count too little. */
    if (part_ms < learner->length_ms / 32) {
        return;
    }
    uint64_t rss = hak__os_rss();
    learner->looked_ms = now_ms;
    if (rss != UINT64_MAX) { /* without /proc only the time counts */
        learner->memory_sum += (double)rss * part_ms;
        learner->memory_ms += part_ms;
    }
    if (elapsed_ms >= learner->length_ms) {
        learner_finish(now_ms);
    }
}

void hak__learner_save(void)
{
    learner->unsaved = false;
    hak__learn_save(&learner->state);
}

/* Called at each tick of a thread, inside the gate and without a lock. */
static void learner_tick(struct thread *thread)
{
    atomic_add_relaxed(&learner->shared_bytes, hak__sampling_take_bytes(thread));
    if (learner_enter()) {
        if (HAK_UNLIKELY(learner->unsaved)) {
            hak__learner_save(); /* a site was noted, under a lock that is not held here */
        }
        learner_look();
        learner_leave();
    }
}

bool hak__learner_start(const char *program, const struct learn_state *state)
{
    struct learn_point now = hak__learn_point_now();
    size_t page = hak__os_page_size(), size = (sizeof *learner + page - 1) & ~(page - 1);
    if (hak__os_map(size, page, (void **)&learner) != 0) {
        return false;
    }
    if (state != NULL) {
        learner->state = *state;
    }
    hak__text_make(learner->state.program, SITE_NAME_SIZE, "%s", program);
    learner->state.options = now;
    learner->state.memory_percent = hak__settings.learn_memory_percent;
    learner->state.runs++;
    learner->state.champion = state != NULL ? state->champion : now;
    learner->state.seed = hak__os_random_seed();
    bool learned = !hak__learn_point_equal(&learner->state.champion, &now);
    hak__tournament_begin(&learner->tournament, &learner->state.champion, learned ? &now : NULL,
                          learner->state.seed, (double)hak__settings.learn_memory_percent / 100);
    learner->started_ms = hak__os_clock_ms();
    learner_next(learner->started_ms);
    if (hak__sampling_of(SAMPLING_OWN) == 0) {
        /* so that large requests count their bytes */
        hak__sampling_set(SAMPLING_OWN, SAMPLE_PERIOD_MAX, true);
    }
    /* release: pairs with the acquire in thread_tell_listener (arena/heartbeat.c) */
    atomic_store_release(&hak__tick_listener, learner_tick);
    return true;
}

/* The place of the name in the state, or a free one. NULL: neither. */
static char *learner_find_site(const char *name)
{
    char *free = NULL;
    for (uint32_t i = 0; i < LEARN_SITES_MAX; i++) {
        char *site = learner->state.sites[i];
        if (hak__text_equal(site, name)) {
            return site;
        }
        free = free == NULL && site[0] == '\0' ? site : free;
    }
    return free;
}

bool hak__learn_knows_site(const char *name)
{
    const char *site = learner != NULL ? learner_find_site(name) : NULL;
    return site != NULL && site[0] != '\0';
}

bool hak__learn_note_site(const char *name, bool apart)
{
    if (!learner_enter()) {
        return false;
    }
    char *site = learner_find_site(name);
    if (site != NULL) {
        hak__text_make(site, SITE_NAME_SIZE, "%s", apart ? name : "");
        learner->unsaved = true;
    }
    learner_leave();
    return site != NULL;
}

bool hak__learner_runs(void)
{
    return learner != NULL;
}

void hak__learn_fork_child(void)
{
    if (learner != NULL) {
        atomic_store_relaxed(&learner->shared_busy, 0u);
        learner_begin_stretch(hak__os_clock_ms());
    }
}
