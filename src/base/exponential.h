/* SPDX-License-Identifier: MIT */
/* exponential.h: draws distances that are exponentially distributed, and gives samples their
 * weights. hakmem links to no libm, so both functions compute their logarithm or exponential
 * themselves. Relative errors are below 1e-8. Pure functions; any thread.
 *
 * A request of `size` bytes is sampled if the next point of a Poisson process lies in it. With
 * `period` bytes between two points on average, this has the probability 1 - exp(-size / period). A
 * sample therefore stands for 1 / (1 - exp(-size / period)) requests of its size. The sums over all
 * samples are then right on average, whatever the sizes are (T. Hesterberg's weighting in
 * gperftools and Google's tcmalloc; OpenTelemetry's memory contract asks for the same weights). */
#ifndef HAK_BASE_EXPONENTIAL_H
#define HAK_BASE_EXPONENTIAL_H

#include "base/compiler.h"

/* A distance to the next point, in bytes: at least 0, on average `period`. `random`: 64 uniformly
 * random bits. `period` is at most 2^50. */
HAK_HIDDEN int64_t hak__exponential_draw(uint64_t random, uint64_t period);

/* How many requests a sampled request of `size` bytes stands for: at least 1. `size` 0 counts as 1.
 */
HAK_HIDDEN double hak__exponential_weight(uint64_t size, uint64_t period);

#endif
