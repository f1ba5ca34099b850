/* SPDX-License-Identifier: MIT */
/* heap_look.c: see heap_look.h.
 *
 * Calls: hak__heap_look -> look_slabs, look_spans, look_maps at the gate, then look_residency. */
#include "observe/heap_look.h"

#include "arena/arena.h"
#include "base/bits.h"
#include "large/span.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"
#include "slab/slab.h"

static struct arena *look_find_arena(uint32_t id)
{
    struct arena *arena = hak__arena_first();
    while (arena != NULL && arena->id != id) {
        arena = arena->next;
    }
    return arena;
}

/* Copies a slab of an arena whose lock is held. */
static struct slab_look look_slab(const struct slab *slab, uint32_t arena_id)
{
    uint32_t free_count = slab_free_objects(slab), carved = slab_cut_count(slab);
    free_count = free_count < carved ? free_count : carved; /* a double free may add more */
    return (struct slab_look){.arena = arena_id,
                              .class_index = slab->class_index,
                              .slices = slab->slice_count,
                              .out_count = (uint16_t)(carved - free_count),
                              .free_count = (uint16_t)free_count,
                              .not_carved_count = (uint16_t)(slab->capacity - carved)};
}

/* Copies the slabs that `arena` has in the slices of `wanted`. Under its lock their owner words do
 * not change. Returns the slices that were looked at; none if a stopped thread has the lock. */
static uint64_t look_slabs_of(struct heap_look *look, struct arena *arena, uint64_t wanted)
{
    uint64_t seen = 0;
    if (!lock_acquire_soon(&arena->lock)) {
        return 0;
    }
    for (uint64_t rest = wanted; rest != 0; rest &= rest - 1) {
        uint32_t i = bits_lowest(rest);
        size_t slice = look->index * SUPERSLAB_SLICES + i;
        if (!owner_is_slab_of(window_owner(slice), arena->id)) {
            continue;
        }
        seen |= UINT64_C(1) << i;
        const struct slab *slab = window_slab_metadata(slice);
        if (slab->slices_back == 0) {
            look->slabs[i] = look_slab(slab, arena->id);
            look->starts |= UINT64_C(1) << i;
        }
    }
    lock_release(&arena->lock);
    return seen;
}

/* Returns the first slices of the superslab's spans. */
static uint64_t look_slabs(struct heap_look *look, bool is_brief)
{
    uint64_t spans = 0, slabs = 0;
    for (uint32_t i = 0; i < look->claimed; i++) {
        uint32_t owner = window_owner(look->index * SUPERSLAB_SLICES + i);
        spans |= (uint64_t)(owner == OWNER_SPAN || owner == OWNER_SPAN_TAKEN) << i;
        slabs |= (uint64_t)owner_is_slab(owner) << i;
        /* a brief look takes each slice for a slab of its own */
        look->slabs[i] =
            (struct slab_look){.class_index = (uint8_t)owner_class(owner), .slices = 1};
    }
    look->starts = is_brief ? slabs : 0;
    while (slabs != 0 && !is_brief) {
        uint32_t first = bits_lowest(slabs);
        size_t slice = look->index * SUPERSLAB_SLICES + first;
        struct arena *arena = look_find_arena(window_owner(slice) >> OWNER_CODE_BITS);
        uint64_t seen = arena == NULL ? 0 : look_slabs_of(look, arena, slabs);
        slabs &= ~(seen | UINT64_C(1) << first); /* or the slab was given back just now */
    }
    return spans;
}

/* Marks `count` slices from `first` on as one block. False: one of them is closed, which means free
 * or part of another block: what was read at different moments may overlap. */
static bool look_mark(struct heap_look *look, uint64_t *closed, uint32_t first, uint32_t count,
                      enum slice_kind kind)
{
    uint32_t left = look->claimed > first ? look->claimed - first : 0;
    count = count < left ? count : left;
    if (count == 0 || (*closed & bits_mask(first, count)) != 0) {
        return false;
    }
    *closed |= bits_mask(first, count);
    for (uint32_t i = first; i < first + count; i++) {
        look->kinds[i] = (uint8_t)kind;
    }
    return true;
}

