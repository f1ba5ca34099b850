/* SPDX-License-Identifier: MIT */
/* point.c: points and moves of the learner (learn/tournament.h). Pure functions, thread-safe. */
#include "learn/tournament.h"

#include "base/atomics.h"
#include "core/limits.h"
#include "core/seal.h"

/* The ends of each knob. Below BINS_LEAST a refill brings one object of many classes, and each
 * malloc of them is slow. Above BINS_MOST a bin holds more than a superslab takes. */
#define LEARN_BINS_LEAST 16384u
/* A purge delay below 16 ms purges between two steps of most programs. One of 64 s keeps more than
 * a server's minute-by-minute burst needs. */
#define LEARN_DELAY_LEAST_MS 16u
#define LEARN_DELAY_MOST_MS 64000u
/* Each move of bins and delays multiplies or divides by this. Twice: fewer steps to the ends, and
 * each one more likely to be too far. Half: steps whose effect is within the noise. */
#define LEARN_STEP 4u
/* As the default profile has it (core/options.c). */
#define LEARN_HUGE_PAGES_THRESHOLD (UINT64_C(8) << 20)

static const char learn_move_names[LEARN_MOVES_ALL][16] = {
    [LEARN_SMALLER_BINS] = "smaller_bins",
    [LEARN_NO_HUGE_PAGES] = "no_huge_pages",
    [LEARN_PURGE_SOONER] = "purge_sooner",
    [LEARN_NO_HUGE] = "keep_no_huge",
    [LEARN_LARGER_BINS] = "larger_bins",
    [LEARN_HUGE_PAGES] = "huge_pages",
    [LEARN_PURGE_LATER] = "purge_later",
    [LEARN_HUGE] = "keep_huge",
    [LEARN_BACK] = "back",
};

struct learn_point hak__learn_point_now(void)
{
#define X(type, knob, name) .knob = atomic_load_relaxed(&hak__knobs.knob),
    return (struct learn_point){LEARN_KNOBS(X)};
#undef X
}

void hak__learn_point_set(const struct learn_point *point)
{
    if (seal_open()) {
#define X(type, knob, name) atomic_store_relaxed(&hak__knobs.knob, point->knob);
        LEARN_KNOBS(X)
#undef X
        seal_close();
        knobs_turned();
    }
}

bool hak__learn_point_equal(const struct learn_point *a, const struct learn_point *b)
{
#define X(type, knob, name) &&a->knob == b->knob
    return true LEARN_KNOBS(X);
#undef X
}

static void point_scale_bins(struct learn_point *point, bool larger)
{
    uint32_t bytes = point->bin_bytes_max;
    /* Above 2 MiB a bin holds more than a superslab takes. */
    if (larger && bytes <= 2097152 / LEARN_STEP) {
        point->bin_bytes_max = bytes * LEARN_STEP;
        point->cache_bytes *= LEARN_STEP;
    } else if (!larger && bytes >= LEARN_BINS_LEAST * LEARN_STEP) {
        point->bin_bytes_max = bytes / LEARN_STEP;
        point->cache_bytes /= LEARN_STEP;
    }
}

static void point_scale_delay(struct learn_point *point, bool later)
{
    uint32_t delay_ms = point->purge_delay_ms;
    if (later && delay_ms < LEARN_DELAY_MOST_MS) {
        point->purge_delay_ms = delay_ms == 0 ? LEARN_DELAY_LEAST_MS : delay_ms * LEARN_STEP;
    } else if (!later && delay_ms > LEARN_DELAY_LEAST_MS) {
        point->purge_delay_ms =
            delay_ms < LEARN_DELAY_MOST_MS ? delay_ms / LEARN_STEP : LEARN_DELAY_MOST_MS;
    }
}

bool hak__learn_point_move(enum learn_move move, const struct learn_point *from,
                           struct learn_point *to)
{
    *to = *from;
    switch (move) {
    case LEARN_SMALLER_BINS:
    case LEARN_LARGER_BINS:
        point_scale_bins(to, move == LEARN_LARGER_BINS);
        break;
    case LEARN_PURGE_SOONER:
    case LEARN_PURGE_LATER:
        point_scale_delay(to, move == LEARN_PURGE_LATER);
        break;
    case LEARN_NO_HUGE_PAGES:
        to->huge_threshold = UINT64_MAX;
        break;
    case LEARN_HUGE_PAGES:
        to->huge_threshold = LEARN_HUGE_PAGES_THRESHOLD;
        break;
    case LEARN_NO_HUGE:
        to->huge_cache_bytes = 0;
        break;
    case LEARN_HUGE:
        to->huge_cache_bytes = UINT64_MAX;
        break;
    default:
        break;
    }
    return !hak__learn_point_equal(from, to);
}

/* The limits of bins that moves lead to; the division loses some bytes on the way. */
static bool point_bins_are_reached(const struct learn_point *options,
                                   const struct learn_point *point)
{
    struct learn_point at = *options;
    bool larger = point->bin_bytes_max > options->bin_bytes_max;
    uint32_t before;
    do {
        before = at.bin_bytes_max;
        if (before == point->bin_bytes_max) {
            uint64_t difference = at.cache_bytes > point->cache_bytes
                                      ? at.cache_bytes - point->cache_bytes
                                      : point->cache_bytes - at.cache_bytes;
            return difference <= LEARN_BINS_LEAST;
        }
        point_scale_bins(&at, larger);
    } while (at.bin_bytes_max != before);
    return false;
}

bool hak__learn_point_is_reached(const struct learn_point *options, const struct learn_point *point)
{
    uint32_t delay_ms = point->purge_delay_ms;
    return point_bins_are_reached(options, point) &&
           (delay_ms == options->purge_delay_ms ||
            (delay_ms >= LEARN_DELAY_LEAST_MS / LEARN_STEP &&
             delay_ms <= LEARN_DELAY_MOST_MS * LEARN_STEP)) &&
           (point->huge_cache_bytes == options->huge_cache_bytes || point->huge_cache_bytes == 0 ||
            point->huge_cache_bytes == UINT64_MAX) &&
           (point->huge_threshold == options->huge_threshold ||
            point->huge_threshold == LEARN_HUGE_PAGES_THRESHOLD ||
            point->huge_threshold == UINT64_MAX);
}

const char *hak__learn_move_name(enum learn_move move)
{
    return learn_move_names[move];
}
