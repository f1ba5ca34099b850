/* SPDX-License-Identifier: MIT */
/* heap_map.c: the heap map (observe/heap_look.h), and the file of HAKMEM_HEAP_MAP_FILE that a
 * process writes at its end.
 *
 * Calls: hak_heap_map -> map_superslabs -> hak__heap_look, map_superslab; then the sums, and the
 * huge blocks. Each superslab, and each group of huge blocks, is copied at the gate and written
 * after it. So the sink runs without a lock and may allocate, and a fork waits for one superslab at
 * most. */
#include "observe/heap_look.h"

#include "base/bits.h"
#include "control/census.h"
#include "control/exit_file.h"
#include "control/life.h"
#include "core/options.h"
#include "core/size_class.h"
#include "hakmem/stats.h"
#include "large/huge.h"
#include "observe/report.h"
#include "observe/report_writer.h"
#include "os/os.h"
#include "region/window.h"

/* Sums over the superslabs that were written, so that the document agrees with itself. */
struct map_class {
    uint64_t slabs_count;
    uint64_t out_count;
    uint64_t free_count;
    uint64_t not_carved_count;
    uint64_t resident_bytes;
};
struct map_sums {
    struct map_class classes[CLASS_COUNT];
    uint64_t slices[SLICE_KINDS];
    uint64_t resident_bytes[SLICE_KINDS];
    uint64_t spans_count;
    struct huge_use huge_use;
};

static bool map_is_same_slab(const struct slab_look *a, const struct slab_look *b)
{
    return a->arena == b->arena && a->class_index == b->class_index &&
           a->out_count == b->out_count && a->free_count == b->free_count &&
           a->not_carved_count == b->not_carved_count;
}

/* Appends the slab at slice `first` and those after it that are like it. `last` is the slab before,
 * or has arena 0. Returns the slice after them. */
static uint32_t map_put_slabs(struct text *text, const struct heap_look *look, uint32_t first,
                              const struct slab_look *last)
{
    const struct slab_look *slab = &look->slabs[first];
    uint32_t next = first + slab->slices, count = 1;
    while (next < look->claimed && (look->starts >> next & 1) != 0 &&
           look->kinds[next] == SLICE_SLAB && map_is_same_slab(slab, &look->slabs[next])) {
        next += slab->slices;
        count++;
    }
    if (last->arena != slab->arena) {
        hak__text_format(text, "h%u", slab->arena);
    }
    if (last->class_index != slab->class_index) {
        hak__text_format(text, "z%u", slab->class_index);
    }
    hak__text_format(text, "u%u", slab->out_count);
    if (slab->free_count != 0) {
        hak__text_format(text, "f%u", slab->free_count);
    }
    if (count > 1) {
        hak__text_format(text, "x%u", count);
    }
    return next;
}

/* The end of the run of slices that are alike, from `first` on. */
static uint32_t map_run_end(const struct heap_look *look, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < look->claimed && look->kinds[end] == look->kinds[first] &&
           (look->starts >> end & 1) == 0) {
        end++;
    }
    return end;
}

void hak__heap_map_put_slices(struct text *text, const struct heap_look *look)
{
    static const char letters[SLICE_KINDS][2] = {"c", "d", "a", "k", "s", "u", "p"};
    struct slab_look none = {.arena = 0};
    const struct slab_look *last = &none;
    for (uint32_t i = 0, end; i < look->claimed; i = end) {
        bool start = (look->starts >> i & 1) != 0;
        if (look->kinds[i] == SLICE_SLAB) {
            end = map_put_slabs(text, look, i, last);
            last = &look->slabs[i];
        } else {
            end = map_run_end(look, i);
            bool goes_on = look->kinds[i] == SLICE_SPAN && !start; /* from the last superslab */
            hak__text_format(text, "%s%u", goes_on ? "t" : letters[look->kinds[i]], end - i);
        }
    }
}

/* Appends a digit for each slice, 0 to 8: eighths of the slice that are resident. One digit stands
 * for all slices if they are alike. */
static void map_put_resident(struct text *text, const struct heap_look *look)
{
    bool alike = true;
    for (uint32_t i = 1; i < look->claimed; i++) {
        alike = alike && look->resident[i] == look->resident[0];
    }
    for (uint32_t i = 0; i < (alike ? 1 : look->claimed); i++) {
        hak__text_format(text, "%lu", look->resident[i] * UINT64_C(8) / SLICE_SIZE);
    }
}

