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

#include <stddef.h>
#include <string.h>

/* A figure of the summary; UINT64_MAX if it is unknown. */
static uint64_t report_known(const struct summary *summary, uint64_t value)
{
    return summary->known ? value : UINT64_MAX;
}

static void report_summary(struct report_writer *writer, const struct summary *summary)
{
    hak__report_section_begin(writer, "summary");
    hak__report_number(writer, "rss_bytes", summary->memory.rss, "resident memory of the process");
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        const struct summary_name *name = &hak__summary_names[part];
        hak__report_number(writer, name->key, hak__summary_part(summary, part), name->help);
    }
    REPORT_FIGURES(
        writer, {"peak_rss_bytes", summary->memory.peak_rss, "the most resident memory since exec"},
        {"swapped_bytes", summary->memory.swapped, "memory in swap areas; not part of RSS"},
        {"rounding_requests_count", summary->requests_count,
         "requests that the estimate of rounding rests on"},
        {"fragmentation_permille", report_known(summary, summary->fragmentation),
         "resident bytes free in slabs, as a part of them and of blocks in use"});
    hak__report_section_end(writer);
    hak__huge_use_write(writer, &summary->resident.huge_use);
}

void hak__totals_write(struct report_writer *writer, const struct hak_stats *stats)
{
    hak__report_section_begin(writer, "totals");
#define FIELD(field, help) {#field, stats->field, help}
    REPORT_FIGURES(
        writer, FIELD(bytes_mapped, "address space taken for user memory"),
        FIELD(bytes_in_use, "handed out and not freed, at usable size"),
        FIELD(bytes_cached, "free in thread caches, kept spans and huge blocks"),
        FIELD(bytes_free_dirty, "free slices not given back to the OS"),
        FIELD(bytes_free_in_slabs, "free objects in slabs, memory not carved, unused ends"),
        FIELD(bytes_free_clean, "free slices without memory"),
        FIELD(bytes_discarded, "free, but the kernel would not unmap them yet"),
        FIELD(bytes_metadata, "address space taken for tables, arenas and threads"),
        FIELD(objects_in_use_count, "allocations not freed"),
        FIELD(arenas_count, "arenas, parked ones included"),
        FIELD(arenas_parked_count, "arenas without a thread"),
        FIELD(threads_count, "threads with a cache"),
        FIELD(superslabs_count, "superslabs of 2 MiB"),
        FIELD(huge_count, "blocks with mappings of their own: above 2 MiB, and small ones"),
        FIELD(peak_bytes_mapped, "the most address space, tables included"),
        FIELD(peak_bytes_taken, "the most bytes in slabs, spans and huge blocks"),
        {"peak_taken_ago_ms", hak__superslab_peak_ago_ms(), "milliseconds since then"});
#undef FIELD
    hak__report_section_end(writer);
}

static void report_tiers(struct report_writer *writer, const struct report *report)
{
    const struct census *census = &report->census;
    const struct huge_totals *huge = &census->huge;
    const struct summary *summary = &report->summary;
    hak__report_section_begin(writer, "tiers");
    REPORT_FIGURES(
        writer, {"superslab_bytes", hak__superslab_bytes_claimed(), "address space of superslabs"},
        {"slab_bytes", census->slab_bytes, "in slabs, to 64 KiB an object"},
        {"span_bytes", census->span_bytes, "usable in spans, to 2 MiB each"},
        {"spans_count", census->spans_count, "spans in use"},
        {"sampled_bytes", census->sampled_bytes, "of slab_bytes, in slabs of sampled objects"},
        {"span_cached_bytes", census->span_cached_bytes, "in freed spans kept by arenas"},
        {"huge_bytes", huge->live_bytes, "in huge blocks in use"},
        {"huge_small_count", huge->small_count,
         "of at most 2 MiB: emergency memory, alignments above 2 MiB"},
        {"huge_cached_bytes", huge->cached_bytes, "in freed huge blocks kept"},
        {"span_resident_bytes", report_known(summary, summary->resident.slices[SLICE_SPAN]),
         "resident bytes of spans in use"},
        {"huge_resident_bytes", report_known(summary, summary->resident.huge),
         "resident bytes of huge blocks in use"},
        {"table_bytes", hak__window_table_bytes(), "slice and slab tables"},
        {"arena_bytes", hak__metadata_bytes(), "arenas and thread caches"},
        {"registry_bytes", huge->metadata_bytes, "huge registry"});
    hak__report_section_end(writer);
}

