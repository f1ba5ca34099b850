/* SPDX-License-Identifier: MIT */
/* tournament.c: see tournament.h. */
#include "learn/tournament.h"

/* Smallest relative gain that is worth a change. Twice: gains of 1 to 2 % are left. Half: changes
 * that nobody notices are adopted. */
#define LEARN_GAIN_MIN 0.01
/* Odds against chance: to adopt a challenger, or to say that the cost has changed, and to drop one
 * or go back. Twice: one or two pairs more for each decision. Half: twice as many wrong decisions
 * of that kind, at most 1 in 500 challengers for the first. */
#define LEARN_EVIDENCE_ADOPT 1000.0
#define LEARN_EVIDENCE_DROP 20.0
/* What challengers may cost together at the start, in ns. A challenger that alone has cost this
 * goes if it has not won more than half of its pairs. Twice: a quicker tournament, and a program
 * that is slower by so much meanwhile. */
#define LEARN_REGRET_START_NS 250e6

static double relative(double a, double b)
{
    double sum = a + b;
    return sum > 0 ? 2 * (a - b) / sum : 0;
}

/* xorshift64*, as arena/sampling.c. */
static bool tournament_flip(struct tournament *tournament)
{
    uint64_t state = tournament->random;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    tournament->random = state;
    return (state * UINT64_C(0x2545f4914f6cdd1d)) >> 63 != 0;
}

/* True: challengers have cost more than they may. */
static bool tournament_overdrawn(const struct tournament *tournament)
{
    /* Five thousandths of the time. Twice: as LEARN_REGRET_START_NS. */
    return tournament->regret > LEARN_REGRET_START_NS + tournament->time * 0.005;
}

static void tournament_begin_test(struct tournament *tournament, enum learn_move move,
                                  const struct learn_point *point)
{
    tournament->test = (struct learn_test){
        .move = move, .point = *point, .evidence_for = 1, .evidence_against = 1};
    tournament->second = false;
}

static void tournament_freeze(struct tournament *tournament)
{
    tournament->frozen = true;
    tournament->usual_count = 0;
    for (uint32_t i = 0; i < HAK_COUNT_OF(tournament->evidence_shift); i++) {
        tournament->evidence_shift[i] = 1;
    }
}

/* The next challenger: the old setting after an adoption, else the next move that changes
 * something. False: none is left. */
static bool tournament_choose(struct tournament *tournament)
{
    if (tournament->has_before && (tournament->tried & (1u << LEARN_BACK)) == 0) {
        tournament->tried |= 1u << LEARN_BACK;
        tournament_begin_test(tournament, LEARN_BACK, &tournament->before);
        return true;
    }
    for (uint32_t move = 0; move < LEARN_MOVES; move++) {
        struct learn_point point;
        bool tried = (tournament->tried & (1u << move)) != 0;
        tournament->tried |= 1u << move;
        if (!tried && hak__learn_point_move(move, &tournament->champion, &point) &&
            !(tournament->has_before && hak__learn_point_equal(&point, &tournament->before))) {
            tournament_begin_test(tournament, move, &point);
            return true;
        }
    }
    return false;
}

void hak__tournament_begin(struct tournament *tournament, const struct learn_point *champion,
                           const struct learn_point *before, uint64_t seed, double memory_weight)
{
    *tournament = (struct tournament){.champion = *champion,
                                      .has_before = before != NULL,
                                      .random = seed == 0 ? 1 : seed,
                                      .memory_weight = memory_weight};
    if (before != NULL) {
        tournament->before = *before;
    }
    if (!tournament_choose(tournament)) {
        tournament_freeze(tournament);
    }
}

const struct learn_point *hak__tournament_next(struct tournament *tournament)
{
    tournament->alone =
        tournament->frozen || (!tournament->second && tournament_overdrawn(tournament));
    if (tournament->alone) {
        tournament->challenger_runs = false;
    } else if (tournament->second) {
        tournament->challenger_runs = !tournament->challenger_runs;
    } else {
        tournament->challenger_runs = tournament_flip(tournament);
    }
    return tournament->challenger_runs ? &tournament->test.point : &tournament->champion;
}

/* The bet on one pair, half of the capital at even odds: the best for settings that win 3 of 4
 * pairs (J. L. Kelly, 1956). */
static void evidence_add(double *odds, bool won)
{
    *odds *= won ? 1.5 : 0.5;
}

/* A relative difference in tenths of a percent; its bound is that of `relative`. */
static int16_t test_thousandths(double difference)
{
    return (int16_t)(difference * 1000);
}

static void test_add(struct learn_test *test, double time, double memory, double memory_weight)
{
    bool won = time + memory_weight * memory < -LEARN_GAIN_MIN;
    test->time[test->pairs] = test_thousandths(time);
    test->memory[test->pairs++] = test_thousandths(memory);
    test->wins += won;
    evidence_add(&test->evidence_for, won);
    evidence_add(&test->evidence_against, !won);
}

static enum learn_verdict tournament_after_drop(struct tournament *tournament)
{
    if (tournament_choose(tournament)) {
        return LEARN_DROPPED;
    }
    tournament_freeze(tournament);
    return LEARN_FROZE;
}

static enum learn_verdict tournament_adopt(struct tournament *tournament)
{
    bool back = tournament->test.move == LEARN_BACK;
    tournament->before = tournament->champion;
    tournament->champion = tournament->test.point;
    tournament->has_before = true;
    /* The setting that has just lost is no challenger again, and neither is the move to it. */
    tournament->tried = back ? tournament->tried : 0;
    if (!tournament_choose(tournament)) {
        tournament_freeze(tournament);
    }
    return back ? LEARN_WENT_BACK : LEARN_ADOPTED;
}

