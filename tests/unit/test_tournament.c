/* SPDX-License-Identifier: MIT */
/* test_tournament.c: learn/tournament against programs whose costs are known: a function of the
 * setting, with noise from a fixed seed. So each run is the same, and no test can fail by chance.
 * It is arithmetic alone, slow under an emulator.
 *
 * ctest: no-qemu */
#include "unit.h"

#include "learn/tournament.h"

#include <math.h>

enum { SEEDS = 1000, STRETCHES = 1200, CHANGE_AT = 1100 };
#define STRETCH_NS 500e6

/* A program: what a stretch with a setting costs. */
struct program {
    double (*time)(const struct learn_point *point, uint32_t stretch);
    double (*memory)(const struct learn_point *point, uint32_t stretch);
    double noise; /* relative, of the time; a quarter of it, of the memory */
    uint64_t random;
};

static const struct learn_point usual = {.purge_delay_ms = 1000,
                                         .bin_bytes_max = 262144,
                                         .cache_bytes = 32 << 20,
                                         .huge_cache_bytes = UINT64_MAX,
                                         .huge_threshold = 8 << 20};

static double uniform(uint64_t *random)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return (double)((*random * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / (double)(UINT64_C(1) << 53);
}

/* Of mean 1; now and then a stretch is much slower, as on a busy machine. */
static double noise(struct program *program, double size)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += uniform(&program->random);
    }
    double outlier = uniform(&program->random) < 0.05 ? 1 + uniform(&program->random) : 1;
    return (1 + size * (sum - 6)) * outlier;
}

/* What a thousand runs of a program, each with other noise, made of it. */
struct outcome {
    uint32_t adopted, froze, opened;
    uint32_t huge_gone, bins_changed, both; /* of the last setting */
    uint32_t settled, settled_opened;       /* froze well before CHANGE_AT; and opened again */
    double worst; /* the most time a run took, relative to the usual setting throughout */
};

static void run(struct outcome *outcome, struct program program, const struct learn_point *start,
                uint64_t seed, uint32_t stretches)
{
    struct tournament tournament;
    struct learn_test decided;
    double time = 0, time_usual = 0;
    uint32_t frozen_from = 0, opened = 0;
    program.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    hak__tournament_begin(&tournament, start, start == &usual ? NULL : &usual, seed, 1);
    for (uint32_t i = 0; i < stretches; i++) {
        struct learn_point point = *hak__tournament_next(&tournament);
        double quiet = program.time(&point, i);
        struct learn_cost cost = {quiet * noise(&program, program.noise),
                                  program.memory(&point, i) * noise(&program, program.noise / 4)};
        time += quiet;
        time_usual += program.time(&usual, i);
        enum learn_verdict verdict =
            hak__tournament_result(&tournament, &cost, STRETCH_NS, &decided);
        outcome->adopted += verdict == LEARN_ADOPTED;
        outcome->froze += verdict == LEARN_FROZE;
        opened += verdict == LEARN_OPENED;
        frozen_from = verdict == LEARN_FROZE && frozen_from == 0 ? i : frozen_from;
    }
    bool settled = frozen_from != 0 && frozen_from < CHANGE_AT - 100;
    bool huge_gone = tournament.champion.huge_threshold == UINT64_MAX;
    outcome->opened += opened;
    outcome->settled += settled;
    outcome->settled_opened += settled && opened != 0;
    outcome->huge_gone += huge_gone;
    outcome->bins_changed += tournament.champion.bin_bytes_max != usual.bin_bytes_max;
    outcome->both += huge_gone && tournament.champion.bin_bytes_max < usual.bin_bytes_max;
    outcome->worst = time > outcome->worst * time_usual ? time / time_usual : outcome->worst;
}

static struct outcome run_all(const char *what, struct program program,
                              const struct learn_point *start, uint32_t stretches)
{
    struct outcome outcome = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run(&outcome, program, start, seed, stretches);
    }
    print_message("%s: of %u %u adopted, %u froze, %u opened, %u without huge pages, %u other "
                  "bins, %u found both; worst time %.4f\n",
                  what, SEEDS, outcome.adopted, outcome.froze, outcome.opened, outcome.huge_gone,
                  outcome.bins_changed, outcome.both, outcome.worst);
    return outcome;
}

static double flat(const struct learn_point *point, uint32_t stretch)
{
    return 10;
}

/* Each quarter of the bins' bytes takes 8 % of the memory, and huge pages double the time. */
static double memory_of_bins(const struct learn_point *point, uint32_t stretch)
{
    return 1e8 * pow(0.60, log2(262144.0 / point->bin_bytes_max) / 2);
}

static double time_of_huge(const struct learn_point *point, uint32_t stretch)
{
    return point->huge_threshold == UINT64_MAX ? 10 : 11;
}

/* A smaller bin saves memory and costs time: no change for somebody who wants neither worse. */
static double time_of_bins(const struct learn_point *point, uint32_t stretch)
{
    return 10 * pow(1.04, log2(262144.0 / point->bin_bytes_max) / 2);
}

static double bad_without_huge(const struct learn_point *point, uint32_t stretch)
{
    return point->huge_threshold == UINT64_MAX ? 12 : 10;
}

/* The two halves of each 120 stretches (a minute) want opposite settings. */
static double alternates(const struct learn_point *point, uint32_t stretch)
{
    bool huge = point->huge_threshold != UINT64_MAX;
    return stretch / 60 % 2 == 0 ? (huge ? 10 : 12) : (huge ? 12 : 10);
}

static double doubles_later(const struct learn_point *point, uint32_t stretch)
{
    return stretch < CHANGE_AT ? 10 : 20;
}

TEST(gains)
{
    struct program none = {flat, flat, 0.05, 0}, both = {time_of_huge, memory_of_bins, 0.02, 0},
                   costly = {time_of_bins, memory_of_bins, 0.02, 0};
    struct outcome outcome = run_all("nothing to gain", none, &usual, STRETCHES);
    /* a change is adopted in at most 1 of 1,000 tests, and there are some 8 a run */
    assert_true(outcome.adopted <= SEEDS / 100 && outcome.froze >= SEEDS * 9 / 10);
    outcome = run_all("gain", both, &usual, STRETCHES);
    assert_true(outcome.both >= SEEDS * 95 / 100);
    outcome = run_all("4 % of time for 40 % of memory", costly, &usual, STRETCHES);
    assert_true(outcome.bins_changed <= SEEDS / 50);
}

TEST(losses)
{
    struct program huge = {bad_without_huge, flat, 0.04, 0}, turns = {alternates, flat, 0.04, 0};
    struct learn_point bad = usual;
    bad.huge_threshold = UINT64_MAX;
    assert_int_equal(run_all("planted bad setting", huge, &bad, 200).huge_gone, 0);
    assert_true(run_all("cost of trying", huge, &usual, STRETCHES).worst <= 1.01);
    assert_true(run_all("alternation", turns, &usual, STRETCHES).worst <= 1.03);
}

TEST(change_opens)
{
    struct program doubles = {doubles_later, flat, 0.04, 0}, same = {flat, flat, 0.04, 0};
    struct outcome outcome = run_all("a change", doubles, &usual, CHANGE_AT + 100);
    assert_true(outcome.settled >= SEEDS * 9 / 10);
    assert_int_equal(outcome.settled_opened, outcome.settled);
    assert_int_equal(run_all("no change", same, &usual, CHANGE_AT + 100).opened, 0);
}

TESTS(NULL)
