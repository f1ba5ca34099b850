/* SPDX-License-Identifier: MIT */
/* superslab_run.c: takes several adjacent whole superslabs, for a huge block.
 *
 * Why: a huge block is a mapping of its own, and Linux allows a process 65,530 mappings by
 * default. Adjacent superslabs are one mapping, so this works when a huge block does not. See
 * superslab.h. */
#include <errno.h>

#include "base/bits.h"
#include "os/os.h"
#include "region/mappings.h"
#include "region/numa.h"
#include "region/superslab.h"
#include "region/window.h"

/* Tries at the frontier. A try fails if another mapping is there, or another thread takes the
 * claimed superslabs. Doubled, it gets past more foreign mappings; halved, it gives up earlier. */
#define RUN_TRIES 16u

/* What the slices are claimed for. */
static const struct superslab_wish run_wish = {.count = SUPERSLAB_SLICES, .alignment = 1};

/* The first of `count` adjacent superslabs of the part that are wholly free. INDEX_NONE: there are
 * none. Under REGION. */
static size_t run_find(struct superslab_part *part, size_t count)
{
    size_t first = hak__superslab_index_find(part, INDEX_FREE, SUPERSLAB_SLICES, 0), found = 0;
    while (first != INDEX_NONE && found < count) {
        size_t index = first + found;
        if (index < hak__superslabs.count && superslab_part_of(index) == part &&
            superslab_at(index)->free == ~UINT64_C(0)) {
            found++;
        } else {
            size_t next = superslab_next(part, index - 1); /* `index` may be another part's */
            first = hak__superslab_index_find(part, INDEX_FREE, SUPERSLAB_SLICES, next);
            found = 0;
        }
    }
    return first;
}

/* Takes `count` wholly free superslabs of the part. SLICE_NONE: there are none, or refused. */
static struct slice_run run_take_free(struct superslab_part *part, size_t count)
{
    struct slice_run run = {SLICE_NONE, true};
    if (!hak__superslab_lock(&part->lock)) {
        return run;
    }
    size_t first = run_find(part, count);
    for (size_t i = 0; first != INDEX_NONE && i < count; i++) {
        struct superslab *superslab = superslab_at(first + i);
        (void)hak__superslab_mark_taken(first + i, ~UINT64_C(0));
        run.zeroed = run.zeroed && superslab->dirty == 0;
        superslab->dirty = ~UINT64_C(0); /* slices in use are dirty */
    }
    hak__superslab_note_peak();
    lock_release(&part->lock);
    if (first != INDEX_NONE) {
        run.slice = first * SUPERSLAB_SLICES;
    }
    return run;
}

/* The same, of any part of the node, or of any (NODE_ANY). */
static struct slice_run run_take_any(uint32_t node, size_t count)
{
    struct slice_run run = {SLICE_NONE, false};
    for (uint32_t i = 0; i < superslab_parts() && run.slice == SLICE_NONE; i++) {
        struct superslab_part *part = hak__superslab_parts[i];
        if (node == NODE_ANY || part->node == node) {
            run = run_take_free(part, count);
        }
    }
    return run;
}

/* If there are several parts: makes sure that `slices` from the frontier on are the part's.
 * False: no memory. Under GROWTH. */
static bool run_reach(struct superslab_part *part, size_t slices)
{
    if (part->groups == NULL) {
        return true;
    }
    size_t end = hak__superslab_end(part), behind = hak__superslabs.groups_count * GROUP_SLICES;
    if (part->frontier + slices > end && end != behind) { /* another part's group follows */
        part->frontier = behind;
    }
    while (hak__superslab_end(part) < part->frontier + slices) {
        if (!hak__superslab_add_group(part)) {
            return false;
        }
    }
    return true;
}

/* Claims the rest of the superslab at the frontier and `superslabs` whole ones after it. False: no
 * memory. True: they are claimed, or another mapping was there and the caller should try again.
 * Under GROWTH. */
static bool run_claim(struct superslab_part *part, size_t superslabs)
{
    if (!run_reach(part, (superslabs + 1) * SUPERSLAB_SLICES)) {
        return false;
    }
    size_t first = part->frontier, next = bits_align_up(first, SUPERSLAB_SLICES);
    size_t end = next + superslabs * SUPERSLAB_SLICES;
    if (end * SLICE_SIZE > hak__window.size) {
        return false;
    }
    int error = hak__mappings_claim(first, end - first);
    if (error == -EEXIST) { /* another mapping is there: skip a superslab */
        part->frontier = next + (next == first ? SUPERSLAB_SLICES : 0);
        return true;
    }
    if (error == 0 && hak__window_grow_tables(end) != 0) {
        hak__os_discard(window_slice_address(first), (end - first) * SLICE_SIZE);
        return false;
    }
    if (error != 0) {
        return false;
    }
    part->frontier = hak__superslab_publish(first, end, &run_wish);
    return part->frontier == end;
}

struct slice_run hak__superslab_take_run(size_t superslabs)
{
    struct slice_run run = {SLICE_NONE, false};
    struct superslab_part *part = hak__superslab_parts[hak__superslab_part_near(numa_node())];
    bool grown = true;
    for (uint32_t i = 0; run.slice == SLICE_NONE && grown && i < RUN_TRIES; i++) {
        uint64_t signals = hak__lock_block_signals();
        lock_acquire(&hak__growth_lock);
        run = run_take_any(part->node, superslabs);
        grown = run.slice != SLICE_NONE || run_claim(part, superslabs);
        lock_release(&hak__growth_lock);
        hak__os_restore_signals(signals);
    }
    /* Superslabs that were unmapped can be extended into, when the frontier can not. */
    for (grown = true; run.slice == SLICE_NONE && grown;) {
        uint64_t signals = hak__lock_block_signals();
        lock_acquire(&hak__growth_lock);
        grown = hak__superslab_reclaim(NODE_ANY, &run_wish);
        run = run_take_any(NODE_ANY, superslabs);
        lock_release(&hak__growth_lock);
        hak__os_restore_signals(signals);
    }
    return run;
}

void hak__superslab_give_run(size_t slice, size_t superslabs)
{
    for (size_t i = 0; i < superslabs; i++) {
        hak__superslab_give(slice + i * SUPERSLAB_SLICES, SUPERSLAB_SLICES);
    }
}
