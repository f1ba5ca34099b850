/* SPDX-License-Identifier: MIT */
/* resident.c: how many bytes of hakmem's memory are resident, and for what hakmem uses them.
 *
 * The kernel says which pages are resident (mincore), and a look at each superslab (heap_look.h)
 * what its slices are. Cost: about 2 ms for each GiB that hakmem has mapped. Program threads run on
 * meanwhile. A page in a swap area is not resident. The kernel's zero page, mapped when a program
 * only reads new memory, is resident here and not in the RSS.
 *
 * Locks: REGION and HUGE, one at a time, and none over a system call. */
#include "observe/report.h"

#include "arena/arena.h"
#include "base/bits.h"
#include "large/huge.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

uint64_t hak__resident_bytes(struct resident *resident, uintptr_t start, uintptr_t end)
{
    /* Pages that one system call looks at: as many as the kernel looks at under one hold of its
     * lock. Twice: 4 KiB more stack and no fewer holds. Half: twice the system calls. */
    unsigned char pages[4096];
    size_t page = hak__os_page_size(), most = sizeof pages * page;
    uint64_t count = 0;
    start = bits_align_down(start, page);
    end = bits_align_up(end, page);
    for (size_t size; start < end; start += size) {
        size = end - start < most ? end - start : most;
        bool answered = hak__os_look((const void *)start, size, pages) == 0;
        count += answered ? hak__os_resident_pages(pages, size / page) : 0;
        resident->answers += answered;
        resident->failures += !answered;
    }
    return count * page;
}

bool hak__resident_next_huge(struct resident *resident, struct huge_list *list)
{
    resident->refused = resident->refused || !hak__gate_enter(GATE_PATIENTLY);
    if (resident->refused) {
        return false;
    }
    bool more = hak__huge_list_next(list);
    hak__gate_leave();
    return more;
}

static void look_at_superslabs(struct resident *resident)
{
    struct heap_look look = {.is_brief = true};
    size_t count = atomic_load_relaxed(&hak__superslabs.count);
    for (size_t index = 0; index < count && !resident->refused; index++) {
        hak__heap_look(&look, index);
        resident->refused = look.refused;
        resident->answers += look.claimed != 0 && look.answered;
        resident->failures += look.claimed != 0 && !look.answered;
        for (uint32_t i = 0; i < look.claimed; i++) {
            *(look.kinds[i] == SLICE_SLAB ? &resident->classes[look.slabs[i].class_index]
                                          : &resident->slices[look.kinds[i]]) += look.resident[i];
        }
        (void)hak__huge_use_add(&resident->huge_use, &look);
    }
}

static void look_at_huge(struct resident *resident)
{
    struct huge_list list = {.after = 0};
    while (hak__resident_next_huge(resident, &list)) {
        for (uint32_t i = 0; i < list.count; i++) {
            uintptr_t start = list.views[i].address, end = start + list.views[i].size;
            uint64_t bytes = hak__resident_bytes(resident, start, end);
            *(list.views[i].kept ? &resident->huge_kept : &resident->huge) += bytes;
            hak__huge_use_add_block(&resident->huge_use, &list.views[i], bytes);
        }
    }
}

/* The slab metadata up to `high`, without the parts of superslabs that were skipped: these may be
 * unmapped. */
static uint64_t look_at_slab_metadata(struct resident *resident, uintptr_t high)
{
    const size_t step = SUPERSLAB_SLICES * HAK_CACHE_LINE;
    uintptr_t start = (uintptr_t)hak__window.slabs, at = start;
    size_t count = atomic_load_relaxed(&hak__superslabs.count);
    uint64_t bytes = 0;
    for (size_t index = 0; index < count; index++, at += step) {
        if (atomic_load_relaxed(&superslab_at(index)->state) == SUPERSLAB_NEW) { /* skipped */
            bytes += hak__resident_bytes(resident, start, at < high ? at : high);
            start = at + step;
        }
    }
    return bytes + hak__resident_bytes(resident, start, high);
}

/* The caller is not inside the gate: most tables stay where they are. */
static uint64_t look_at_tables(struct resident *resident)
{
    uintptr_t low, high;
    uint64_t bytes = 0;
    size_t size;
    const void *chunk = NULL;
    if (hak__window_pair(0, &low, &high)) {
        bytes += hak__resident_bytes(resident, low, high);
    }
    if (hak__window_pair(1, &low, &high)) {
        bytes += hak__resident_bytes(resident, low, (uintptr_t)hak__window.slabs); /* the room */
        bytes += look_at_slab_metadata(resident, high);
    }
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        size = hak__superslab_part_bytes(i, &low);
        bytes += hak__resident_bytes(resident, low, low + size);
    }
    while ((chunk = hak__metadata_before(chunk, &size)) != NULL) {
        bytes += hak__resident_bytes(resident, (uintptr_t)chunk, (uintptr_t)chunk + size);
    }
    return bytes;
}

void hak__resident_take(struct resident *resident)
{
    *resident = (struct resident){.refused = !hak__gate_enter(GATE_PATIENTLY)};
    if (resident->refused) {
        return;
    }
    struct huge_view of_huge = hak__huge_table();
    hak__gate_leave();
    if (hak__window.base != WINDOW_NOWHERE) {
        look_at_superslabs(resident);
        resident->tables = look_at_tables(resident);
    }
    resident->tables +=
        hak__resident_bytes(resident, of_huge.address, of_huge.address + of_huge.size);
    look_at_huge(resident);
    /* Single failures are ranges that were unmapped meanwhile. */
    resident->known = !resident->refused && (resident->answers != 0 || resident->failures == 0);
    resident->huge_use.unknown |= !resident->known;
}
