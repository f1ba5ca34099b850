/* SPDX-License-Identifier: MIT */
/* prometheus.c: see prometheus.h.
 *
 * The format wants all samples of a metric in one group, below its help and type. Names end in
 * their unit, and in _total if they are counters. */
#include "observe/prometheus.h"

#include "core/lock.h"
#include "os/os.h"

/* Longest of a metric's name and labels. */
#define PROMETHEUS_NAME_SIZE 120

static void prometheus_head(struct report_writer *writer, const char *name, const char *type,
                            const char *help)
{
    const char *const words[] = {"# HELP hakmem_", name, " ", help, "\n",
                                 "# TYPE hakmem_", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hak__report_put(writer, words[i]);
    }
}

/* One line. `label` NULL: without a label. */
static void prometheus_sample(struct report_writer *writer, const char *name, const char *label,
                              const char *label_value, uint64_t value)
{
    char digits[24];
    struct text text = {digits, sizeof digits - 1, 0};
    hak__text_put_unsigned(&text, value);
    digits[text.length] = '\0';
    hak__report_put(writer, "hakmem_");
    hak__report_put(writer, name);
    if (label != NULL) {
        const char *const words[] = {"{", label, "=\"", label_value, "\"}"};
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            hak__report_put(writer, words[i]);
        }
    }
    hak__report_put(writer, " ");
    hak__report_put(writer, digits);
    hak__report_put(writer, "\n");
}

/* A metric with one sample; nothing if it is unknown. */
static void prometheus_single(struct report_writer *writer, const char *name, const char *type,
                              uint64_t value, const char *help)
{
    if (value != UINT64_MAX) {
        prometheus_head(writer, name, type, help);
        prometheus_sample(writer, name, NULL, NULL, value);
    }
}

/* "in_use_bytes" -> "in_use". */
static void prometheus_part_name(char name[32], const char *key)
{
    size_t length = 0;
    while (length < 31 && key[length] != '\0' && hak__text_after(key + length, "_bytes") == NULL) {
        name[length] = key[length];
        length++;
    }
    name[length] = '\0';
}

static void prometheus_summary(struct report_writer *writer, const struct summary *summary)
{
#define X(part, key, title, help) key,
    static const char *const keys[SUMMARY_PARTS] = {SUMMARY_PART_LIST(X)};
#undef X
    prometheus_single(writer, "rss_bytes", "gauge", summary->memory.rss,
                      "resident memory of the process");
    prometheus_single(writer, "peak_rss_bytes", "gauge", summary->memory.peak_rss,
                      "the most resident memory since exec");
    prometheus_single(writer, "swapped_bytes", "gauge", summary->memory.swapped,
                      "memory of the process in swap areas");
    if (!summary->known) {
        return;
    }
    prometheus_head(writer, "resident_bytes", "gauge",
                    "what resident memory is used for; the sum is hakmem_rss_bytes");
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        char name[32];
        prometheus_part_name(name, keys[part]);
        if (part != SUMMARY_NOT_HAKMEM || summary_has_rss(summary)) {
            prometheus_sample(writer, "resident_bytes", "part", name, summary->parts[part]);
        }
    }
    prometheus_single(writer, "fragmentation_permille", "gauge", summary->fragmentation,
                      "resident bytes free in slabs, as a part of them and of blocks in use");
}

static void prometheus_totals(struct report_writer *writer, const struct report *report)
{
    const struct hak_stats *stats = &report->stats;
    static const char *const name = "mapped_bytes", *const label = "part";
    prometheus_head(writer, name, "gauge", "address space for user memory, resident or not");
    prometheus_sample(writer, name, label, "in_use", stats->bytes_in_use);
    prometheus_sample(writer, name, label, "cached", stats->bytes_cached);
    prometheus_sample(writer, name, label, "free_in_slabs", stats->bytes_free_in_slabs);
    prometheus_sample(writer, name, label, "free_dirty", stats->bytes_free_dirty);
    prometheus_sample(writer, name, label, "free_clean", stats->bytes_free_clean);
    prometheus_sample(writer, name, label, "discarded", stats->bytes_discarded);
    prometheus_single(writer, "metadata_bytes", "gauge", stats->bytes_metadata,
                      "address space for tables, heaps and threads");
    prometheus_single(writer, "peak_mapped_bytes", "gauge", stats->peak_bytes_mapped,
                      "the most address space, tables included");
    prometheus_single(writer, "peak_taken_bytes", "gauge", stats->peak_bytes_taken,
                      "the most bytes in slabs, spans and huge allocations");
    prometheus_single(writer, "objects_in_use", "gauge", stats->objects_in_use_count,
                      "allocations not freed");
    prometheus_single(writer, "heaps", "gauge", stats->heaps_count, "heaps");
    prometheus_single(writer, "heaps_parked", "gauge", stats->heaps_parked_count,
                      "heaps without a thread");
    prometheus_single(writer, "threads", "gauge", stats->threads_count, "threads with a cache");
    prometheus_single(writer, "superslabs", "gauge", stats->superslabs_count,
                      "superslabs of 2 MiB");
    prometheus_single(writer, "huge_allocations", "gauge",
                      stats->whales_count - report->census.whales.small_count,
                      "allocations above 2 MiB in use");
}

