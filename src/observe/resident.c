/* SPDX-License-Identifier: MIT */
/* resident.c: how many bytes of hakmem's memory are resident, and for what hakmem uses them.
 *
 * The kernel says which pages are resident (mincore). The owner word of a slice says whether the
 * page belongs to a slab of some class, to a span, or to nobody. Cost: about 2 ms for each GiB that
 * hakmem has mapped. Program threads run on meanwhile. A page in a swap area is not resident. The
 * kernel's zero page, mapped when a program only reads new memory, is resident here and not in the
 * RSS.
 *
 * Locks: REGION and WHALES, one at a time, and none over a system call. */
#include "observe/report.h"

#include <errno.h>

#include "base/bits.h"
#include "heap/heap.h"
#include "large/sampled.h"
#include "large/whale.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"
#include "slab/slab_inherited.h"

/* Pages that one system call looks at: as many as the kernel looks at under one hold of its lock.
 * Twice: 4 KiB more stack and no fewer holds. Half: twice the system calls. */
#define LOOK_PAGES 4096u
/* Superslabs that one look covers at most; with small pages, LOOK_PAGES are so many. */
#define LOOK_SUPERSLABS 8u

struct look {
    struct resident *resident;
    size_t page;
    size_t answers;  /* looks that the kernel answered */
    size_t failures; /* looks that it did not answer */
    bool refused;    /* at the gate; the thread is not inside */
    unsigned char pages[LOOK_PAGES];
};

/* Looks at a range of at most LOOK_PAGES pages. False: it is not mapped any more, or the kernel
 * does not answer. */
static bool look_at(struct look *look, uintptr_t start, size_t size)
{
    int error = hak__os_look((const void *)start, size, look->pages);
    look->answers += error == 0;
    look->failures += error != 0;
    return error == 0;
}

/* Resident bytes of `count` pages, from page `first` of the look on. */
static uint64_t look_count(const struct look *look, size_t first, size_t count)
{
    uint64_t resident = 0;
    for (size_t i = first; i < first + count; i++) {
        resident += look->pages[i] & 1;
    }
    return resident * look->page;
}

/* Between two looks. False: the thread was refused, and may take no lock now. */
static bool look_goes_on(struct look *look)
{
    look->refused = look->refused || !hak__gate_let_pass();
    return !look->refused;
}

/* Resident bytes of any range. Parts that are unmapped count 0. */
static uint64_t look_range(struct look *look, uintptr_t start, uintptr_t end)
{
    uint64_t resident = 0;
    start = bits_align_down(start, look->page);
    end = bits_align_up(end, look->page);
    while (start < end && look_goes_on(look)) {
        size_t size = end - start < LOOK_PAGES * look->page ? end - start : LOOK_PAGES * look->page;
        if (look_at(look, start, size)) {
            resident += look_count(look, 0, size / look->page);
        }
        start += size;
    }
    return resident;
}

/* --- superslabs --- */

/* Adjacent superslabs, of which all but the last are wholly claimed. */
struct look_run {
    size_t first; /* superslab */
    uint32_t count;
    uint32_t slices; /* claimed, in all of them */
    uint64_t free[LOOK_SUPERSLABS];
};

/* The first run at superslab `from` or behind it. count 0: there is none, or a stopped thread has
 * the lock. */
static struct look_run look_next_run(struct look *look, size_t from, uint32_t most)
{
    struct look_run run = {.first = from};
    size_t count = atomic_load_relaxed(&hak__superslabs.count);
    for (size_t index = from; index < count && run.count < most; index++) {
        struct superslab superslab;
        if (!hak__superslab_copy(index, &superslab)) {
            look->refused = true;
            break;
        }
        bool claimed = superslab.state == SUPERSLAB_CLAIMED && superslab.claimed != 0;
        if (!claimed && run.count != 0) {
            break;
        }
        if (claimed) {
            run.first = run.count == 0 ? index : run.first;
            run.free[run.count++] = superslab.free;
            run.slices += superslab.claimed;
        }
        if (claimed && superslab.claimed != SUPERSLAB_SLICES) {
            break;
        }
    }
    return run;
}

/* Whose the slice is. *span_end is the end of the last span whose start was seen. */
static uint64_t *look_owner(struct resident *resident, const struct look_run *run, size_t slice,
                            size_t *span_end)
{
    uint32_t code = window_owner(slice) & OWNER_CODE_MASK;
    if (code == OWNER_SPAN || code == OWNER_SPAN_TAKEN) {
        *span_end = slice + hak__span_slices(slice);
        return &resident->spans;
    }
    if (code == OWNER_SAMPLED) {
        *span_end = slice + hak__sampled_slices(slice);
        return &resident->spans;
    }
    if (code != OWNER_NOBODY) {
        return &resident->classes[code < OWNER_CODE_END ? owner_class(code) : 0];
    }
    if (slice < *span_end) {
        return &resident->spans;
    }
    size_t superslab = slice / SUPERSLAB_SLICES - run->first;
    bool is_free = (run->free[superslab] >> slice % SUPERSLAB_SLICES & 1) != 0;
    return is_free ? &resident->slices_free : &resident->spans_kept;
}

