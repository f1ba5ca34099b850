/* SPDX-License-Identifier: MIT */
/* huge_join.c: makes a huge block from parts of freed ones: maps new memory, moves the pages of one
 * part after another into it, and copies nothing. Moving the page tables of 2 MiB takes about 2
 * microseconds; 512 new page faults take about 900 (docs/decisions/0070). */
#include "large/huge_cache.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "core/gate.h"
#include "os/os.h"
#include "region/huge_pages.h"

/* A new mapping that is being filled. */
struct join {
    uintptr_t start;
    size_t lost_at; /* offset of the part of it that another thread has mapped meanwhile */
    size_t lost;    /* bytes of that part; 0: nothing is lost */
};

static void join_unmap(uintptr_t address, size_t size, uint64_t origin)
{
    hak__huge_unmap((struct huge)HUGE_OF(address, size, origin));
}

/* Moves a part to offset `at`, in steps that each lie in one mapping: mremap moves no more. */
static void join_part(struct join *join, struct huge part, size_t at)
{
    while (part.size != 0 && join->lost == 0) {
        bool whole = !huge_is_joined(part) || part.size < HUGE_PAGE_SIZE;
        struct huge step = HUGE_OF(part.address, whole ? part.size : HUGE_PAGE_SIZE, part.origin);
        hak__gate_let_ending_signals(true);
        int error =
            hak__os_move((void *)step.address, step.size, (void *)(join->start + at), false);
        hak__gate_let_ending_signals(false);
        if (error == 0) {
            huge_uncount(step);
        } else if (error == -EEXIST) {
            /* If the program had split the mapping, the kernel may have moved a half of it. So the
             * addresses of the step are not known to be ours, and are never unmapped. */
            join->lost_at = at;
            join->lost = step.size;
            huge_uncount(step);
            hak__os_leave(step.size);
        } else {
            hak__huge_unmap(step); /* the new mapping has pages of its own there */
        }
        part.address += step.size;
        part.size -= step.size;
        at += step.size;
    }
    hak__huge_unmap(part);
}

/* A move pays if a 16th of what is looked at, in the middle of a part, is resident. Else the
 * program filled little of the part, and a few page faults take less. An 8th: the faults may take
 * twice as long as the move. A 32nd: it moves parts of which a page or two was touched. */
#define JOIN_LOOK_SIZE (HUGE_PAGE_SIZE / 8)

/* Not inlined: the stack that it needs would come on top of what a move needs. */
static HAK_NOINLINE bool join_pays(struct huge part)
{
    unsigned char pages[JOIN_LOOK_SIZE / ARCH_PAGE_SIZE_MIN];
    size_t count = JOIN_LOOK_SIZE / hak__os_page_size();
    uintptr_t middle = part.address + bits_align_down(part.size / 2, HUGE_PAGE_SIZE);
    return part.size < HUGE_PAGE_SIZE ||
           hak__os_look((const void *)middle, JOIN_LOOK_SIZE, pages) != 0 ||
           hak__os_resident_pages(pages, count) * 16 >= count;
}

/* Unmaps a new mapping, but for the part that is lost. */
static void join_drop(const struct join *join, size_t size)
{
    size_t behind = join->lost_at + join->lost;
    uint64_t origin = hak__huge_new_origin();
    join_unmap(join->start, join->lost_at, origin);
    join_unmap(join->start + behind, size - behind, origin);
}

struct huge hak__huge_join(const struct huge_parts *taken, size_t size, bool want_zero)
{
    void *place = NULL;
    bool mapped = hak__os_map(size, HUGE_PAGE_SIZE, &place) == 0;
    struct join join = {(uintptr_t)place, 0, 0};
    size_t covered = 0, end = bits_align_down(size, HUGE_PAGE_SIZE);
    if (mapped) {
        hak__os_small(place, size); /* hak__os_move writes to it, which must not cost a huge page */
    }
    for (uint32_t i = 0; i < taken->count; i++) {
        struct huge part = taken->parts[i];
        if (!mapped || join.lost != 0 || !join_pays(part)) {
            hak__huge_unmap(part);
        } else if (part.size < HUGE_PAGE_SIZE) {
            join_part(&join, part, end);
        } else {
            join_part(&join, part, covered);
            covered += part.size;
        }
    }
    if (mapped && join.lost != 0) {
        join_drop(&join, size);
        mapped = false;
    }
    if (!mapped) {
        return (struct huge){0};
    }
    if (end - covered >= 2 * HUGE_PAGE_SIZE && hak__huge_earns_huge_pages(size, want_zero)) {
        hak__huge_pages_try((void *)(join.start + covered), end - covered, 0);
    }
    atomic_add_relaxed(&hak__huge_joined_bytes, size);
    return (struct huge)HUGE_OF(join.start, size, huge_origin_here(0));
}

struct huge hak__huge_join_grow(struct huge block, size_t size)
{
    void *place;
    if (hak__os_map(size, HUGE_PAGE_SIZE, &place) != 0) {
        return (struct huge){0};
    }
    hak__os_small(place, size);
    struct join join = {(uintptr_t)place, 0, 0};
    size_t at = 0, step = 0;
    int error = 0;
    hak__gate_let_ending_signals(true);
    for (; at < block.size && error == 0; at += error == 0 ? step : 0) {
        step = block.size - at < HUGE_PAGE_SIZE ? block.size - at : HUGE_PAGE_SIZE;
        error = hak__os_move((void *)(block.address + at), step, (char *)place + at, true);
    }
    hak__gate_let_ending_signals(false);
    if (error != 0) { /* copy back what has moved: the huge block's old mapping still exists */
        memcpy((void *)block.address, place, at);
        join.lost_at = at;
        join.lost = error == -EEXIST ? step : 0;
        join_drop(&join, size);
        return (struct huge){0};
    }
    hak__gate_let_ending_signals(true);
    hak__os_discard((void *)block.address, block.size);
    hak__gate_let_ending_signals(false);
    atomic_add_relaxed(&hak__huge_joined_bytes, size - block.size);
    return (struct huge)HUGE_OF(join.start, size, block.origin);
}
