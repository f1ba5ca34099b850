/* SPDX-License-Identifier: MIT */
/* huge_use.c: see report.h. */
#include "observe/report.h"

#include "base/bits.h"
#include "core/knobs.h"
#include "region/superslab.h"
#include "region/window.h"

HAK_STATIC_ASSERT(SUPERSLAB_SIZE == HUGE_PAGE_SIZE, "a superslab is one huge page, or has none");

/* Asks for all superslabs of a group: to open the kernel's file takes longer than its answer. */
static bool use_find(struct huge_use *use, size_t index)
{
    size_t first = bits_align_down(index, SUPERSLAB_GROUP);
    if (use->groups != first / SUPERSLAB_GROUP + 1) {
        size_t left = atomic_load_relaxed(&hak__superslabs.count) - first;
        uintptr_t start = (uintptr_t)window_slice_address(first * SUPERSLAB_SLICES);
        use->unknown |= !hak__os_find_huge_pages(
            start, left < SUPERSLAB_GROUP ? left : SUPERSLAB_GROUP, &use->found);
        use->groups = first / SUPERSLAB_GROUP + 1;
    }
    return (use->found >> (index - first) & 1) != 0;
}

bool hak__huge_use_add(struct huge_use *use, const struct heap_look *look)
{
    bool found = look->claimed != 0 && use_find(use, look->index);
    uint64_t used = 0, resident = 0;
    for (uint32_t i = 0; i < look->claimed; i++) {
        const struct slab_look *slab = &look->slabs[i];
        bool is_slab = look->kinds[i] == SLICE_SLAB && (look->starts >> i & 1) != 0;
        resident += look->resident[i];
        used += is_slab ? (uint64_t)slab->out_count * size_class_bytes(slab->class_index)
                        : (look->kinds[i] == SLICE_SPAN) * SLICE_SIZE;
    }
    use->heap_bytes += resident;
    if (found) {
        use->superslabs_count++;
        use->bytes += SUPERSLAB_SIZE;
        use->used_bytes += used;
    } else if (resident != 0 && !look->split) {
        *(look->huge ? &use->refused_count : &use->unasked_count) += 1;
    }
    return found;
}

void hak__huge_use_add_block(struct huge_use *use, const struct huge_view *view, uint64_t resident)
{
    const size_t step = 64 * HUGE_PAGE_SIZE;
    uintptr_t start = view->address, end = start + view->size;
    uint64_t found;
    use->heap_bytes += resident;
    for (uintptr_t at = bits_align_down(start, HUGE_PAGE_SIZE); at < end; at += step) {
        size_t left = (end - at + HUGE_PAGE_SIZE - 1) / HUGE_PAGE_SIZE;
        use->unknown |= !hak__os_find_huge_pages(at, left < 64 ? left : 64, &found);
        for (; found != 0; found &= found - 1) {
            uintptr_t page = at + bits_lowest(found) * HUGE_PAGE_SIZE, next = page + HUGE_PAGE_SIZE;
            use->bytes += (next < end ? next : end) - (page > start ? page : start);
        }
    }
}

const char *hak__huge_use_why(char why[TEXT_LINE_SIZE], const struct huge_use *use)
{
    const struct superslab_table *table = &hak__superslabs;
    const char *kernel = hak__os_no_huge_pages();
    uint64_t least = atomic_load_relaxed(&hak__knobs.huge_threshold);
    size_t heap = hak__superslab_bytes_grown() + atomic_load_relaxed(&table->huge_bytes);
    size_t split = atomic_load_relaxed(&table->split_count);
    char scaled[16];
    if (kernel != NULL) {
        return kernel;
    } else if (!hak__os_may_ask()) {
        return "hakmem does not ask under a filter of system calls; HAKMEM_IGNORE_FILTER=1: it "
               "does";
    } else if (least == UINT64_MAX) {
        return "huge_threshold is never";
    } else if (heap < least) {
        return hak__text_make(why, TEXT_LINE_SIZE, "the heap is below huge_threshold (%s)",
                              hak__report_scale(scaled, least));
    } else if (use->unknown || split + use->refused_count + use->unasked_count == 0) {
        return "";
    }
    return hak__text_make(why, TEXT_LINE_SIZE,
                          "superslabs with small pages: %zu purged in part, %lu refused by the "
                          "kernel, %lu not asked for",
                          split, use->refused_count, use->unasked_count);
}

uint64_t hak__huge_use_permille(const struct huge_use *use)
{
    size_t count = use->superslabs_count;
    return count == 0 ? UINT64_MAX : use->used_bytes * 1000 / (count * SUPERSLAB_SIZE);
}

void hak__huge_use_write(struct report_writer *writer, const struct huge_use *use)
{
    char why[TEXT_LINE_SIZE];
    hak__report_section_begin(writer, "huge_pages");
    REPORT_FIGURES(
        writer,
        {"bytes", use->unknown ? UINT64_MAX : use->bytes,
         "resident bytes of superslabs and huge blocks in huge pages"},
        {"in_use_permille", hak__huge_use_permille(use),
         "bytes of blocks in use or in thread caches, as a part of superslabs in huge pages"},
        {"split_count", atomic_load_relaxed(&hak__superslabs.split_count),
         "superslabs with small pages because a part was purged"});
    hak__report_string(writer, "why", hak__huge_use_why(why, use), "why the heap has no more");
    hak__report_section_end(writer);
}
