/* SPDX-License-Identifier: MIT */
/* heap_map.c: the heap map (observe/heap_look.h).
 *
 * Calls: hak_heap_map -> map_superslabs -> hak__heap_look, map_superslab; then the classes, and the
 * huge blocks. Each superslab, and each group of huge blocks, is copied at the gate and written
 * after it. So the sink runs without a lock and may allocate, and a fork waits for one superslab at
 * most. Sums over the slices are the reader's. */
#include "observe/heap_look.h"

#include "base/bits.h"
#include "control/census.h"
#include "core/size_class.h"
#include "hakmem/stats.h"
#include "large/huge.h"
#include "observe/report.h"
#include "observe/report_writer.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

static bool map_is_same_slab(const struct slab_look *a, const struct slab_look *b)
{
    return a->arena == b->arena && a->class_index == b->class_index &&
           a->out_count == b->out_count && a->free_count == b->free_count &&
           a->not_carved_count == b->not_carved_count;
}

/* Appends the slab at slice `first` and those after it that are like it. `last` is the slab before,
 * or of no arena. Returns the slice after them. */
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
    static const char letters[SLICE_KINDS][2] = {"c", "d", "a", "k", "s", "u"};
    struct slab_look none = {.arena = UINT32_MAX};
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

static void map_superslabs(struct report_writer *writer, struct huge_use *use)
{
    struct heap_look look = {.index = 0};
    size_t count = atomic_load_relaxed(&hak__superslabs.count);
    hak__report_list_begin(writer, "superslabs");
    for (size_t index = 0; index < count; index++) {
        hak__heap_look(&look, index);
        if (look.claimed != 0) {
            map_superslab(writer, &look, hak__huge_use_add(use, &look));
        }
    }
    hak__report_list_end(writer);
}

/* What a reader of the superslabs' slices needs to know of each class, and the free objects in
 * thread caches, which the slices do not tell from those in use. Keeps the large struct out of the
 * caller's frame. */
static __attribute__((noinline)) void map_classes(struct report_writer *writer)
{
    struct census census;
    hak__census_take(&census);
    hak__report_list_begin(writer, "classes");
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct size_class *size_class = &hak__size_classes[class_index];
        REPORT_RECORD(writer, {"class", class_index}, {"object_bytes", size_class->object_size},
                      {"slab_slices", size_class->slab_slices},
                      {"slab_objects", size_class->objects_per_slab},
                      {"cached", census.classes[class_index].cached_count});
    }
    hak__report_list_end(writer);
}

static void map_huge(struct report_writer *writer, struct huge_use *use)
{
    struct resident resident = {.known = false};
    struct huge_list list = {.after = 0};
    hak__report_list_begin(writer, "huge");
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
    /* The format's version. It changes when a reader of the earlier one would misread the
     * document. */
    hak__report_number(writer, "version", 1, "");
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

void hak_heap_map(hak_report_sink *sink, void *argument)
{
    struct report_writer writer;
    struct hak_stats stats;
    struct site_list sites;
    struct huge_use use = {.groups = 0};
    hak__report_begin(&writer, HAK_REPORT_JSON, sink, argument);
    map_header(&writer);
    hak_stats_get(&stats);
    hak__totals_write(&writer, &stats);
    map_superslabs(&writer, &use);
    map_classes(&writer);
    map_huge(&writer, &use);
    hak__huge_use_write(&writer, &use);
    hak__site_list_take(&sites);
    hak__site_list_write(&writer, &sites);
    hak__report_end(&writer);
}