static void map_add(struct map_sums *sums, const struct heap_look *look)
{
    struct map_class *of_class = &sums->classes[0];
    for (uint32_t i = 0; i < look->claimed; i++) {
        bool start = (look->starts >> i & 1) != 0;
        sums->slices[look->kinds[i]]++;
        sums->resident_bytes[look->kinds[i]] += look->resident[i];
        if (look->kinds[i] == SLICE_SPAN) {
            sums->spans_count += start;
        } else if (look->kinds[i] == SLICE_SLAB) {
            const struct slab_look *slab = &look->slabs[i];
            if (start) {
                of_class = &sums->classes[slab->class_index];
                of_class->slabs_count++;
                of_class->out_count += slab->out_count;
                of_class->free_count += slab->free_count;
                of_class->not_carved_count += slab->not_carved_count;
            }
            of_class->resident_bytes += look->resident[i];
        }
    }
}

static void map_superslab(struct report_writer *writer, const struct heap_look *look,
                          bool in_huge_page)
{
    char slices[HEAP_MAP_SLICES_SIZE], resident[SUPERSLAB_SLICES + 1];
    struct text text = {slices, sizeof slices - 1, 0};
    hak__heap_map_put_slices(&text, look);
    slices[text.length] = '\0';
    text = (struct text){resident, sizeof resident - 1, 0};
    map_put_resident(&text, look);
    resident[text.length] = '\0';
    hak__report_record_begin(writer);
    REPORT_NUMBERS(writer, {"index", look->index}, {"claimed", look->claimed},
                   {"in_huge_page", in_huge_page});
    hak__report_string(writer, "pages", look->split ? "split" : look->huge ? "huge" : "small", "");
    hak__report_string(writer, "slices", slices, "");
    hak__report_string(writer, "resident", resident, "");
    hak__report_record_end(writer);
}

static void map_superslabs(struct report_writer *writer, struct map_sums *sums)
{
    struct heap_look look = {.index = 0};
    size_t count = hak__heap_look_count();
    hak__report_list_begin(writer, "superslabs", NULL);
    for (size_t index = 0; index < count; index++) {
        hak__heap_look(&look, index);
        if (look.claimed != 0) {
            map_add(sums, &look);
            map_superslab(writer, &look, hak__huge_use_add(&sums->huge_use, &look));
        }
    }
    hak__report_list_end(writer);
}

static void map_slices(struct report_writer *writer, const struct map_sums *sums)
{
    static const char *const names[SLICE_KINDS] = {
        "free_clean", "free_dirty", "free_aged", "kept_spans", "spans", "slabs", "sampled"};
    hak__report_list_begin(writer, "slices", NULL);
    for (uint32_t kind = 0; kind < SLICE_KINDS; kind++) {
        hak__report_record_begin(writer);
        hak__report_string(writer, "kind", names[kind], "");
        REPORT_NUMBERS(writer, {"count", sums->slices[kind]},
                       {"resident_bytes", sums->resident_bytes[kind]});
        hak__report_record_end(writer);
    }
    hak__report_list_end(writer);
}

static void map_classes(struct report_writer *writer, const struct map_sums *sums,
                        const uint64_t cached_counts[CLASS_COUNT])
{
    hak__report_list_begin(writer, "classes", NULL);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct map_class *of_class = &sums->classes[class_index];
        const struct size_class *size_class = &hak__size_classes[class_index];
        uint64_t cached = cached_counts[class_index];
        if (of_class->slabs_count == 0) {
            continue;
        }
        cached = cached < of_class->out_count ? cached : of_class->out_count;
        REPORT_RECORD(writer, {"class", class_index}, {"object_bytes", size_class->object_size},
                      {"slab_slices", size_class->slab_slices},
                      {"slab_objects", size_class->objects_per_slab},
                      {"slabs", of_class->slabs_count}, {"in_use", of_class->out_count - cached},
                      {"cached", cached}, {"free", of_class->free_count},
                      {"not_carved", of_class->not_carved_count},
                      {"resident_bytes", of_class->resident_bytes});
    }
    hak__report_list_end(writer);
}