static void prometheus_counters(struct report_writer *writer, const struct census *census)
{
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        char name[PROMETHEUS_NAME_SIZE];
        struct text text = {name, sizeof name - 1, 0};
        hak__text_put(&text, hak__report_counters[i].key);
        hak__text_put(&text, "_total");
        name[text.length] = '\0';
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

/* What a metric says of a class. */
enum prometheus_of_class {
    CLASS_IN_USE,
    CLASS_CACHED,
    CLASS_IN_SLABS,
    CLASS_BYTES,
    CLASS_RESIDENT
};

static uint64_t prometheus_class_value(const struct report *report, uint32_t class_index,
                                       enum prometheus_of_class what)
{
    const struct class_census *of_class = &report->census.classes[class_index];
    switch (what) {
    case CLASS_IN_USE:
        return hak__census_in_use(of_class);
    case CLASS_CACHED:
        return of_class->cached_count;
    case CLASS_IN_SLABS:
        return of_class->in_slabs_count;
    case CLASS_BYTES:
        return of_class->slab_bytes;
    case CLASS_RESIDENT:
        break;
    }
    return report->summary.resident.classes[class_index];
}

static void prometheus_classes(struct report_writer *writer, const struct report *report)
{
    static const struct {
        const char *name;
        const char *help;
    } metrics[] = {
        [CLASS_IN_USE] = {"class_objects_in_use", "objects in use, by size class"},
        [CLASS_CACHED] = {"class_objects_cached", "free objects in thread caches, by size class"},
        [CLASS_IN_SLABS] = {"class_objects_free_in_slabs", "free objects in slabs, by size class"},
        [CLASS_BYTES] = {"class_slab_bytes", "address space of slabs, by size class"},
        [CLASS_RESIDENT] = {"class_resident_bytes", "resident bytes of slabs, by size class"},
    };
    for (uint32_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        if (i == CLASS_RESIDENT && !report->summary.known) {
            continue;
        }
        prometheus_head(writer, metrics[i].name, "gauge", metrics[i].help);
        for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
            char digits[24];
            struct text size = {digits, sizeof digits - 1, 0};
            if (report->census.classes[class_index].slabs_count == 0) {
                continue;
            }
            hak__text_put_unsigned(&size, size_class_bytes(class_index));
            digits[size.length] = '\0';
            prometheus_sample(
                writer, metrics[i].name, "class", digits,
                prometheus_class_value(report, class_index, (enum prometheus_of_class)i));
        }
    }
}

/* What a metric says of a named site. */
enum prometheus_of_site { SITE_LIVE_BYTES, SITE_LIVE_COUNT, SITE_ALLOCATED_BYTES };

static double prometheus_site_value(const struct site_sums *sums, enum prometheus_of_site what)
{
    return what == SITE_LIVE_BYTES   ? sums->allocated_bytes - sums->freed_bytes
           : what == SITE_LIVE_COUNT ? sums->allocated_count - sums->freed_count
                                     : sums->allocated_bytes;
}

/* The sites that the program has named, so the labels are few and the same in each run. */
static void prometheus_sites(struct report_writer *writer)
{
    static const struct {
        const char *name;
        const char *type;
        const char *help;
    } metrics[] = {
        [SITE_LIVE_BYTES] = {"site_live_bytes", "gauge",
                             "bytes of blocks in use, by named site, estimated from samples"},
        [SITE_LIVE_COUNT] = {"site_live_blocks", "gauge",
                             "blocks in use, by named site, estimated from samples"},
        [SITE_ALLOCATED_BYTES] = {"site_allocated_bytes_total", "counter",
                                  "bytes allocated, by named site, estimated from samples"},
    };
    for (uint32_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const struct site *site = hak__site_list_first();
        bool first = true;
        for (; site != NULL; site = site->older) {
            struct site_sums sums;
            if (!hak__site_is_named(site) || !hak__site_copy(site, &sums)) {
                continue;
            }
            if (first) {
                prometheus_head(writer, metrics[i].name, metrics[i].type, metrics[i].help);
                first = false;
            }
            double value = prometheus_site_value(&sums, (enum prometheus_of_site)i);
            prometheus_sample(writer, metrics[i].name, "site", site->name, hak__site_round(value));
        }
    }
}

void hak__prometheus_write(hak_report_sink *sink, void *argument, const struct report *report)
{
    struct report_writer writer;
    hak__report_begin(&writer, HAK_REPORT_PROMETHEUS, sink, argument);
    prometheus_head(&writer, "info", "gauge", "hakmem serves this process; the label: its version");
    prometheus_sample(&writer, "info", "version", hak_version(), 1);
    prometheus_single(&writer, "process_id", "gauge", hak__os_process_id(), "process id");
    prometheus_summary(&writer, &report->summary);
    prometheus_totals(&writer, report);
    prometheus_counters(&writer, &report->census);
    prometheus_classes(&writer, report);
    prometheus_sites(&writer);
    hak__report_end(&writer);
}
