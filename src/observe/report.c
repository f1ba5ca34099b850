/* SPDX-License-Identifier: MIT */
/* report.c: hak_report and hak_stats_value. A report describes a census and a summary field by
 * field. */
#include "observe/report.h"

#include "core/counters.h"
#include "core/lock.h"
#include "core/options.h"
#include "observe/prometheus.h"
#include "observe/summary_text.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

static void report_totals(struct report_writer *writer, const struct report *report)
{
    const struct hak_stats stats = report->stats;
    hak__report_section_begin(writer, "totals");
    hak__report_bytes(writer, "bytes_mapped", stats.bytes_mapped,
                      "address space taken for user memory");
    hak__report_bytes(writer, "bytes_metadata", stats.bytes_metadata,
                      "address space taken for tables, heaps and the whale registry");
    hak__report_bytes(writer, "bytes_in_use", stats.bytes_in_use,
                      "handed out and not freed, at usable size");
    hak__report_bytes(writer, "bytes_cached", stats.bytes_cached,
                      "free in thread caches, kept spans and whales");
    hak__report_bytes(writer, "bytes_free_dirty", stats.bytes_free_dirty,
                      "free slices not given back to the OS");
    hak__report_number(writer, "objects_in_use_count", stats.objects_in_use_count,
                       "allocations not freed");
    hak__report_number(writer, "heaps_count", stats.heaps_count, "heaps, parked ones included");
    hak__report_number(writer, "heaps_parked_count", stats.heaps_parked_count,
                       "heaps without a thread");
    hak__report_number(writer, "threads_count", stats.threads_count, "threads with a cache");
    hak__report_number(writer, "superslabs_count", stats.superslabs_count, "superslabs of 2 MiB");
    hak__report_number(writer, "whales_count", stats.whales_count,
                       "blocks with mappings of their own: above 2 MiB, and small ones");
    hak__report_bytes(writer, "bytes_free_in_slabs", stats.bytes_free_in_slabs,
                      "free objects in slabs, memory not carved, unused ends");
    hak__report_bytes(writer, "bytes_free_clean", stats.bytes_free_clean,
                      "free slices without memory");
    hak__report_bytes(writer, "bytes_discarded", stats.bytes_discarded,
                      "free, but the kernel would not unmap them yet");
    hak__report_bytes(writer, "peak_bytes_mapped", stats.peak_bytes_mapped,
                      "the most address space, tables included");
    hak__report_bytes(writer, "peak_bytes_taken", stats.peak_bytes_taken,
                      "the most bytes in slabs, spans and whales");
    uint64_t ago_ms = hak__superslab_peak_ago_ms();
    if (ago_ms != UINT64_MAX) {
        hak__report_number(writer, "peak_taken_ago_ms", ago_ms, "milliseconds since then");
    } else {
        hak__report_unknown(writer, "peak_taken_ago_ms", "milliseconds since then");
    }
    hak__report_section_end(writer);
}

/* A field for the resident bytes of something. */
static void report_resident(struct report_writer *writer, const struct summary *summary,
                            const char *key, uint64_t bytes, const char *help)
{
    if (summary->known) {
        hak__report_bytes(writer, key, bytes, help);
    } else {
        hak__report_unknown(writer, key, help);
    }
}

static void report_tiers(struct report_writer *writer, const struct report *report)
{
    const struct census *census = &report->census;
    const struct summary *summary = &report->summary;
    hak__report_section_begin(writer, "tiers");
    hak__report_bytes(writer, "superslab_bytes", hak__superslab_bytes_claimed(),
                      "address space of superslabs");
    hak__report_bytes(writer, "superslab_free_bytes", hak__superslab_bytes_free(),
                      "of these in free slices, dirty or given back");
    hak__report_bytes(writer, "slab_bytes", hak__census_slab_bytes(census),
                      "in slabs, to 64 KiB an object");
    hak__report_bytes(writer, "span_bytes", census->span_bytes, "usable in spans, to 2 MiB each");
    hak__report_number(writer, "spans_count", census->spans_count, "spans in use");
    hak__report_bytes(writer, "sampled_bytes", census->sampled.slices_count * SLICE_SIZE,
                      "in slices of sampled objects");
    hak__report_bytes(writer, "span_cached_bytes", census->span_cached_bytes,
                      "in freed spans kept by heaps");
    hak__report_bytes(writer, "whale_bytes", census->whales.live_bytes, "in whales in use");
    hak__report_number(writer, "whales_small_count", census->whales.small_count,
                       "of at most 2 MiB: emergency memory, alignments above 2 MiB");
    hak__report_bytes(writer, "whale_cached_bytes", census->whales.cached_bytes,
                      "in freed whales kept");
    report_resident(writer, summary, "span_resident_bytes", summary->resident.spans,
                    "resident bytes of spans in use");
    report_resident(writer, summary, "whale_resident_bytes", summary->resident.whales,
                    "resident bytes of whales in use");
    report_resident(writer, summary, "kept_resident_bytes", summary->parts[SUMMARY_KEPT],
                    "resident bytes of kept spans and whales and of free slices");
    hak__report_bytes(writer, "discarded_bytes", hak__os_discarded_bytes(),
                      "free, but the kernel would not unmap them yet");
    hak__report_bytes(writer, "table_bytes", hak__window_table_bytes(), "slice and slab tables");
    hak__report_bytes(writer, "heap_bytes", hak__metadata_bytes(), "heaps and thread caches");
    hak__report_bytes(writer, "registry_bytes", census->whales.metadata_bytes, "whale registry");
    hak__report_section_end(writer);
}

