/* SPDX-License-Identifier: MIT */
/* report.c: the functions of hakmem/stats.h but the heap map. A report describes a census and a
 * summary field by field. */
#include "observe/report.h"

#include "core/counters.h"
#include "core/lock.h"
#include "core/options.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"
#include "slab/slab_inherited.h"

#include <stddef.h>
#include <string.h>

/* A figure of the summary, for hak__report_number. */
static uint64_t report_known(const struct summary *summary, uint64_t value)
{
    return summary->known ? value : UINT64_MAX;
}

static void report_summary(struct report_writer *writer, const struct summary *summary)
{
    hak__report_section_begin(writer, "summary");
    hak__report_number(writer, "rss_bytes", summary->memory.rss,
                       "resident memory of the process; the next seven are its parts");
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        hak__report_number(writer, hak__summary_names[part].key, hak__summary_part(summary, part),
                           hak__summary_names[part].help);
    }
    REPORT_NUMBERS(
        writer,
        {"returnable_bytes", hak__summary_part(summary, SUMMARY_KEPT),
         "hak_trim would return them to the OS now"},
        {"peak_rss_bytes", summary->memory.peak_rss, "the most resident memory since exec"},
        {"swapped_bytes", summary->memory.swapped, "in swap areas; not part of RSS"},
        {"rounding_requests_count", summary->requests_count,
         "requests that the estimate of rounding rests on"},
        {"fragmentation_permille", report_known(summary, summary->fragmentation),
         "free in slabs, as a part of it and of blocks in use"});
    hak__report_section_end(writer);
}

#define TOTAL(field, part, metric, help)                                                           \
    {                                                                                              \
        .key = #field, .offset = offsetof(struct hak_stats, field), help, part, metric             \
    }
const struct report_total hak__report_totals[] = {
    TOTAL(bytes_mapped, NULL, NULL, "address space taken for user memory"),
    TOTAL(bytes_metadata, NULL, "metadata_bytes",
          "address space taken for tables, heaps and threads"),
    TOTAL(bytes_in_use, "in_use", NULL, "handed out and not freed, at usable size"),
    TOTAL(bytes_cached, "cached", NULL, "free in thread caches, kept spans and whales"),
    TOTAL(bytes_free_dirty, "free_dirty", NULL, "free slices not given back to the OS"),
    TOTAL(objects_in_use_count, NULL, "objects_in_use", "allocations not freed"),
    TOTAL(heaps_count, NULL, "heaps", "heaps, parked ones included"),
    TOTAL(heaps_parked_count, NULL, "heaps_parked", "heaps without a thread"),
    TOTAL(threads_count, NULL, "threads", "threads with a cache"),
    TOTAL(superslabs_count, NULL, "superslabs", "superslabs of 2 MiB"),
    TOTAL(whales_count, NULL, NULL,
          "blocks with mappings of their own: above 2 MiB, and small ones"),
    TOTAL(bytes_free_in_slabs, "free_in_slabs", NULL,
          "free objects in slabs, memory not carved, unused ends"),
    TOTAL(bytes_free_clean, "free_clean", NULL, "free slices without memory"),
    TOTAL(bytes_discarded, "discarded", NULL, "free, but the kernel would not unmap them yet"),
    TOTAL(peak_bytes_mapped, NULL, "peak_mapped_bytes", "the most address space, tables included"),
    TOTAL(peak_bytes_taken, NULL, "peak_taken_bytes",
          "the most bytes in slabs, spans and huge allocations"),
    {NULL, 0, NULL, NULL, NULL},
};

static void report_totals(struct report_writer *writer, const struct report *report)
{
    hak__report_section_begin(writer, "totals");
    for (const struct report_total *total = hak__report_totals; total->key != NULL; total++) {
        hak__report_number(writer, total->key, report_total_value(&report->stats, total),
                           total->help);
    }
    hak__report_number(writer, "peak_taken_ago_ms", hak__superslab_peak_ago_ms(),
                       "milliseconds since then");
    hak__report_section_end(writer);
}

