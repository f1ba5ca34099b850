/* SPDX-License-Identifier: MIT */
/* tournament.h: decides by evidence which setting of the knobs serves the program best.
 *
 * The program runs for short stretches with the champion's setting or with a challenger's, which
 * differs in one knob. Two such stretches, in random order, are a pair. The challenger wins the
 * pair if time and memory together cost at least LEARN_GAIN_MIN less.
 *
 *   adopted   Its wins would be a chance of 1 in LEARN_EVIDENCE_ADOPT for a setting without that
 *             gain. Besides, the medians of its LEARN_PAIRS_MAX pairs cost at most LEARN_GAIN_MIN
 *             more time and twice that more memory.
 *   dropped   Its other pairs would be a chance of 1 in LEARN_EVIDENCE_DROP for a setting with that
 *             gain. Or it has cost much time and has not won more than half of its pairs.
 *
 * Evidence is the capital of a gambler who bets half of it on each pair (J. Ville, 1939; G. Shafer,
 * "Testing by betting", 2021). He cannot expect to gain if the pairs are even, whenever he stops.
 * So a test may be looked at after each pair, which a test of a fixed size may not.
 *
 * After an adoption the old setting is the first challenger, and LEARN_EVIDENCE_DROP is enough for
 * it (the canary). When all moves have been tried in vain the setting is frozen, until the cost
 * moves away from what it was. Challengers together may cost five thousandths of the time; if
 * they have cost more, the champion runs alone for a while.
 *
 * The decisions depend on the results and the seed only. No clock, no lock: one thread at a
 * time. */
#ifndef HAK_LEARN_TOURNAMENT_H
#define HAK_LEARN_TOURNAMENT_H

#include "core/knobs.h"

/* A point is one setting of the knobs that the learner may turn; a move leads to a neighbour by
 * turning one knob. */
#define LEARN_KNOBS(X)                                                                             \
    X(uint32_t, purge_delay_ms, "purge_delay_ms")                                                  \
    X(uint32_t, bin_bytes_max, "bin_bytes")                                                        \
    X(uint64_t, cache_bytes, "cache_bytes")                                                        \
    X(uint64_t, huge_cache_bytes, "huge_cache_bytes")                                              \
    X(uint64_t, huge_threshold, "huge_threshold")
#define X(type, knob, name) type knob;
struct learn_point {
    LEARN_KNOBS(X)
};
#undef X

/* In the order in which they are tried: those first that cost little time if they are wrong. */
enum learn_move {
    LEARN_LARGER_BINS,   /* four times the bytes */
    LEARN_PURGE_LATER,   /* four times the delay */
    LEARN_HUGE,          /* freed huge blocks kept up to the recent peak */
    LEARN_HUGE_PAGES,    /* huge pages from the usual heap size on */
    LEARN_SMALLER_BINS,  /* a quarter of the bytes */
    LEARN_PURGE_SOONER,  /* a quarter of the delay */
    LEARN_NO_HUGE_PAGES, /* no huge pages */
    LEARN_NO_HUGE,       /* no freed huge blocks kept */
    LEARN_MOVES,
    LEARN_BACK = LEARN_MOVES, /* to the point before the last adoption */
    LEARN_MOVES_ALL
};

/* The present setting of the knobs. */
HAK_HIDDEN struct learn_point hak__learn_point_now(void);
/* Turns the knobs. Any thread: knobs are read relaxed. */
HAK_HIDDEN void hak__learn_point_set(const struct learn_point *point);
HAK_HIDDEN bool hak__learn_point_equal(const struct learn_point *a, const struct learn_point *b);
/* Stores the neighbour of `from` in *to. False: the knob stands at its end already. */
HAK_HIDDEN bool hak__learn_point_move(enum learn_move move, const struct learn_point *from,
                                      struct learn_point *to);
/* True if moves lead from `options` to the point, or might: each knob has the options' value or one
 * that a move may give it. */
HAK_HIDDEN bool hak__learn_point_is_reached(const struct learn_point *options,
                                            const struct learn_point *point);
/* The name of the move, such as "smaller_bins". */
HAK_HIDDEN const char *hak__learn_move_name(enum learn_move move);

/* Pairs of a challenger that is adopted. Twice: tests take twice the time. Half: gains of little
 * more than LEARN_GAIN_MIN are not found, and a median may be wrong by more than 1 %. */
#define LEARN_PAIRS_MAX 40u

struct learn_cost {
    double time;   /* processor time for each byte allocated, ns */
    double memory; /* mean of the process's resident bytes */
};

enum learn_verdict {
    LEARN_GOES_ON,
    LEARN_ADOPTED,
    LEARN_DROPPED,
    LEARN_WENT_BACK, /* the canary has won */
    LEARN_FROZE,     /* dropped, and no move is left */
    LEARN_OPENED     /* the workload has changed */
};

/* A challenger's test. */
struct learn_test {
    enum learn_move move;
    struct learn_point point;
    uint32_t pairs;
    uint32_t wins;
    bool won; /* its wins have been enough */
    double evidence_for;
    double evidence_against;
    double regret; /* ns of extra time */
    /* The differences of each pair, in tenths of a percent of the mean of both. Below 0: the
     * challenger cost less. */
    int16_t time[LEARN_PAIRS_MAX];
    int16_t memory[LEARN_PAIRS_MAX];
};

struct tournament {
    struct learn_point champion;
    struct learn_point before; /* the champion before the last adoption */
    struct learn_test test;
    uint64_t random;
    double memory_weight; /* of a relative difference of memory, beside 1 for time. Above 1 time may
                             be paid for memory, below 1 memory for time, at 1 neither. */
    uint32_t tried;       /* set of bits: moves tried since the last adoption */
    bool has_before;
    bool frozen;
    bool challenger_runs; /* in the present stretch */
    bool second;          /* the present stretch is the second of its pair */
    bool alone;           /* the present stretch is the champion's, without a pair */
    struct learn_cost first;
    double regret; /* ns of extra time by challengers, above 0 */
    double time;   /* ns of all stretches */
    /* Of the frozen setting. Stretches that tell what the frozen setting costs; their median is the
     * usual cost. Half: a poor estimate. Twice: changes that come soon after are taken for the
     * usual. */
    double usual_time[16];
    double usual_memory[16];
    double evidence_shift[4]; /* time up, time down, memory up, memory down */
    uint32_t usual_count;
};

/* Starts at the present setting `champion`. If `before` is not NULL, the champion was learned in an
 * earlier run, and `before` is the setting that it has to stand against first. */
HAK_HIDDEN void hak__tournament_begin(struct tournament *tournament,
                                      const struct learn_point *champion,
                                      const struct learn_point *before, uint64_t seed,
                                      double memory_weight);
/* The setting for the next stretch. */
HAK_HIDDEN const struct learn_point *hak__tournament_next(struct tournament *tournament);
/* The result of that stretch, which took `time_ns` of processor time. After LEARN_ADOPTED and later
 * ones, `*decided` is the test that led there. */
HAK_HIDDEN enum learn_verdict hak__tournament_result(struct tournament *tournament,
                                                     const struct learn_cost *cost, double time_ns,
                                                     struct learn_test *decided);

#endif