/* One line for each size class that has slabs. */
static void report_classes(struct report_writer *writer, const struct report *report)
{
    static const char *const columns[] = {"object_bytes", "slabs",    "slab_bytes",
                                          "in_use",       "cached",   "in_slabs",
                                          "not_carved",   "resident", NULL};
    hak__report_list_begin(writer, "classes", columns);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct class_census *of_class = &report->census.classes[class_index];
        if (of_class->slabs_count == 0) {
            continue;
        }
        uint64_t capacity = of_class->slabs_count * hak__size_classes[class_index].objects_per_slab;
        hak__report_record_begin(writer);
        hak__report_number(writer, columns[0], size_class_bytes(class_index), "");
        hak__report_number(writer, columns[1], of_class->slabs_count, "");
        hak__report_number(writer, columns[2], of_class->slab_bytes, "");
        hak__report_number(writer, columns[3], hak__census_in_use(of_class), "");
        hak__report_number(writer, columns[4], of_class->cached_count, "");
        hak__report_number(writer, columns[5], of_class->in_slabs_count, "");
        hak__report_number(writer, columns[6], capacity - of_class->carved_count, "");
        report_resident(writer, &report->summary, columns[7],
                        report->summary.resident.classes[class_index], "");
        hak__report_record_end(writer);
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
    hak__report_section_begin(writer, "locks");
    hak__report_number(writer, "lock_waits", atomic_load_relaxed(&hak__lock_waits.word),
                       "times a lock was found taken");
    hak__report_section_end(writer);
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
        hak__report_number(writer, "id", heap->id, "");
        hak__report_number(writer, "threads", atomic_load_relaxed(&heap->threads_count), "");
        hak__report_number(writer, "span_cached_bytes", hak__census_span_cached_bytes(heap), "");
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
        hak__report_number(writer, "heap", heap->id, "");
        hak__report_number(writer, "apart", atomic_load_relaxed(&thread->apart), "");
        hak__report_number(writer, "cached_bytes", hak__census_cache_bytes(&thread->cache), "");
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

static void report_take(struct report *report)
{
    hak__stats_from_census(&report->stats, &report->census);
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
        hak__summary_write_fields(writer, &report->summary);
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

static void report_write(enum hak_report_format format, hak_report_sink *sink, void *argument,
                         const struct report *report)
{
    struct report_writer writer;
    if (format == HAK_REPORT_PROMETHEUS) {
        hak__prometheus_write(sink, argument, report);
        return;
    }
    hak__report_begin(&writer, format, sink, argument);
    if (format != HAK_REPORT_JSON) {
        hak__summary_write_text(&writer, &report->summary, &report->stats, &report->sites);
    }
    if (format != HAK_REPORT_SUMMARY) {
        report_write_all(&writer, report);
    }
    hak__report_end(&writer);
}

void hak_report(enum hak_report_format format, hak_report_sink *sink, void *argument)
{
    struct report report;
    hak__census_take(&report.census);
    report_take(&report);
    report_write(format, sink, argument, &report);
}

bool hak_stats_value(const char *name, uint64_t *value)
{
    struct report report;
    struct report_writer writer;
    hak__census_take(&report.census);
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
    hak__census_take(&report.census);
    report_take(&report);
    hak__report_list_names(&writer, sink, argument);
    report_write_all(&writer, &report);
}