/* One record for each size class that has slabs. */
static void report_classes(struct report_writer *writer, const struct report *report)
{
    hak__report_list_begin(writer, "classes");
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct class_census *of_class = &report->census.classes[class_index];
        uint64_t capacity = of_class->slabs_count * hak__size_classes[class_index].objects_per_slab;
        uint64_t resident = report->summary.resident.classes[class_index];
        if (of_class->slabs_count != 0) {
            REPORT_RECORD(writer, {"object_bytes", size_class_bytes(class_index)},
                          {"slabs", of_class->slabs_count}, {"slab_bytes", of_class->slab_bytes},
                          {"in_use", hak__census_in_use(of_class)},
                          {"cached", of_class->cached_count},
                          {"in_slabs", of_class->in_slabs_count},
                          {"not_carved", capacity - of_class->carved_count},
                          {"resident", report_known(&report->summary, resident)});
        }
    }
    hak__report_list_end(writer);
}

/* No pointers here and in other tables of names: each would be a relocation, which a process pays
 * for at its start with time and its copy of the page. */
#define X(name, key, text) {key, text},
static const struct {
    char key[24];
    char help[80];
} report_counters[COUNTER_COUNT] = {HAK_COUNTERS(X)};
#undef X
#define X(name, key_text, help_text)                                                               \
    HAK_STATIC_ASSERT(sizeof(key_text) <= sizeof report_counters->key &&                           \
                          sizeof(help_text) <= sizeof report_counters->help,                       \
                      "texts end with a zero");
HAK_COUNTERS(X)
#undef X

/* All of this only grows. */
static void report_events(struct report_writer *writer, const struct census *census)
{
    hak__report_section_begin(writer, "counters");
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        hak__report_number(writer, report_counters[i].key, census->counters.values[i],
                           report_counters[i].help);
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
            hak__report_number(writer, report_counters[i].key, value, "");
        }
    }
    hak__report_section_end(writer);
}

/* One line for each arena, read relaxed: no lock is held while the sink runs. */
static void report_arenas(struct report_writer *writer)
{
    hak__report_list_begin(writer, "arenas");
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        hak__report_record_begin(writer);
        REPORT_NUMBERS(writer, {"id", arena->id},
                       {"threads", atomic_load_relaxed(&arena->threads_count)},
                       {"span_cached_bytes", hak__census_span_cached_bytes(arena)});
        report_counters_of(writer, &arena->slabs.counters);
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
}

/* One line for each thread with a cache. A thread struct keeps its counters when another thread
 * takes it over. */
