/* SPDX-License-Identifier: MIT */
/* report.h: all that a report describes, taken at once. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "observe/report_writer.h"
#include "observe/site_list.h"
#include "observe/summary.h"

struct report {
    struct census census;
    struct hak_stats stats;
    struct summary summary;
    struct site_list sites;
};

/* What a report says of each size class, in the order of the columns of its table. */
enum report_column {
    COLUMN_OBJECT_BYTES,
    COLUMN_SLABS,
    COLUMN_SLAB_BYTES,
    COLUMN_IN_USE,
    COLUMN_CACHED,
    COLUMN_IN_SLABS,
    COLUMN_NOT_CARVED,
    COLUMN_RESIDENT,
    COLUMN_COUNT
};
HAK_HIDDEN void hak__report_class(const struct report *report, uint32_t class_index,
                                  uint64_t values[COLUMN_COUNT]);

/* The keys and the help texts of the counters, in the order of enum counter. */
struct report_counter {
    const char *key;
    const char *help;
};
HAK_HIDDEN extern const struct report_counter hak__report_counters[COUNTER_COUNT];

/* The fields of struct hak_stats, in the order in which a report has them. The last one has no key.
 * In Prometheus' text it is a part of the metric mapped_bytes, or a metric of its own, or
 * neither. */
struct report_total {
    const char *key;
    size_t offset;
    const char *help;
    const char *part;
    const char *metric;
};
HAK_HIDDEN extern const struct report_total hak__report_totals[];
HAK_INLINE uint64_t report_total_value(const struct hak_stats *stats,
                                       const struct report_total *total)
{
    return *(const size_t *)(const void *)((const char *)stats + total->offset);
}

/* Tells `sink` the names of hak_stats_value, as hak__report_list_names says it. */
HAK_HIDDEN void hak__report_names(hak_report_sink *sink, void *argument);

/* hak_report in the format of the name. */
HAK_HIDDEN void hak__report_summary(hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_text(hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_json(hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_prometheus(hak_report_sink *sink, void *argument);

/* The summary as text, with the sites that hold most if there are any. Figures in MiB and in
 * percent are rounded so that their sums are exact, too. */
HAK_HIDDEN void hak__summary_write_text(struct report_writer *writer, const struct report *report);
/* The report in Prometheus' text format
 * (https://prometheus.io/docs/instrumenting/exposition_formats), without unknown figures. */
HAK_HIDDEN void hak__prometheus_write(struct report_writer *writer, const struct report *report);

#endif
