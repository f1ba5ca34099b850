/* SPDX-License-Identifier: MIT */
/* test_placement.c: placement: samples make a site long-lived or not, and what a scope of such a
 * site does. The learner knows one site from an earlier run. */
#include "unit.h"

#include "core/options.h"
#include "hakmem/profile.h"
#include "hakmem/site.h"
#include "learn/learner.h"
#include "observe/samples.h"
#include "observe/sites.h"

enum { NAMES = 1024 };

static void allocate_of(struct site *site, uint32_t count, uint64_t now_ms)
{
    for (uint32_t i = 0; i < count; i++) {
        hak__site_begin(site, 1, 100, 112, now_ms);
    }
}

static void free_of(struct site *site, uint32_t count, uint64_t lifetime_ms)
{
    for (uint32_t i = 0; i < count; i++) {
        hak__site_end(site, 1, 100, 112, lifetime_ms, false);
    }
}

static bool is_apart_in(uintptr_t site)
{
    uintptr_t before = hak_site_enter(site);
    bool apart = hak__thread->apart;
    hak_site_leave(before);
    assert_false(hak__thread->apart);
    return apart;
}

TEST(not_before_the_process_learns)
{
    assert_false(is_apart_in(hak_site_register("early")));
    assert_false(hak__placement_on);
    assert_true(hak__sampling.period == 0);
}

static void begin_to_learn(void)
{
    static struct learn_state known;
    hak__settings.learn = "on";
    known.champion = hak__learn_point_now();
    snprintf(known.sites[0], sizeof known.sites[0], "known");
    snprintf(known.sites[1], sizeof known.sites[1], "too many");
    REQUIRE(hak__learner_start("test", &known));
}

TEST(scopes)
{
    begin_to_learn();
    uintptr_t known = hak_site_register("known"), new = hak_site_register("new");
    assert_true(hak__placement_on);
    assert_int_equal(hak__sampling.period, HAK_PROFILE_PERIOD);
    assert_true(is_apart_in(known));
    assert_false(is_apart_in(new));
    errno = 77;
    uintptr_t none = hak_site_enter(known);
    assert_true(hak__thread->apart);
    uintptr_t outer = hak_site_enter(new); /* the inner scope wins, and gives back */
    assert_false(hak__thread->apart);
    uintptr_t middle = hak_site_enter(0);
    assert_false(hak__thread->apart);
    hak_site_leave(middle);
    hak_site_leave(outer);
    assert_true(hak__thread->apart);
    hak_site_leave(none);
    assert_false(hak__thread->apart);
    assert_int_equal(errno, 77);
}

/* As docs/observability/profile.md says: longjmp does not end a scope, so the thread stays. The end
 * of a scope around it brings it back. */
TEST(longjmp_out_of_a_scope)
{
    jmp_buf place;
    uintptr_t before = hak_site_enter(hak_site_register("new"));
    if (setjmp(place) == 0) {
        hak_site_enter(hak_site_register("known"));
        longjmp(place, 1);
    }
    assert_true(hak__thread->apart);
    hak_free(hak_malloc(100));
    hak_site_leave(before);
    assert_false(hak__thread->apart);
}

static struct site *site_named(const char *name)
{
    return hak__site_of(hak_site_register(name), false);
}

/* Samples that say so place the site at the next look, and others place it no longer. The learner
 * hears of it. */
TEST(a_site_changes)
{
    struct site *site = site_named("changes");
    uint64_t long_ago = 0;
    assert_true(hak__samples_enter(true));
    allocate_of(site, 100, long_ago);
    assert_false(hak__learn_knows_site("changes"));
    hak__samples_leave();
    while (!is_apart_in(site->key)) { /* a look a second */
        usleep(10000);
    }
    assert_true(hak__samples_enter(true));
    assert_true(hak__learn_knows_site("changes"));
    free_of(site, 90, 1);
    hak__samples_leave();
    while (is_apart_in(site->key)) {
        usleep(10000);
    }
    assert_true(hak__samples_enter(true));
    assert_false(hak__learn_knows_site("changes"));
    hak__samples_leave();
    assert_true(is_apart_in(hak_site_register("known"))); /* no samples: stays */
}

/* All names beyond the table's are one site, which says nothing about any of them. */
TEST(the_site_of_all_others_is_not_placed)
{
    char name[16];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_true(hak_site_register(name) != 0);
    }
    assert_true(hak_site_register("too many") == SITE_ID_OTHER);
    assert_false(is_apart_in(SITE_ID_OTHER));
}

TESTS(unit_start)