static void look_at_run(struct look *look, const struct look_run *run, size_t *span_end)
{
    size_t first = run->first * SUPERSLAB_SLICES;
    uintptr_t start = (uintptr_t)window_slice_address(first);
    size_t size = bits_align_up(run->slices * SLICE_SIZE, look->page);
    bool answered = look_at(look, start, size);
    for (size_t i = 0; i < run->slices; i++) { /* without an answer, too: for the ends of spans */
        uint64_t *owner = look_owner(look->resident, run, first + i, span_end);
        size_t page = i * SLICE_SIZE / look->page; /* an OS page may be two slices */
        if (!answered) {
            continue;
        }
        *owner += look->page <= SLICE_SIZE ? look_count(look, page, SLICE_SIZE / look->page)
                                           : (look->pages[page] & 1) * SLICE_SIZE;
    }
}

static void look_at_superslabs(struct look *look)
{
    size_t in_look = LOOK_PAGES * look->page / SUPERSLAB_SIZE;
    uint32_t most = in_look < LOOK_SUPERSLABS ? (uint32_t)in_look : LOOK_SUPERSLABS;
    size_t next = 0, span_end = 0;
    while (look_goes_on(look)) {
        struct look_run run = look_next_run(look, next, most);
        if (run.count == 0) {
            break;
        }
        next = run.first + run.count;
        size_t failures = look->failures;
        look_at_run(look, &run, &span_end);
        if (look->failures != failures && run.count > 1) { /* one of them was released meanwhile */
            look->failures = failures;
            next = run.first;
            most = 1;
        }
    }
}

/* --- the rest --- */

static void look_at_whales(struct look *look)
{
    struct whale_list list = {.after = 0};
    while (look_goes_on(look) && hak__whale_list_next(&list)) {
        for (uint32_t i = 0; i < list.count && look_goes_on(look); i++) {
            const struct whale_view *view = &list.views[i];
            uint64_t bytes = look_range(look, view->address, view->address + view->size);
            *(view->kept ? &look->resident->whales_kept : &look->resident->whales) += bytes;
        }
    }
}

static uint64_t look_at_view(struct look *look, struct whale_view view)
{
    return look_range(look, view.address, view.address + view.size);
}

/* The slab metadata up to `high`, without the parts of superslabs that were skipped: these may be
 * unmapped. */
static uint64_t look_at_slab_metadata(struct look *look, uintptr_t high)
{
    const size_t step = SUPERSLAB_SLICES * SLAB_METADATA_SIZE;
    uintptr_t start = (uintptr_t)hak__window.slabs;
    size_t count = atomic_load_relaxed(&hak__superslabs.count);
    uint64_t resident = 0;
    for (size_t index = 0, end; index < count; index = end) {
        for (end = index;
             end < count && atomic_load_relaxed(&superslab_at(end)->state) != SUPERSLAB_NEW;) {
            end++;
        }
        if (end == index) { /* skipped */
            end++;
            continue;
        }
        uintptr_t to = end == count ? high : start + end * step;
        resident += look_range(look, start + index * step, to < high ? to : high);
    }
    return resident;
}

static void look_at_tables(struct look *look)
{
    uintptr_t low, high;
    uint64_t *tables = &look->resident->tables;
    if (hak__window_pair(0, &low, &high)) {
        *tables += look_range(look, low, high);
    }
    if (hak__window_pair(1, &low, &high)) {
        *tables += look_range(look, low, (uintptr_t)hak__window.slabs); /* the room */
        *tables += look_at_slab_metadata(look, high);
    }
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        size_t bytes = hak__superslab_part_bytes(i, &low);
        *tables += look_range(look, low, low + bytes);
    }
    const void *chunk = hak__metadata_newest();
    for (; chunk != NULL && !look->refused; chunk = hak__metadata_before(chunk)) {
        *tables += look_range(look, (uintptr_t)chunk, (uintptr_t)chunk + hak__metadata_size(chunk));
    }
    size_t size;
    const void *bits = hak__slab_bits_before(NULL, &size);
    for (; bits != NULL && !look->refused; bits = hak__slab_bits_before(bits, &size)) {
        *tables += look_range(look, (uintptr_t)bits, (uintptr_t)bits + size);
    }
    if (look_goes_on(look)) {
        struct whale_tables of_whales = hak__whale_tables();
        *tables += look_at_view(look, of_whales.registry) + look_at_view(look, of_whales.cache);
    }
}

void hak__resident_take(struct resident *resident)
{
    struct look look = {.resident = resident, .page = hak__os_page_size()};
    *resident = (struct resident){.known = false};
    if (!hak__gate_enter_patiently()) {
        return;
    }
    if (hak__window.base != WINDOW_NOWHERE) {
        look_at_superslabs(&look);
        look_at_tables(&look);
    }
    look_at_whales(&look);
    hak__gate_leave();
    /* Single failures are ranges that were unmapped meanwhile. */
    if (look.refused || (look.answers == 0 && look.failures != 0)) {
        *resident = (struct resident){.known = false};
    } else {
        resident->known = true;
    }
}