static void report_tiers(struct report_writer *writer, const struct report *report)
{
    const struct census *census = &report->census;
    const struct whale_totals *whales = &census->whales;
    const struct summary *summary = &report->summary;
    REPORT_SECTION(
        writer, "tiers",
        {"superslab_bytes", hak__superslab_bytes_claimed(), "address space of superslabs"},
        {"superslab_free_bytes", hak__superslab_bytes_free(),
         "of these in free slices, dirty or given back"},
        {"slab_bytes", census->slab_bytes, "in slabs, to 64 KiB an object"},
        {"span_bytes", census->span_bytes, "usable in spans, to 2 MiB each"},
        {"spans_count", census->spans_count, "spans in use"},
        {"sampled_bytes", census->sampled.slices_count * SLICE_SIZE,
         "in slices of sampled objects"},
        {"span_cached_bytes", census->span_cached_bytes, "in freed spans kept by heaps"},
        {"whale_bytes", whales->live_bytes, "in whales in use"},
        {"whales_small_count", whales->small_count,
         "of at most 2 MiB: emergency memory, alignments above 2 MiB"},
        {"whale_cached_bytes", whales->cached_bytes, "in freed whales kept"},
        {"span_resident_bytes", report_known(summary, resident_spans(&summary->resident)),
         "resident bytes of spans in use"},
        {"whale_resident_bytes", report_known(summary, summary->resident.whales),
         "resident bytes of whales in use"},
        {"kept_resident_bytes", hak__summary_part(summary, SUMMARY_KEPT),
         "resident bytes of kept spans and whales and of free slices"},
        {"discarded_bytes", hak__os_discarded_bytes(),
         "free, but the kernel would not unmap them yet"},
        {"table_bytes", hak__window_table_bytes(), "slice and slab tables"},
        {"heap_bytes", hak__metadata_bytes(), "heaps and thread caches"},
        {"registry_bytes", whales->metadata_bytes, "whale registry"},
        {"inherited_bytes", hak__slab_bits_bytes(), "marks of blocks of a fork's parent"});
}

void hak__report_class(const struct report *report, uint32_t class_index,
                       uint64_t values[COLUMN_COUNT])
{
    const struct class_census *of_class = &report->census.classes[class_index];
    uint64_t capacity = of_class->slabs_count * hak__size_classes[class_index].objects_per_slab;
    values[COLUMN_OBJECT_BYTES] = size_class_bytes(class_index);
    values[COLUMN_SLABS] = of_class->slabs_count;
    values[COLUMN_SLAB_BYTES] = of_class->slab_bytes;
    values[COLUMN_IN_USE] = hak__census_in_use(of_class);
    values[COLUMN_CACHED] = of_class->cached_count;
    values[COLUMN_IN_SLABS] = of_class->in_slabs_count;
    values[COLUMN_NOT_CARVED] = capacity - of_class->carved_count;
    values[COLUMN_RESIDENT] =
        report_known(&report->summary, report->summary.resident.classes[class_index]);
}

/* One line for each size class that has slabs. */
static void report_classes(struct report_writer *writer, const struct report *report)
{
    static const char *const columns[COLUMN_COUNT + 1] = {"object_bytes", "slabs",    "slab_bytes",
                                                          "in_use",       "cached",   "in_slabs",
                                                          "not_carved",   "resident", NULL};
    hak__report_list_begin(writer, "classes", columns);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        uint64_t values[COLUMN_COUNT];
        hak__report_class(report, class_index, values);
        if (values[COLUMN_SLABS] != 0) {
            hak__report_record_begin(writer);
            for (uint32_t i = 0; i < COLUMN_COUNT; i++) {
                hak__report_number(writer, columns[i], values[i], "");
            }
            hak__report_record_end(writer);
        }
    }
    hak__report_list_end(writer);
}

#define X(name, key, text) {key, text},
const struct report_counter hak__report_counters[COUNTER_COUNT] = {HAK_COUNTERS(X)};
#undef X

static void report_events(struct report_writer *writer, const struct census *census)
{
    hak__report_section_begin(writer, "counters");
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        hak__report_number(writer, hak__report_counters[i].key, census->counters.values[i],
                           hak__report_counters[i].help);
    }
    hak__report_section_end(writer);
    hak__report_section_begin(writer, "os_calls");
    for (uint32_t i = 0; i < OS_CALL_COUNT; i++) {
        hak__report_number(writer, hak__os_call_names[i], atomic_load_relaxed(&hak__os_calls[i]),
                           "");
    }
    hak__report_section_end(writer);
    REPORT_SECTION(
        writer, "locks",
        {"lock_waits", atomic_load_relaxed(&hak__lock_waits.word), "times a lock was found taken"});
}

