/* SPDX-License-Identifier: MIT */
/* prometheus.c: a report in Prometheus' text format. It wants all samples of a metric in one group,
 * below its help and type. Names end in their unit, and in _total if they are counters. */
#include "observe/report.h"

#include "core/lock.h"
#include "os/os.h"

static void prometheus_head(struct report_writer *writer, const char *name, const char *type,
                            const char *help)
{
    hak__report_put(writer, "# HELP hakmem_%s %s\n# TYPE hakmem_%s %s\n", name, help, name, type);
}

static void prometheus_sample(struct report_writer *writer, const char *name, const char *label,
                              const char *label_value, uint64_t value)
{
    hak__report_put(writer, "hakmem_%s{%s=\"%s\"} %lu\n", name, label, label_value, value);
}

/* A metric with one sample; nothing if it is unknown. */
static void prometheus_single(struct report_writer *writer, const char *name, const char *type,
                              uint64_t value, const char *help)
{
    if (value != UINT64_MAX) {
        prometheus_head(writer, name, type, help);
        hak__report_put(writer, "hakmem_%s %lu\n", name, value);
    }
}

static void prometheus_gauges(struct report_writer *writer, const struct report_number *numbers)
{
    for (; numbers->key != NULL; numbers++) {
        prometheus_single(writer, numbers->key, "gauge", numbers->value, numbers->help);
    }
}

static void prometheus_summary(struct report_writer *writer, const struct summary *summary)
{
    const struct report_number gauges[] = {
        {"rss_bytes", summary->memory.rss, "resident memory of the process"},
        {"peak_rss_bytes", summary->memory.peak_rss, "the most resident memory since exec"},
        {"swapped_bytes", summary->memory.swapped, "memory of the process in swap areas"},
        {NULL, 0, NULL}};
    prometheus_gauges(writer, gauges);
    if (!summary->known) {
        return;
    }
    prometheus_head(writer, "resident_bytes", "gauge",
                    "what resident memory is used for; the sum is hakmem_rss_bytes");
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        char name[32];
        uint64_t value = hak__summary_part(summary, part);
        hak__text_make(name, sizeof name, "%s", hak__summary_names[part].key);
        for (char *at = name; *at != '\0'; at++) { /* "in_use_bytes" -> "in_use" */
            *at = hak__text_equal(at, "_bytes") ? '\0' : *at;
        }
        if (value != UINT64_MAX) {
            prometheus_sample(writer, "resident_bytes", "part", name, value);
        }
    }
    prometheus_single(writer, "fragmentation_permille", "gauge", summary->fragmentation,
                      "resident bytes free in slabs, as a part of them and of blocks in use");
}

static void prometheus_totals(struct report_writer *writer, const struct report *report)
{
    const struct hak_stats *stats = &report->stats;
    prometheus_head(writer, "mapped_bytes", "gauge",
                    "address space for user memory, resident or not");
    for (const struct report_total *total = hak__report_totals; total->key != NULL; total++) {
        if (total->part != NULL) {
            prometheus_sample(writer, "mapped_bytes", "part", total->part,
                              report_total_value(stats, total));
        }
    }
    for (const struct report_total *total = hak__report_totals; total->key != NULL; total++) {
        if (total->metric != NULL) {
            prometheus_single(writer, total->metric, "gauge", report_total_value(stats, total),
                              total->help);
        }
    }
    prometheus_single(writer, "huge_allocations", "gauge",
                      stats->whales_count - report->census.whales.small_count,
                      "allocations above 2 MiB in use");
}

static void prometheus_counters(struct report_writer *writer, const struct census *census)
{
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        char name[120];
        hak__text_make(name, sizeof name, "%s_total", hak__report_counters[i].key);
        prometheus_single(writer, name, "counter", census->counters.values[i],
                          hak__report_counters[i].help);
    }
    prometheus_head(writer, "os_calls_total", "counter", "calls into the kernel");
    for (uint32_t i = 0; i < OS_CALL_COUNT; i++) {
        prometheus_sample(writer, "os_calls_total", "call", hak__os_call_names[i],
                          atomic_load_relaxed(&hak__os_calls[i]));
    }
    prometheus_single(writer, "lock_waits_total", "counter",
                      atomic_load_relaxed(&hak__lock_waits.word), "times a lock was found taken");
}

/* What a metric shows: a column of the size classes, or a figure of the sites. */
struct prometheus_metric {
    const char *name;
    const char *type;
    uint32_t what;
    const char *help;
};

static void prometheus_classes(struct report_writer *writer, const struct report *report)
{
    static const struct prometheus_metric metrics[] = {
        {"class_objects_in_use", "gauge", COLUMN_IN_USE, "objects in use, by size class"},
        {"class_objects_cached", "gauge", COLUMN_CACHED,
         "free objects in thread caches, by size class"},
        {"class_objects_free_in_slabs", "gauge", COLUMN_IN_SLABS,
         "free objects in slabs, by size class"},
        {"class_slab_bytes", "gauge", COLUMN_SLAB_BYTES, "address space of slabs, by size class"},
        {"class_resident_bytes", "gauge", COLUMN_RESIDENT,
         "resident bytes of slabs, by size class"},
    };
    for (uint32_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        if (metrics[i].what == COLUMN_RESIDENT && !report->summary.known) {
            continue;
        }
        prometheus_head(writer, metrics[i].name, metrics[i].type, metrics[i].help);
        for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
            char size[24];
            uint64_t values[COLUMN_COUNT];
            hak__report_class(report, class_index, values);
            if (values[COLUMN_SLABS] != 0) {
                hak__text_make(size, sizeof size, "%lu", values[COLUMN_OBJECT_BYTES]);
                prometheus_sample(writer, metrics[i].name, "class", size, values[metrics[i].what]);
            }
        }
    }
}

/* The sites that the program has named, so the labels are few and the same in each run. */
static void prometheus_sites(struct report_writer *writer)
{
    static const struct prometheus_metric metrics[] = {
        {"site_live_bytes", "gauge", SITE_LIVE_BYTES,
         "bytes of blocks in use, by named site, estimated from samples"},
        {"site_live_blocks", "gauge", SITE_LIVE_COUNT,
         "blocks in use, by named site, estimated from samples"},
        {"site_allocated_bytes_total", "counter", SITE_ALLOCATED_BYTES,
         "bytes allocated, by named site, estimated from samples"},
    };
    for (uint32_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        bool first = true;
        for (const struct site *site = hak__site_list_first(); site != NULL; site = site->older) {
            struct site_sums sums;
            uint64_t values[SITE_FIGURES];
            if (!hak__site_is_named(site) || !hak__site_copy(site, &sums)) {
                continue;
            }
            if (first) {
                prometheus_head(writer, metrics[i].name, metrics[i].type, metrics[i].help);
                first = false;
            }
            hak__site_figures(&sums, values);
            prometheus_sample(writer, metrics[i].name, "site", site->name, values[metrics[i].what]);
        }
    }
}

void hak__prometheus_write(struct report_writer *writer, const struct report *report)
{
    prometheus_head(writer, "info", "gauge", "hakmem serves this process; the label: its version");
    prometheus_sample(writer, "info", "version", hak_version(), 1);
    prometheus_single(writer, "process_id", "gauge", hak__os_process_id(), "process id");
    prometheus_summary(writer, &report->summary);
    prometheus_totals(writer, report);
    prometheus_counters(writer, &report->census);
    prometheus_classes(writer, report);
    prometheus_sites(writer);
}