/* At most LEARN_PAIRS_MAX values. */
static double median(const double *values, uint32_t count)
{
    double sorted[LEARN_PAIRS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = values[i];
    }
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2; /* the middle one, or both */
}

/* The median difference of the pairs, as a part of 1. */
static double test_median(const int16_t differences[LEARN_PAIRS_MAX], uint32_t count)
{
    double values[LEARN_PAIRS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        values[i] = differences[i] / 1000.0;
    }
    return median(values, count);
}

/* True: the challenger pays for its gain with what the user values as much or more: it costs as
 * much as a change of hakmem itself may. Twice: programs become slower or larger by that for a gain
 * in the other. Half: the noise of a test refuses good changes. */
static bool tournament_harms(const struct tournament *tournament)
{
    const struct learn_test *test = &tournament->test;
    return (tournament->memory_weight <= 1 &&
            test_median(test->time, test->pairs) > LEARN_GAIN_MIN) ||
           (tournament->memory_weight >= 1 &&
            test_median(test->memory, test->pairs) > 2 * LEARN_GAIN_MIN);
}

/* True: the challenger, which is no canary, is as good as proven. Its pairs go on to the last one,
 * because only their medians tell what it costs. */
static bool test_has_won(struct learn_test *test)
{
    test->won |= test->evidence_for >= LEARN_EVIDENCE_ADOPT;
    return test->won;
}

/* True: the challenger is not worth further pairs. A canary is: it must not go for want of time. */
static bool tournament_is_useless(const struct tournament *tournament)
{
    const struct learn_test *test = &tournament->test;
    return test->evidence_against >= LEARN_EVIDENCE_DROP ||
           (test->move != LEARN_BACK && 2 * test->wins <= test->pairs &&
            test->regret > LEARN_REGRET_START_NS);
}

static enum learn_verdict tournament_judge(struct tournament *tournament)
{
    struct learn_test *test = &tournament->test;
    bool last = test->pairs == LEARN_PAIRS_MAX;
    bool adopt = test->move == LEARN_BACK
                     ? test->evidence_for >= LEARN_EVIDENCE_DROP
                     : test_has_won(test) && last && !tournament_harms(tournament);
    if (adopt) {
        return tournament_adopt(tournament);
    }
    if (last || (!test->won && tournament_is_useless(tournament))) {
        return tournament_after_drop(tournament);
    }
    return LEARN_GOES_ON;
}

/* A pair is complete. */
static void tournament_pair(struct tournament *tournament, const struct learn_cost *cost,
                            double time_ns)
{
    const struct learn_cost *challenger = tournament->challenger_runs ? cost : &tournament->first;
    const struct learn_cost *champion = tournament->challenger_runs ? &tournament->first : cost;
    double time = relative(challenger->time, champion->time);
    double memory = relative(challenger->memory, champion->memory);
    tournament->test.regret += time * time_ns;
    tournament->regret += time * time_ns;
    tournament->regret = tournament->regret > 0 ? tournament->regret : 0;
    test_add(&tournament->test, time, memory, tournament->memory_weight);
}

/* Adds a stretch to the evidence that a cost has changed. Below 1 it starts anew, so that it always
 * counts from the moment that makes most of it (an e-detector: J. Shin, A. Ramdas, A. Rinaldo,
 * 2022). Twice the odds: noticed two stretches later. */
static bool shift_add(double *odds, bool away)
{
    evidence_add(odds, away);
    *odds = *odds > 1 ? *odds : 1;
    return *odds >= LEARN_EVIDENCE_ADOPT;
}

static bool tournament_has_shifted(struct tournament *tournament, const struct learn_cost *cost)
{
    double time =
        relative(cost->time, median(tournament->usual_time, HAK_COUNT_OF(tournament->usual_time)));
    double memory = relative(
        cost->memory, median(tournament->usual_memory, HAK_COUNT_OF(tournament->usual_time)));
    /* The relative change that counts as another workload. Twice: some changes go unnoticed. Half:
     * noisy programs are tested again and again. */
    const double much = 0.2;
    bool away[] = {time > much, -time > much, memory > much, -memory > much};
    bool shifted = false;
    for (uint32_t i = 0; i < HAK_COUNT_OF(tournament->evidence_shift); i++) {
        shifted |= shift_add(&tournament->evidence_shift[i], away[i]);
    }
    return shifted;
}

/* A stretch of the frozen champion. */
static enum learn_verdict tournament_watch(struct tournament *tournament,
                                           const struct learn_cost *cost)
{
    if (tournament->usual_count < HAK_COUNT_OF(tournament->usual_time)) {
        tournament->usual_time[tournament->usual_count] = cost->time;
        tournament->usual_memory[tournament->usual_count++] = cost->memory;
        return LEARN_GOES_ON;
    }
    if (!tournament_has_shifted(tournament, cost)) {
        return LEARN_GOES_ON;
    }
    tournament->frozen = false;
    tournament->tried = 0;
    if (!tournament_choose(tournament)) {
        tournament_freeze(tournament);
        return LEARN_GOES_ON;
    }
    return LEARN_OPENED;
}

enum learn_verdict hak__tournament_result(struct tournament *tournament,
                                          const struct learn_cost *cost, double time_ns,
                                          struct learn_test *decided)
{
    tournament->time += time_ns;
    *decided = tournament->test;
    if (tournament->frozen) {
        return tournament_watch(tournament, cost);
    }
    if (tournament->alone) {
        return LEARN_GOES_ON;
    }
    if (!tournament->second) {
        tournament->first = *cost;
        tournament->second = true;
        return LEARN_GOES_ON;
    }
    tournament->second = false;
    tournament_pair(tournament, cost, time_ns);
    *decided = tournament->test;
    return tournament_judge(tournament);
}