static void report_threads(struct report_writer *writer)
{
    hak__report_list_begin(writer, "threads");
    for (const struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        const struct arena *arena = atomic_load_relaxed(&thread->arena);
        if (arena == NULL || !hak__thread_is_used(thread)) {
            continue;
        }
        hak__report_record_begin(writer);
        REPORT_NUMBERS(writer, {"arena", arena->id}, {"apart", atomic_load_relaxed(&thread->apart)},
                       {"cached_bytes", hak__census_cache_bytes(&thread->cache)});
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
    stats->bytes_mapped = hak__superslab_bytes_claimed() + census->huge.live_bytes +
                          census->huge.cached_bytes + stats->bytes_discarded;
    stats->bytes_metadata =
        hak__window_table_bytes() + hak__metadata_bytes() + census->huge.metadata_bytes;
    /* The parts of a running program are of different moments. One that does not fit into what the
     * others leave is cut, so that the sum is exact. */
    size_t left = stats->bytes_mapped - stats->bytes_discarded;
    stats->bytes_in_use = totals_take(&left, census->bytes_in_use);
    stats->bytes_cached = totals_take(&left, census->bytes_cached);
    stats->bytes_free_dirty = totals_take(&left, dirty);
    stats->bytes_free_clean = totals_take(&left, free > dirty ? free - dirty : 0);
    stats->bytes_free_in_slabs = left;
    stats->objects_in_use_count = census->objects_in_use_count;
    stats->arenas_count = census->arenas_count;
    stats->arenas_parked_count = census->arenas_parked_count;
    stats->threads_count = census->threads_count;
    stats->superslabs_count = census->superslabs_count;
    stats->huge_count = census->huge.live_count;
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
    hak__totals_write(writer, &report->stats);
    report_tiers(writer, report);
    report_classes(writer, report);
    report_events(writer, &report->census);
    report_arenas(writer);
    if (writer->visit == NULL) {
        report_threads(writer);
        hak__site_list_write(writer, &report->sites);
        hak__named_sites_write(writer);
        report_options(writer);
    }
}

void hak_report(enum hak_report_format format, hak_report_sink *sink, void *argument)
{
    struct report report;
    struct report_writer writer;
    report_take(&report);
    hak__report_begin(&writer, format, sink, argument);
    if (format != HAK_REPORT_JSON) {
        hak__summary_write_text(&writer, &report);
    }
    if (format != HAK_REPORT_SUMMARY) {
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

static void report_visit_all(report_visit *visit, void *argument)
{
    struct report report;
    struct report_writer writer;
    report_take(&report);
    hak__report_visit(&writer, visit, argument);
    report_write_all(&writer, &report);
}

struct report_search {
    const char *wanted;
    uint64_t *value;
    bool found;
};

static void report_match(void *argument, const char *name, uint64_t value, const char *help)
{
    struct report_search *search = argument;
    (void)help;
    if (!search->found && value != UINT64_MAX && hak__text_equal(name, search->wanted)) {
        search->found = true;
        *search->value = value;
    }
}

bool hak_stats_value(const char *name, uint64_t *value)
{
    struct report_search search = {name, value, false};
    report_visit_all(report_match, &search);
    return search.found;
}

struct report_listing {
    hak_report_sink *sink;
    void *argument;
};

/* Without the numbers in records, whose names have a part that is a number. */
static void report_list(void *argument, const char *name, uint64_t value, const char *help)
{
    const struct report_listing *listing = argument;
    char line[400];
    (void)value;
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '.' && at[1] >= '0' && at[1] <= '9') {
            return;
        }
    }
    hak__text_make(line, sizeof line, "%s\t\t%s\n", name, help);
    listing->sink(listing->argument, line, strlen(line));
}

void hak__report_names(hak_report_sink *sink, void *argument)
{
    struct report_listing listing = {sink, argument};
    report_visit_all(report_list, &listing);
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
#define X(part, name, title, help) .name = hak__summary_part(&taken, part),
    struct hak_summary filled = {.version = HAK_STATS_VERSION,
                                 .size = (uint32_t)(size < sizeof filled ? size : sizeof filled),
                                 .rss = taken.memory.rss,
                                 .peak_rss = taken.memory.peak_rss,
                                 .swapped = taken.memory.swapped,
                                 .rounding_requests_count = taken.requests_count,
                                 .fragmentation_permille =
                                     report_known(&taken, taken.fragmentation),
                                 SUMMARY_PART_LIST(X)};
#undef X
    memcpy(summary, &filled, filled.size);
    return taken.known && summary_has_rss(&taken);
}

void hak_stats_reset_peaks(void)
{
    hak__os_reset_mapped_peak();
    hak__superslab_reset_peak();
}
