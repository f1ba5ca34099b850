/* report.c: hak_stats_get and hak_report. Both take a census; the report describes it field by
 * field. */
#include "control/census.h"
#include "control/report_writer.h"
#include "core/counters.h"
#include "core/lock.h"
#include "core/options.h"
#include "hakmem/stats.h"
#include "heap/heap.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

static void stats_from_census(struct hak_stats *stats, const struct census *census)
{
    stats->bytes_mapped = hak__superslab_bytes_claimed() + census->whales.live_bytes +
                          census->whales.cached_bytes + hak__os_discarded_bytes();
    stats->bytes_metadata =
        hak__window_table_bytes() + hak__metadata_bytes() + census->whales.metadata_bytes;
    stats->bytes_in_use = hak__census_bytes_in_use(census);
    stats->bytes_cached = hak__census_bytes_cached(census);
    stats->bytes_free_dirty = hak__superslab_bytes_dirty();
    stats->objects_in_use_count = hak__census_objects_in_use(census);
    stats->heaps_count = census->heaps_count;
    stats->heaps_parked_count = census->heaps_parked_count;
    stats->threads_count = census->threads_count;
    stats->superslabs_count = census->superslabs_count;
    stats->whales_count = census->whales.live_count;
}

void hak_stats_get(struct hak_stats *stats)
{
    struct census census;
    hak__census_take(&census);
    stats_from_census(stats, &census);
}

static void report_totals(struct report_writer *writer, const struct census *census)
{
    struct hak_stats stats;
    stats_from_census(&stats, census);
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
    hak__report_number(writer, "whales_count", stats.whales_count, "allocations above 2 MiB");
    hak__report_section_end(writer);
}

static void report_tiers(struct report_writer *writer, const struct census *census)
{
    uint64_t slab_bytes = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        slab_bytes += census->classes[class_index].slab_bytes;
    }
    hak__report_section_begin(writer, "tiers");
    hak__report_bytes(writer, "superslab_bytes", hak__superslab_bytes_claimed(),
                      "address space of superslabs");
    hak__report_bytes(writer, "superslab_free_bytes", hak__superslab_bytes_free(),
                      "of these in free slices, dirty or given back");
    hak__report_bytes(writer, "slab_bytes", slab_bytes, "in slabs, to 64 KiB an object");
    hak__report_bytes(writer, "span_bytes", census->span_bytes, "usable in spans, to 2 MiB each");
    hak__report_number(writer, "spans_count", census->spans_count, "spans in use");
    hak__report_bytes(writer, "sampled_bytes", census->sampled.slices_count * SLICE_SIZE,
                      "in slices of sampled objects");
    hak__report_bytes(writer, "span_cached_bytes", census->span_cached_bytes,
                      "in freed spans kept by heaps");
    hak__report_bytes(writer, "whale_bytes", census->whales.live_bytes, "in whales in use");
    hak__report_bytes(writer, "whale_cached_bytes", census->whales.cached_bytes,
                      "in freed whales kept");
    hak__report_bytes(writer, "discarded_bytes", hak__os_discarded_bytes(),
                      "free, but the kernel would not unmap them yet");
    hak__report_bytes(writer, "table_bytes", hak__window_table_bytes(), "slice and slab tables");
    hak__report_bytes(writer, "heap_bytes", hak__metadata_bytes(), "heaps and thread caches");
    hak__report_bytes(writer, "registry_bytes", census->whales.metadata_bytes, "whale registry");
    hak__report_section_end(writer);
}

/* One line for each size class that has slabs. */
static void report_classes(struct report_writer *writer, const struct census *census)
{
    static const char *const columns[] = {"object_bytes", "slabs",    "slab_bytes", "in_use",
                                          "cached",       "in_slabs", "not_carved", NULL};
    hak__report_list_begin(writer, "classes", columns);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct class_census *of_class = &census->classes[class_index];
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
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
}

#define X(name, key, text) {key, text},
static const struct {
    const char *key;
    const char *help;
} report_counters[COUNTER_COUNT] = {HAK_COUNTERS(X)};
#undef X

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
    hak__report_number(writer, "lock_waits", atomic_load_relaxed(&hak__lock_waits),
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

void hak_report(enum hak_report_format format, hak_report_sink *sink, void *argument)
{
    struct report_writer writer;
    struct census census;
    hak__census_take(&census);
    hak__report_begin(&writer, format, sink, argument);
    hak__report_section_begin(&writer, "hakmem");
    hak__report_string(&writer, "version", hak_version(), "");
    hak__report_number(&writer, "process", hak__os_process_id(), "");
    hak__report_string(&writer, "profile", hak__settings.profile, "");
    hak__report_number(&writer, "level", HAK_LEVEL,
                       "assertions compiled in: 0 none, 1 cheap, 2 all");
    hak__report_section_end(&writer);
    report_totals(&writer, &census);
    report_tiers(&writer, &census);
    report_classes(&writer, &census);
    report_events(&writer, &census);
    report_heaps(&writer);
    report_threads(&writer);
    report_options(&writer);
    hak__report_end(&writer);
}
