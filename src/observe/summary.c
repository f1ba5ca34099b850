/* SPDX-License-Identifier: MIT */
/* summary.c: see report.h. */
#include "observe/report.h"

#define X(part, name, title, help) {#name "_bytes", title, help},
const struct summary_name hak__summary_names[SUMMARY_PARTS] = {SUMMARY_PART_LIST(X)};
#undef X

/* `part` of `all` shares of `bytes`, rounded down. `part` is at most `all`, which is not 0. */
static uint64_t summary_share(uint64_t bytes, uint64_t part, uint64_t all)
{
    __extension__ unsigned __int128 product = (unsigned __int128)bytes * part;
    return (uint64_t)(product / all);
}

/* Shares out the resident bytes of the slabs of one class. */
static void summary_add_class(struct summary *summary, const struct class_census *of_class,
                              uint32_t class_index)
{
    uint64_t *parts = summary->parts;
    uint64_t resident = summary->resident.classes[class_index];
    uint64_t size = size_class_bytes(class_index), in_use = hak__census_in_use(of_class);
    uint64_t carved = in_use + of_class->cached_count + of_class->in_slabs_count;
    /* Carved objects were touched, or will be. Memory beyond them is resident only if the slab was
     * made of slices that had been used before. */
    uint64_t covered = resident < carved * size ? resident : carved * size;
    uint64_t used = 0, cached = 0, unused = 0;
    if (carved != 0) {
        used = summary_share(covered, in_use, carved);
        cached = summary_share(covered, of_class->cached_count, carved);
    }
    if (of_class->requests_count != 0) {
        uint64_t seen = of_class->requests_count * size, most = of_class->unused_bytes;
        unused = summary_share(used, most < seen ? most : seen, seen);
    }
    parts[SUMMARY_IN_USE] += used - unused;
    parts[SUMMARY_ROUNDING] += unused;
    parts[SUMMARY_THREAD_CACHES] += cached;
    parts[SUMMARY_FREE_IN_SLABS] += resident - used - cached;
    summary->requests_count += of_class->requests_count;
}

/* The parts cannot be more than the RSS. They seem to be if the process shrank between two looks,
 * or if the program has only read new memory: such pages are mapped, and do not count in the RSS.
 * The latter are blocks in use, as a rule, so these are cut first. */
static void summary_fit(struct summary *summary)
{
    uint64_t sum = 0;
    for (uint32_t part = 0; part < SUMMARY_NOT_HAKMEM; part++) {
        sum += summary->parts[part];
    }
    uint64_t excess = sum > summary->memory.rss ? sum - summary->memory.rss : 0;
    for (uint32_t part = 0; part < SUMMARY_NOT_HAKMEM && excess != 0; part++) {
        uint64_t cut = excess < summary->parts[part] ? excess : summary->parts[part];
        summary->parts[part] -= cut;
        excess -= cut;
        sum -= cut;
    }
    summary->parts[SUMMARY_NOT_HAKMEM] = summary_has_rss(summary) ? summary->memory.rss - sum : 0;
}

void hak__summary_take(struct summary *summary, const struct census *census)
{
    uint64_t *parts = summary->parts;
    const struct resident *resident = &summary->resident;
    hak__resident_take(&summary->resident);
    summary->memory = hak__os_memory();
    summary->known = resident->known;
    summary->requests_count = 0;
    summary->fragmentation = 0;
    for (uint32_t part = 0; part < SUMMARY_PARTS; part++) {
        parts[part] = 0;
    }
    if (!summary->known) {
        return;
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        summary_add_class(summary, &census->classes[class_index], class_index);
    }
    parts[SUMMARY_IN_USE] += resident->slices[SLICE_SPAN] + resident->huge;
    parts[SUMMARY_KEPT] = resident->slices[SLICE_KEPT] + resident->slices[SLICE_FREE_CLEAN] +
                          resident->slices[SLICE_FREE_DIRTY] + resident->slices[SLICE_FREE_AGED] +
                          resident->huge_kept;
    parts[SUMMARY_TABLES] = resident->tables;
    summary_fit(summary);
    uint64_t free = parts[SUMMARY_FREE_IN_SLABS];
    uint64_t held = parts[SUMMARY_IN_USE] + parts[SUMMARY_ROUNDING] + free;
    summary->fragmentation = held == 0 ? 0 : (uint32_t)summary_share(1000, free, held);
}

uint64_t hak__summary_part(const struct summary *summary, uint32_t part)
{
    bool known = summary->known && (part != SUMMARY_NOT_HAKMEM || summary_has_rss(summary));
    return known ? summary->parts[part] : UINT64_MAX;
}
