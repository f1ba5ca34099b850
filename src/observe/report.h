/* SPDX-License-Identifier: MIT */
/* report.h: all that a report describes, taken at once. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "observe/report_writer.h"
#include "observe/site_list.h"
#include "observe/summary.h"
#include "observe/totals.h"

struct report {
    struct census census;
    struct hak_stats stats;
    struct summary summary;
    struct site_list sites;
};

/* The keys and the help texts of the counters, in the order of enum counter. */
struct report_counter {
    const char *key;
    const char *help;
};
HAK_HIDDEN extern const struct report_counter hak__report_counters[COUNTER_COUNT];

/* Tells `sink` the names of hak_stats_value, as hak__report_list_names says it. */
HAK_HIDDEN void hak__report_names(hak_report_sink *sink, void *argument);

#endif