static void map_huge(struct report_writer *writer, struct huge_use *use)
{
    struct resident resident = {.known = false};
    struct huge_list list = {.after = 0};
    hak__report_list_begin(writer, "huge", NULL);
    while (hak__resident_next_huge(&resident, &list)) {
        for (uint32_t i = 0; i < list.count; i++) {
            const struct huge_view *view = &list.views[i];
            uintptr_t end = view->address + view->size;
            uint64_t bytes = hak__resident_bytes(&resident, view->address, end);
            hak__huge_use_add_block(use, view, bytes);
            REPORT_RECORD(writer, {"address", view->address}, {"bytes", view->size},
                          {"resident_bytes", bytes}, {"kept", view->kept},
                          {"age_ms", view->age_ms});
        }
    }
    hak__report_list_end(writer);
}

static void map_header(struct report_writer *writer)
{
    const char *program = hak__os_program();
    hak__report_section_begin(writer, "heap_map");
    hak__report_number(writer, "version", HEAP_MAP_VERSION, "");
    hak__report_string(writer, "hakmem", hak_version(), "");
    hak__report_number(writer, "process", hak__os_process_id(), "");
    hak__report_string(writer, "program", program != NULL ? program : "", "");
    /* Before the first allocation there is no window. */
    uintptr_t base = window_contains_slice(0) ? hak__window.base : 0;
    REPORT_NUMBERS(writer, {"time", hak__os_wall_clock_s()}, {"page_bytes", hak__os_page_size()},
                   {"slice_bytes", SLICE_SIZE}, {"superslab_slices", SUPERSLAB_SLICES},
                   {"base", base});
    hak__report_section_end(writer);
}

/* Keeps the large struct out of the caller's frame. */
static __attribute__((noinline)) void map_cached(uint64_t cached_counts[CLASS_COUNT])
{
    struct census census;
    hak__census_take(&census);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        cached_counts[class_index] = census.classes[class_index].cached_count;
    }
}

static void map_totals(struct report_writer *writer)
{
    struct hak_stats stats;
    hak_stats_get(&stats);
    hak__report_section_begin(writer, "totals");
    REPORT_NUMBERS(writer, {"bytes_mapped", stats.bytes_mapped},
                   {"bytes_metadata", stats.bytes_metadata}, {"bytes_in_use", stats.bytes_in_use},
                   {"bytes_cached", stats.bytes_cached},
                   {"bytes_free_dirty", stats.bytes_free_dirty},
                   {"objects_in_use", stats.objects_in_use_count}, {"arenas", stats.arenas_count},
                   {"arenas_parked", stats.arenas_parked_count}, {"threads", stats.threads_count},
                   {"superslabs", stats.superslabs_count}, {"huge", stats.huge_count});
    hak__report_section_end(writer);
}

void hak_heap_map(hak_report_sink *sink, void *argument)
{
    struct report_writer writer;
    struct site_list sites;
    struct map_sums sums = {.spans_count = 0};
    uint64_t cached_counts[CLASS_COUNT] = {0};
    hak__report_begin(&writer, HAK_REPORT_JSON, sink, argument);
    map_header(&writer);
    map_totals(&writer);
    map_superslabs(&writer, &sums);
    map_cached(cached_counts);
    map_slices(&writer, &sums);
    hak__report_number(&writer, "spans", sums.spans_count, "");
    map_classes(&writer, &sums, cached_counts);
    map_huge(&writer, &sums.huge_use);
    hak__huge_use_write(&writer, &sums.huge_use);
    hak__site_list_take(&sites);
    hak__site_list_write(&writer, &sites);
    hak__report_end(&writer);
}

static struct exit_file map_file = {
    .name = &hak__settings.heap_map_file, .what = "heap map", .replaces = true, .kept = {-1, 0, 0}};

/* Without "%p" in the name, by which each process has a file of its own, HAKMEM_STATS_PID may name
 * the only process that writes. */
void hak__heap_map_at_end(void)
{
    uint64_t process = hak__settings.stats_process;
    bool all = process == 0 || process == hak__os_process_id();
    if (hak__settings.heap_map_file != NULL && (all || hak__exit_file_varies(&map_file))) {
        hak__exit_file_write(&map_file, hak_heap_map);
    }
}
