/* SPDX-License-Identifier: MIT */
/* totals.h: the totals of hak_stats, from a census. */
#ifndef HAK_OBSERVE_TOTALS_H
#define HAK_OBSERVE_TOTALS_H

#include "control/census.h"
#include "hakmem/stats.h"

/* Fills all of `*stats`. The census was taken just before. Any thread, no lock. */
HAK_HIDDEN void hak__stats_from_census(struct hak_stats *stats, const struct census *census);

#endif
