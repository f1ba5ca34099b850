/* SPDX-License-Identifier: MIT */
/* superslab_run.c: takes several adjacent whole superslabs, for a huge block.
 *
 * Why: a huge block is a mapping of its own, and Linux allows a process 65,530 mappings by
 * default. Adjacent superslabs are one mapping, so this works when a huge block does not. See
 * superslab.h. */
#include "base/bits.h"
#include "os/os.h"
#include "region/numa.h"
#include "region/superslab.h"
#include "region/window.h"

/* The first of `count` adjacent superslabs of the part that are wholly free. SLICE_NONE: there are
 * none. Under REGION. */
static size_t run_find(struct superslab_part *part, size_t count)
{
    size_t first = hak__superslab_index_find(part, INDEX_FREE, SUPERSLAB_SLICES, 0), found = 0;
    while (first != SLICE_NONE && found < count) {
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
    for (size_t i = 0; first != SLICE_NONE && i < count; i++) {
        struct superslab *superslab = superslab_at(first + i);
        (void)hak__superslab_mark_taken(first + i, ~UINT64_C(0));
        run.zeroed = run.zeroed && superslab->dirty == 0;
        superslab->dirty = ~UINT64_C(0); /* slices in use are dirty */
    }
    hak__superslab_note_peak();
    lock_release(&part->lock);
    if (first != SLICE_NONE) {
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

struct slice_run hak__superslab_take_run(size_t superslabs)
{
    struct slice_run run = {SLICE_NONE, false};
    struct superslab_part *part = hak__superslab_parts[hak__superslab_part_near(numa_node())];
    const struct superslab_wish wish = {
        .count = SUPERSLAB_SLICES, .alignment = 1, .run = superslabs};
    /* Another thread may take slices of a claim before this one does: then it claims again. */
    for (bool grown = true; run.slice == SLICE_NONE && grown;) {
        uint64_t signals = hak__lock_block_signals();
        lock_acquire(&hak__growth_lock);
        run = run_take_any(part->node, superslabs);
        if (run.slice == SLICE_NONE) {
            grown = hak__superslab_advance(part, &wish) || hak__superslab_reclaim(NODE_ANY, &wish);
            run = run_take_any(grown ? part->node : NODE_ANY, superslabs);
        }
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
