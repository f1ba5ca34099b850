/* SPDX-License-Identifier: MIT */
/* point.h: a point is one setting of the knobs that the learner may turn; a move leads from one
 * point to a neighbour by turning one knob.
 *
 * Pure functions, thread-safe. */
#ifndef HAK_LEARN_POINT_H
#define HAK_LEARN_POINT_H

#include "core/knobs.h"

struct learn_point {
    uint32_t purge_delay_ms;
    uint32_t bin_bytes_max;
    uint64_t cache_bytes;
    uint64_t whale_cache_bytes;
    uint64_t huge_threshold;
};

/* In the order in which they are tried: those first that cost little time if they are wrong. */
enum learn_move {
    LEARN_LARGER_BINS,  /* four times the bytes */
    LEARN_PURGE_LATER,  /* four times the delay */
    LEARN_WHALES,       /* freed huge allocations kept up to the recent peak */
    LEARN_HUGE,         /* huge pages from the usual heap size on */
    LEARN_SMALLER_BINS, /* a quarter of the bytes */
    LEARN_PURGE_SOONER, /* a quarter of the delay */
    LEARN_NO_HUGE,      /* no huge pages */
    LEARN_NO_WHALES,    /* no freed huge allocations kept */
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

#endif