/* Writes the counters that are not zero. */
static void report_counters_of(struct report_writer *writer, const struct counters *counters)
{
    hak__report_section_begin(writer, "counters");
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        uint64_t value = atomic_load_relaxed(&counters->values[i]);
        if (value != 0) {
            hak__report_number(writer, hak__report_counters[i].key, value, "");
        }
    }
    hak__report_section_end(writer);
}

/* One line for each heap, read relaxed: no lock is held while the sink runs. */
static void report_heaps(struct report_writer *writer)
{
    hak__report_list_begin(writer, "heaps", NULL);
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        hak__report_record_begin(writer);
        REPORT_NUMBERS(writer, {"id", heap->id, NULL},
                       {"threads", atomic_load_relaxed(&heap->threads_count), NULL},
                       {"span_cached_bytes", hak__census_span_cached_bytes(heap), NULL});
        report_counters_of(writer, &heap->slabs.counters);
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
}

/* One line for each thread with a cache. A thread struct keeps its counters when another thread
 * takes it over. */
static void report_threads(struct report_writer *writer)
{
    hak__report_list_begin(writer, "threads", NULL);
    for (const struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        const struct heap *heap = atomic_load_relaxed(&thread->heap);
        if (heap == NULL || !hak__thread_is_used(thread)) {
            continue;
        }
        hak__report_record_begin(writer);
        REPORT_NUMBERS(writer, {"heap", heap->id, NULL},
                       {"apart", atomic_load_relaxed(&thread->apart), NULL},
                       {"cached_bytes", hak__census_cache_bytes(&thread->cache), NULL});
        report_counters_of(writer, &thread->cache.counters);
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
}

static void report_options(struct report_writer *writer)
{
    struct option_view view;
    hak__report_section_begin(writer, "options");
    for (uint32_t i = 0; hak__options_view(i, &view); i++) {
        hak__report_string(writer, view.name, view.value, view.help);
    }
    hak__report_section_end(writer);
}

/* Takes up to `*left` bytes off `*left` for a part, and returns them. */
static size_t totals_take(size_t *left, size_t part)
{
    part = part < *left ? part : *left;
    *left -= part;
    return part;
}

/* Fills all of `*stats`. The census was taken just before. */
static void stats_from_census(struct hak_stats *stats, const struct census *census)
{
    size_t free = hak__superslab_bytes_free(), dirty = hak__superslab_bytes_dirty();
    *stats = (struct hak_stats){.version = HAK_STATS_VERSION, .size = sizeof *stats};
    stats->bytes_discarded = hak__os_discarded_bytes();
    stats->bytes_mapped = hak__superslab_bytes_claimed() + census->whales.live_bytes +
                          census->whales.cached_bytes + stats->bytes_discarded;
    stats->bytes_metadata = hak__window_table_bytes() + hak__metadata_bytes() +
                            hak__slab_bits_bytes() + census->whales.metadata_bytes;
    /* The parts of a running program are of different moments. One that does not fit into what the
     * others leave is cut, so that the sum is exact. */
    size_t left = stats->bytes_mapped - stats->bytes_discarded;
    stats->bytes_in_use = totals_take(&left, census->bytes_in_use);
    stats->bytes_cached = totals_take(&left, census->bytes_cached);
    stats->bytes_free_dirty = totals_take(&left, dirty);
    stats->bytes_free_clean = totals_take(&left, free > dirty ? free - dirty : 0);
    stats->bytes_free_in_slabs = left;
    stats->objects_in_use_count = census->objects_in_use_count;
    stats->heaps_count = census->heaps_count;
    stats->heaps_parked_count = census->heaps_parked_count;
    stats->threads_count = census->threads_count;
    stats->superslabs_count = census->superslabs_count;
    stats->whales_count = census->whales.live_count;
    stats->peak_bytes_mapped = hak__os_mapped_peak();
    stats->peak_bytes_taken = hak__superslab_peak_bytes();
}

static void report_take(struct report *report)
{
    hak__census_take(&report->census);
    stats_from_census(&report->stats, &report->census);
    hak__summary_take(&report->summary, &report->census);
    hak__site_list_take(&report->sites);
}

/* All sections. Threads and sites are not numbers' names, so hak_stats_value does not find them. */
static void report_write_all(struct report_writer *writer, const struct report *report)
{
    hak__report_section_begin(writer, "hakmem");
    hak__report_string(writer, "version", hak_version(), "");
    hak__report_number(writer, "process", hak__os_process_id(), "");
    hak__report_string(writer, "profile", hak__settings.profile, "");
    hak__report_number(writer, "level", HAK_LEVEL,
                       "assertions compiled in: 0 none, 1 cheap, 2 all");
    hak__report_section_end(writer);
    if (writer->format == HAK_REPORT_JSON) { /* as text it is at the top */
        report_summary(writer, &report->summary);
    }
    report_totals(writer, report);
    report_tiers(writer, report);
    report_classes(writer, report);
    report_events(writer, &report->census);
    report_heaps(writer);
    if (writer->wanted == NULL) {
        report_threads(writer);
        hak__site_list_write(writer, &report->sites);
        report_options(writer);
    }
}

void hak_report(enum hak_report_format format, hak_report_sink *sink, void *argument)
{
    struct report report;
    struct report_writer writer;
    report_take(&report);
    hak__report_begin(&writer, format, sink, argument);
    if (format == HAK_REPORT_PROMETHEUS) {
        hak__prometheus_write(&writer, &report);
    } else if (format != HAK_REPORT_JSON) {
        hak__summary_write_text(&writer, &report);
    }
    if (format != HAK_REPORT_SUMMARY && format != HAK_REPORT_PROMETHEUS) {
        report_write_all(&writer, &report);
    }
    hak__report_end(&writer);
}

#define REPORT_AS(name, format)                                                                    \
    void name(hak_report_sink *sink, void *argument)                                               \
    {                                                                                              \
        hak_report(format, sink, argument);                                                        \
    }
REPORT_AS(hak__report_summary, HAK_REPORT_SUMMARY)
REPORT_AS(hak__report_text, HAK_REPORT_TEXT)
REPORT_AS(hak__report_json, HAK_REPORT_JSON)
REPORT_AS(hak__report_prometheus, HAK_REPORT_PROMETHEUS)

bool hak_stats_value(const char *name, uint64_t *value)
{
    struct report report;
    struct report_writer writer;
    report_take(&report);
    hak__report_find(&writer, name);
    report_write_all(&writer, &report);
    if (writer.found) {
        *value = writer.value;
    }
    return writer.found;
}

void hak__report_names(hak_report_sink *sink, void *argument)
{
    struct report report;
    struct report_writer writer;
    report_take(&report);
    hak__report_list_names(&writer, sink, argument);
    report_write_all(&writer, &report);
}

/* --- totals --- */

void hak_stats_read(struct hak_stats *stats, size_t size)
{
    struct census census;
    struct hak_stats filled;
    hak__census_take(&census);
    stats_from_census(&filled, &census);
    filled.size = (uint32_t)(size < sizeof filled ? size : sizeof filled);
    memcpy(stats, &filled, filled.size);
}

bool hak_summary_read(struct hak_summary *summary, size_t size)
{
    struct census census;
    struct summary taken;
    hak__census_take(&census);
    hak__summary_take(&taken, &census);
    struct hak_summary filled = {
        .version = HAK_STATS_VERSION,
        .size = (uint32_t)(size < sizeof filled ? size : sizeof filled),
        .rss = taken.memory.rss,
        .in_use = hak__summary_part(&taken, SUMMARY_IN_USE),
        .rounding = hak__summary_part(&taken, SUMMARY_ROUNDING),
        .thread_caches = hak__summary_part(&taken, SUMMARY_THREAD_CACHES),
        .free_in_slabs = hak__summary_part(&taken, SUMMARY_FREE_IN_SLABS),
        .kept = hak__summary_part(&taken, SUMMARY_KEPT),
        .tables = hak__summary_part(&taken, SUMMARY_TABLES),
        .not_hakmem = hak__summary_part(&taken, SUMMARY_NOT_HAKMEM),
        .peak_rss = taken.memory.peak_rss,
        .swapped = taken.memory.swapped,
        .rounding_requests_count = taken.requests_count,
        .fragmentation_permille = taken.known ? taken.fragmentation : UINT64_MAX,
    };
    memcpy(summary, &filled, filled.size);
    return taken.known && summary_has_rss(&taken);
}

void hak_stats_reset_peaks(void)
{
    hak__os_reset_mapped_peak();
    hak__superslab_reset_peak();
}
