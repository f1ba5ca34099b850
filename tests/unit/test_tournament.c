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
                                         .whale_cache_bytes = UINT64_MAX,
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

struct outcome {
    uint32_t adopted, dropped, went_back, froze, opened;
    uint32_t frozen_from;       /* stretch at which it froze first */
    uint32_t stretches_to_back; /* until the canary won; 0: it did not */
    double time;                /* ns for each byte, mean */
    double time_usual;          /* what the usual setting would have taken, without noise */
    struct learn_point last;
};

static struct outcome run(struct program program, const struct learn_point *start,
                          const struct learn_point *before, uint64_t seed, uint32_t stretches)
{
    struct outcome outcome = {0};
    struct tournament tournament;
    struct learn_test decided;
    program.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    hak__tournament_begin(&tournament, start, before, seed, 1);
    for (uint32_t i = 0; i < stretches; i++) {
        struct learn_point point = *hak__tournament_next(&tournament);
        double quiet = program.time(&point, i);
        struct learn_cost cost = {quiet * noise(&program, program.noise),
                                  program.memory(&point, i) * noise(&program, program.noise / 4)};
        outcome.time += quiet;
        outcome.time_usual += program.time(&usual, i);
        switch (hak__tournament_result(&tournament, &cost, STRETCH_NS, &decided)) {
        case LEARN_ADOPTED:
            outcome.adopted++;
            break;
        case LEARN_WENT_BACK:
            outcome.went_back++;
            outcome.stretches_to_back =
                outcome.stretches_to_back == 0 ? i + 1 : outcome.stretches_to_back;
            break;
        case LEARN_DROPPED:
            outcome.dropped++;
            break;
        case LEARN_FROZE:
            outcome.frozen_from = outcome.froze++ == 0 ? i : outcome.frozen_from;
            break;
        case LEARN_OPENED:
            outcome.opened++;
            break;
        default:
            break;
        }
    }
    outcome.last = tournament.champion;
    return outcome;
}

static double flat(const struct learn_point *point, uint32_t stretch)
{
    (void)stretch;
    return 10;
}

/* Each quarter of the bins' bytes takes 8 % of the memory, and huge pages double the time. */
static double memory_of_bins(const struct learn_point *point, uint32_t stretch)
{
    (void)stretch;
    return 1e8 * pow(0.60, log2(262144.0 / point->bin_bytes_max) / 2);
}

static double time_of_huge(const struct learn_point *point, uint32_t stretch)
{
    (void)stretch;
    return point->huge_threshold == UINT64_MAX ? 10 : 11;
}

/* A smaller bin saves memory and costs time: no change for somebody who wants neither worse. */
static double time_of_bins(const struct learn_point *point, uint32_t stretch)
{
    (void)stretch;
    return 10 * pow(1.04, log2(262144.0 / point->bin_bytes_max) / 2);
}

static double bad_without_huge(const struct learn_point *point, uint32_t stretch)
{
    (void)stretch;
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

/* Nothing to gain: a change is adopted in at most 1 of 1,000 tests, and there are some 8 a run. */
TEST(nothing_to_gain)
{
    uint32_t adopted = 0, dropped = 0, froze = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct outcome outcome =
            run((struct program){flat, flat, 0.05, 0}, &usual, NULL, seed, STRETCHES);
        adopted += outcome.adopted;
        dropped += outcome.dropped;
        froze += outcome.froze;
    }
    print_message("nothing to gain: %u adopted, %u dropped, %u froze of %u\n", adopted, dropped,
                  froze, SEEDS);
    assert_true(adopted <= SEEDS / 100);
    assert_true(froze >= SEEDS * 9 / 10);
}

TEST(gain_is_found)
{
    uint32_t found = 0, back = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct outcome outcome = run((struct program){time_of_huge, memory_of_bins, 0.02, 0},
                                     &usual, NULL, seed, STRETCHES);
        found += outcome.last.huge_threshold == UINT64_MAX && outcome.last.bin_bytes_max < 262144;
        back += outcome.went_back;
    }
    print_message("gain: %u of %u found both, %u went back\n", found, SEEDS, back);
    assert_true(found >= SEEDS * 95 / 100);
}

TEST(no_gain_at_the_others_cost)
{
    uint32_t changed = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct outcome outcome = run((struct program){time_of_bins, memory_of_bins, 0.02, 0},
                                     &usual, NULL, seed, STRETCHES);
        changed += outcome.last.bin_bytes_max != usual.bin_bytes_max;
    }
    print_message("4 %% of time for 40 %% of memory: %u of %u changed\n", changed, SEEDS);
    assert_true(changed <= SEEDS / 50);
}

TEST(planted_bad_setting_goes)
{
    struct learn_point bad = usual;
    bad.huge_threshold = UINT64_MAX;
    uint32_t gone = 0, latest = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct outcome outcome =
            run((struct program){bad_without_huge, flat, 0.04, 0}, &bad, &usual, seed, 200);
        gone += outcome.last.huge_threshold != UINT64_MAX;
        latest = outcome.stretches_to_back > latest ? outcome.stretches_to_back : latest;
    }
    print_message("planted: gone in %u of %u, at most %u stretches\n", gone, SEEDS, latest);
    assert_int_equal(gone, SEEDS);
}

/* The most time a run took, learning included, relative to the usual setting throughout. */
static double worst_ratio(const char *what, struct program program)
{
    double worst = 0, sum = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct outcome outcome = run(program, &usual, NULL, seed, STRETCHES);
        double ratio = outcome.time / outcome.time_usual;
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
    }
    print_message("%s: mean %.4f, worst %.4f\n", what, sum / SEEDS, worst);
    return worst;
}

TEST(alternation)
{
    assert_true(worst_ratio("alternation", (struct program){alternates, flat, 0.04, 0}) <= 1.03);
}

TEST(cost_of_trying)
{
    assert_true(worst_ratio("cost", (struct program){bad_without_huge, flat, 0.04, 0}) <= 1.01);
}

TEST(change_opens)
{
    uint32_t opened = 0, frozen = 0, opened_flat = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct program program = {doubles_later, flat, 0.04, 0};
        struct outcome outcome = run(program, &usual, NULL, seed, CHANGE_AT + 100);
        bool settled = outcome.frozen_from != 0 && outcome.frozen_from < CHANGE_AT - 100;
        frozen += settled;
        opened += settled && outcome.opened != 0;
        program.time = flat;
        opened_flat += run(program, &usual, NULL, seed, CHANGE_AT + 100).opened;
    }
    print_message("opened %u of %u, without a change %u of %u\n", opened, frozen, opened_flat,
                  SEEDS);
    assert_true(frozen >= SEEDS * 9 / 10);
    assert_int_equal(opened, frozen);
    assert_int_equal(opened_flat, 0);
}

TESTS(NULL)