static bool look_span(struct heap_look *look, uint64_t *closed, uint32_t first, size_t slices)
{
    uint32_t left = SUPERSLAB_SLICES - first;
    if (!look_mark(look, closed, first, slices < left ? (uint32_t)slices : left, SLICE_SPAN)) {
        return false;
    }
    look->span_left = slices > left ? slices - left : 0;
    return true;
}

/* Decides what each slice is. `spans` are the first slices of spans; `continued` slices at the
 * beginning belong to a span of an earlier superslab. */
static void look_decide(struct heap_look *look, const struct superslab *maps, uint64_t spans,
                        size_t continued)
{
    uint64_t closed = maps->free, slabs = look->starts;
    for (uint32_t i = 0; i < look->claimed; i++) {
        uint64_t bit = UINT64_C(1) << i;
        look->kinds[i] = (uint8_t)((maps->free & bit) == 0    ? SLICE_KEPT
                                   : (maps->aged & bit) != 0  ? SLICE_FREE_AGED
                                   : (maps->dirty & bit) != 0 ? SLICE_FREE_DIRTY
                                                              : SLICE_FREE_CLEAN);
    }
    look->span_left = 0;
    look->starts = 0;
    if (continued != 0) {
        (void)look_span(look, &closed, 0, continued);
    }
    for (; slabs != 0; slabs &= slabs - 1) {
        uint32_t i = bits_lowest(slabs);
        bool shown = look_mark(look, &closed, i, look->slabs[i].slices, SLICE_SLAB);
        look->starts |= (uint64_t)shown << i;
    }
    for (; spans != 0; spans &= spans - 1) {
        uint32_t i = bits_lowest(spans);
        size_t slices = hak__span_slices(look->index * SUPERSLAB_SLICES + i);
        look->starts |= (uint64_t)look_span(look, &closed, i, slices) << i;
    }
}

/* A copy in no state at all: a stopped thread has the lock. */
static struct superslab look_copy_maps(struct heap_look *look)
{
    struct superslab maps = {.state = SUPERSLAB_NEW};
    look->refused = look->refused || !hak__superslab_copy(look->index, &maps);
    return maps;
}

static void look_residency(struct heap_look *look)
{
    unsigned char pages[SUPERSLAB_SIZE / ARCH_PAGE_SIZE_MIN] = {0};
    const void *start = window_slice_address(look->index * SUPERSLAB_SLICES);
    size_t page = hak__os_page_size(), in_slice = SLICE_SIZE / page; /* 0: a page is two slices */
    size_t size = bits_align_up(look->claimed * SLICE_SIZE, page);
    look->answered = hak__os_look(start, size, pages) == 0;
    for (size_t i = 0; i < look->claimed; i++) {
        size_t resident = in_slice == 0
                              ? (pages[i * SLICE_SIZE / page] & 1) * SLICE_SIZE
                              : hak__os_resident_pages(pages + i * in_slice, in_slice) * page;
        look->resident[i] = (uint32_t)resident;
    }
}

void hak__heap_look(struct heap_look *look, size_t index)
{
    size_t continued = index == look->index + 1 ? look->span_left : 0;
    look->index = index;
    look->claimed = 0;
    look->starts = 0;
    look->refused = !hak__gate_enter(GATE_PATIENTLY);
    if (look->refused) {
        return;
    }
    struct superslab maps = look_copy_maps(look);
    if (maps.state == SUPERSLAB_CLAIMED) {
        bool is_brief = look->is_brief && maps.huge_pages == 0;
        look->claimed = maps.claimed;
        uint64_t spans = look_slabs(look, is_brief);
        maps = look_copy_maps(look);
        look->claimed = maps.state == SUPERSLAB_CLAIMED ? maps.claimed : 0;
        look->huge = maps.huge_pages != 0;
        look->split = maps.split != 0;
        uint64_t claimed = bits_mask(0, look->claimed);
        look_decide(look, &maps, spans & claimed, continued);
    }
    hak__gate_leave();
    if (look->claimed != 0) {
        look_residency(look);
    }
}
