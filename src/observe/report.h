/* SPDX-License-Identifier: MIT */
/* report.h: all that a report describes, taken at once. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "control/census.h"
#include "observe/heap_look.h"
#include "observe/modules.h"
#include "observe/report_writer.h"
#include "observe/sites.h"
#include "os/os.h"

/* --- summary.c: what the resident memory of the process (RSS) is used for ---
 *
 *   RSS = in use + rounding inside blocks + free in thread caches + free in slabs + kept for reuse
 *         + tables + not hakmem's
 *
 * The last part is what the others leave, so the sum is exact. Within a class, the resident bytes
 * of its slabs are shared out in proportion to the bytes of its objects: in use, in thread caches,
 * free in slabs. What is resident beyond all carved objects is free, too. */

/* X(part, key, title, help): `key` is the name in JSON and of hak_stats_value, `title` is for
 * people. */
#define SUMMARY_PART_LIST(X)                                                                       \
    X(SUMMARY_IN_USE, "in_use_bytes", "in use", "blocks handed out and not freed")                 \
    X(SUMMARY_ROUNDING, "rounding_bytes", "rounding inside blocks",                                \
      "bytes of blocks in use beyond what was asked for, estimated")                               \
    X(SUMMARY_THREAD_CACHES, "thread_caches_bytes", "free in thread caches",                       \
      "free objects in thread caches")                                                             \
    X(SUMMARY_FREE_IN_SLABS, "free_in_slabs_bytes", "free in slabs",                               \
      "free objects and unused memory in slabs")                                                   \
    X(SUMMARY_KEPT, "kept_bytes", "kept for reuse",                                                \
      "free slices, kept spans and kept huge allocations")                                         \
    X(SUMMARY_TABLES, "tables_bytes", "tables", "page map, slab metadata, heaps, registry")        \
    X(SUMMARY_NOT_HAKMEM, "not_hakmem_bytes", "not hakmem's",                                      \
      "code, stacks, the program's own mappings")

#define X(part, key, title, help) part,
enum summary_part { SUMMARY_PART_LIST(X) SUMMARY_PARTS };
#undef X
struct summary_name {
    const char *key;
    const char *title;
    const char *help;
};
HAK_HIDDEN extern const struct summary_name hak__summary_names[SUMMARY_PARTS];

/* Bytes. */
struct resident {
    bool known; /* false: the kernel did not answer, or this thread was refused */
    bool refused;
    uint32_t answers, failures;    /* system calls */
    uint64_t classes[CLASS_COUNT]; /* slabs */
    uint64_t slices[SLICE_KINDS];  /* other slices of superslabs */
    uint64_t whales;               /* in use */
    uint64_t whales_kept;
    uint64_t tables; /* owner words, slab metadata, heaps, threads, tables of whales */
};

/* Fills `*resident`. Begins at the gate several times, and waits for forks. No lock held. */
HAK_HIDDEN void hak__resident_take(struct resident *resident);
/* Resident bytes of the pages from `start` to `end`; parts that are unmapped count 0. Adds to the
 * answers and failures of `resident`. */
HAK_HIDDEN uint64_t hak__resident_bytes(struct resident *resident, uintptr_t start, uintptr_t end);
/* hak__whale_list_next, inside the gate for as long as it takes. False: also if refused. */
HAK_HIDDEN bool hak__resident_next_whales(struct resident *resident, struct whale_list *list);

/* Bytes of spans in use, with sampled objects. */
HAK_INLINE uint64_t resident_spans(const struct resident *resident)
{
    return resident->slices[SLICE_SPAN] + resident->slices[SLICE_SAMPLED];
}

struct summary {
    struct os_memory memory;
    bool known;                    /* the parts are; else all are 0 */
    uint64_t parts[SUMMARY_PARTS]; /* bytes; NOT_HAKMEM is unknown if the RSS is */
    uint64_t requests_count;       /* that the estimate of rounding rests on; 0: it is unknown */
    uint32_t fragmentation;        /* in thousandths, see hak__summary_take */
    struct resident resident;
};

/* Fills `*summary` from `census`, which was taken just before. fragmentation: FREE_IN_SLABS as a
 * part of IN_USE, ROUNDING and FREE_IN_SLABS together, that is of all memory that blocks in use
 * hold or keep from others. No lock held. */
HAK_HIDDEN void hak__summary_take(struct summary *summary, const struct census *census);

/* True if the RSS is known. */
HAK_INLINE bool summary_has_rss(const struct summary *summary)
{
    return summary->memory.rss != UINT64_MAX;
}

/* Bytes of the part; UINT64_MAX: unknown. */
HAK_HIDDEN uint64_t hak__summary_part(const struct summary *summary, uint32_t part);

/* The class of slabs, spans (CLASS_COUNT) or whales (CLASS_COUNT + 1) with the most resident bytes
 * that is not among the first `count` of `found`. 0: no further one has any. */
HAK_HIDDEN uint32_t hak__summary_next_largest(const struct summary *summary, const uint32_t *found,
                                              uint32_t count);
/* Resident bytes of such a class. */
HAK_HIDDEN uint64_t hak__summary_class_bytes(const struct summary *summary, uint32_t class_index);

/* --- site_list.c: the sites that hold the most bytes --- */

/* Sites of a list. Twice as many: a JSON report is up to 40 KB longer. Half: the tail of a large
 * program's sites is missing sooner. */
#define SITE_LIST_MAX 100u

/* Sites by live bytes, the largest first; then those without live bytes, by allocated bytes. Sites
 * that were never sampled are not among them. */
struct site_list {
    uint32_t count;
    uint64_t samples_count; /* behind the sums of all sites */
    const struct site *sites[SITE_LIST_MAX];
};

/* Takes the list. It is empty if nothing was sampled, or if the thread was refused. */
HAK_HIDDEN void hak__site_list_take(struct site_list *list);

/* Copies the sums of a site. False: refused. */
HAK_HIDDEN bool hak__site_copy(const struct site *site, struct site_sums *sums);
/* The first of all sites; NULL: there is none, or refused. Follow `older`, which is constant. */
HAK_HIDDEN const struct site *hak__site_list_first(void);

/* What a report says of a site: estimates, rounded; a mean of lifetimes, and how many of 1,000
 * freed blocks another thread freed. */
enum site_figure {
    SITE_LIVE_BYTES,
    SITE_LIVE_COUNT,
    SITE_LIVE_USABLE_BYTES,
    SITE_ALLOCATED_BYTES,
    SITE_ALLOCATED_COUNT,
    SITE_FREED_BYTES,
    SITE_FREED_COUNT,
    SITE_SIZE_MIN,
    SITE_SIZE_MAX,
    SITE_LIFETIME_MS,
    SITE_REMOTE_PERMILLE,
    SITE_SAMPLES,
    SITE_SAMPLES_LIVE,
    SITE_FIGURES
};
HAK_HIDDEN void hak__site_figures(const struct site_sums *sums, uint64_t figures[SITE_FIGURES]);

/* Writes the list `sites`, as JSON or text. */
HAK_HIDDEN void hak__site_list_write(struct report_writer *writer, const struct site_list *list);

/* The site's name; of an address the name of the file, and where addr2line finds the call. */
#define SITE_TITLE_SIZE 320u
HAK_HIDDEN void hak__site_title(const struct site *site, const struct modules *modules,
                                char title[SITE_TITLE_SIZE]);

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
