/* SPDX-License-Identifier: MIT */
/* superslab.c: takes and gives slices. See superslab.h.
 *
 * Calls: take -> take_free -> find; if nothing fits, take_other for dirty slices, then grow ->
 * reclaim or advance (superslab_claim.c), and take_free again, or take_other for any. */
#include "region/superslab.h"

#include <errno.h>

#include "base/bits.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/mappings.h"
#include "region/secure.h"
#include "region/window.h"

struct lock HAK_LOCK_LINE hak__growth_lock = LOCK_INITIAL(LOCK_RANK_GROWTH);
struct superslab_table hak__superslabs = {.parts_count = 1, .growth_due = PURGE_BYTES_AT_ONCE};

/* True: unmapped after use. Under GROWTH, which the neighbours' states need, too. */
static bool superslab_is_hole(size_t index)
{
    /* wraps before the first one */
    return index < hak__superslabs.count &&
           atomic_load_relaxed(&superslab_at(index)->state) >= SUPERSLAB_RELEASED;
}

void hak__superslab_set_state(size_t index, enum superslab_state state, uint32_t claimed)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    size_t count = table->claimed_count;
    count += (state == SUPERSLAB_CLAIMED) - (size_t)(superslab->state == SUPERSLAB_CLAIMED);
    atomic_store_relaxed(&table->claimed_count, count);
    size_t released = table->released_count;
    released += (state == SUPERSLAB_RELEASED) - (size_t)(superslab->state == SUPERSLAB_RELEASED);
    atomic_store_relaxed(&table->released_count, released);
    if (superslab_is_hole(index) != (state >= SUPERSLAB_RELEASED)) {
        size_t beside = (size_t)superslab_is_hole(index - 1) + superslab_is_hole(index + 1);
        size_t joined = state >= SUPERSLAB_RELEASED ? 1 - beside : beside - 1; /* may wrap */
        atomic_store_relaxed(&table->holes_count, table->holes_count + joined);
    }
    size_t slices = claimed - (size_t)superslab->claimed; /* wraps if it was released */
    struct superslab_part *part = superslab_part_of(index);
    atomic_store_relaxed(&part->claimed_slices, part->claimed_slices + slices);
    atomic_store_relaxed(&table->claimed_slices, table->claimed_slices + slices);
    atomic_store_relaxed(&superslab->state, (uint16_t)state);
    atomic_store_relaxed(&superslab->claimed, (uint16_t)claimed);
    hak__superslab_index_set(INDEX_RELEASED, index, state == SUPERSLAB_RELEASED);
}

/* Assertion level 1. Under REGION. */
static void superslab_check(const struct superslab *superslab)
{
    HAK_ASSERT((superslab->aged & ~(superslab->free & superslab->dirty)) == 0);
    (void)superslab;
}

/* Updates the free map and the sums, but not the index. Under REGION. */
static void superslab_add_free(size_t index, uint64_t mask)
{
    struct superslab_part *part = superslab_part_of(index);
    struct superslab *superslab = superslab_at(index);
    HAK_ASSERT((superslab->free & mask) == 0);
    superslab->free |= mask;
    (void)hak__superslab_add_free(part, bits_count(mask), bits_count(mask & superslab->dirty));
    if (part->dirty_free_slices >= part->dirty_free_noted + SLABS_KEPT_SLICES) {
        hak__superslab_note_fall(part->dirty_free_slices - part->dirty_free_noted);
        part->dirty_free_noted = part->dirty_free_slices;
        superslab_note_freed_much();
    }
    superslab_check(superslab);
}

void hak__superslab_mark_free(size_t index, uint64_t mask)
{
    superslab_add_free(index, mask);
    hak__superslab_index_maps(index);
}

bool hak__superslab_mark_taken(size_t index, uint64_t mask)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab_part *part = superslab_part_of(index);
    struct superslab *superslab = superslab_at(index);
    HAK_ASSERT((superslab->free & mask) == mask);
    superslab->free &= ~mask;
    superslab->aged &= ~mask;
    hak__superslab_index_maps(index);
    bool told = hak__superslab_add_free(part, 0 - (size_t)bits_count(mask),
                                        0 - (size_t)bits_count(mask & superslab->dirty));
    if (part->dirty_free_slices < part->dirty_free_noted) {
        part->dirty_free_noted = part->dirty_free_slices;
    }
    if (told && hak__superslab_bytes_touched() >= atomic_load_relaxed(&table->growth_due) &&
        !superslab_has_grown()) {
        atomic_store_relaxed(&table->grown, 1u);
    }
    superslab_check(superslab);
    return told;
}

/* The slices of a superslab whose number is a multiple of `alignment`. */
static uint64_t superslab_aligned_bits(uint32_t alignment)
{
    uint64_t bits = 1;
    for (uint32_t step = alignment; step < SUPERSLAB_SLICES; step *= 2) {
        bits |= bits << step;
    }
    return bits;
}

/* The first start of a run of `count` in the lower half, which is claimed first, else in the upper
 * one. The lower one is filled from a place on that differs from process to process, so that nobody
 * can guess the lower bits of addresses: a multiple of the run's length, which leaves no gap. */
static uint32_t superslab_first(uint64_t starts, uint32_t count)
{
    const uint32_t half_slices = SUPERSLAB_SLICES / 2;
    uint32_t turn = (uint32_t)(hak__window.mark % half_slices);
    turn -= turn % count;
    uint64_t after = starts % (UINT64_C(1) << half_slices) >> turn << turn;
    return bits_lowest(after != 0 ? after : starts);
}

/* One of the starts of a run of `count`. In the secure form any, but if the process has a limit on
 * addresses, a long run lies at the lowest, so that others fit beside it. Under REGION. */
static uint32_t superslab_choose(struct superslab_part *part, uint64_t starts, uint32_t count)
{
    if (!HAK_SECURE) {
        return superslab_first(starts, count);
    }
    /* Half: runs of 128 KiB are packed more densely. Twice: 300 kB take 1.3 times their
     * addresses. */
    if (count >= 8 && atomic_load_relaxed(&hak__superslabs.limited) != 0) {
        return bits_lowest(starts);
    }
    uint64_t *random = &part->random;
    *random = *random == 0 ? hak__secure.secret + part->number : *random;
    uint32_t shift = secure_random(random) % SUPERSLAB_SLICES;
    uint64_t turned = starts >> shift | starts << ((SUPERSLAB_SLICES - shift) % SUPERSLAB_SLICES);
    return (bits_lowest(turned) + shift) % SUPERSLAB_SLICES;
}

/* True: rule 4 of huge_pages.h keeps the superslab's clean slices for others. Under REGION. */
static bool superslab_is_kept(const struct superslab_wish *wish, const struct superslab *superslab)
{
    return superslab->huge_pages != 0 && superslab->free != ~UINT64_C(0) && !wish->dirty_only &&
           wish->use != FOR_FILLED_SLAB && atomic_load_relaxed(&wish->part->evidence.filled) == 0;
}

/* Looks at the first `looks` superslabs, from *from on, that have a run of at least `length` free
 * (and dirty, if dirty_only) slices. Returns the first slice of the lowest run in them that fits.
 * SLICE_NONE: none fits, and *from is the superslab to go on with, or SIZE_MAX if there are no
 * more. Under REGION. */
static size_t superslab_look(const struct superslab_wish *wish, uint32_t length, size_t *from,
                             uint32_t looks)
{
    uint64_t aligned =
        wish->alignment == 1 ? ~UINT64_C(0) : superslab_aligned_bits(wish->alignment);
    for (; looks != 0; looks--) {
        enum superslab_index kind = wish->dirty_only ? INDEX_DIRTY : INDEX_FREE;
        size_t index = hak__superslab_index_find(wish->part, kind, length, *from);
        if (index == SLICE_NONE) {
            *from = SIZE_MAX;
            break;
        }
        const struct superslab *superslab = superslab_at(index);
        uint64_t map = wish->dirty_only ? superslab->free & superslab->dirty : superslab->free;
        uint64_t starts = bits_run_starts(map, wish->count) & aligned;
        if (starts != 0 && !superslab_is_kept(wish, superslab)) {
            return index * SUPERSLAB_SLICES + superslab_choose(wish->part, starts, wish->count);
        }
        *from = superslab_next(wish->part, index);
    }
    return SLICE_NONE;
}

/* Looks for an aligned run in three steps. Each step looks at a bounded number of superslabs:
 *   1. the first ones with a run of `count` slices
 *   2. the first one with a run so long that the wish fits wherever the run starts
 *   3. further ones with a run of `count` slices, from where step 3 of the last search stopped
 * Under REGION. */
static size_t superslab_find_aligned(const struct superslab_wish *wish)
{
    size_t next = 0, start = 0;
    size_t slice = superslab_look(wish, wish->count, &next, LOOKS_MAX);
    if (slice != SLICE_NONE || next == SIZE_MAX) {
        return slice;
    }
    uint32_t fits = wish->count + wish->alignment - 1;
    slice = superslab_look(wish, fits < SUPERSLAB_SLICES ? fits : SUPERSLAB_SLICES, &start, 1);
    if (slice == SLICE_NONE) {
        size_t *on = &wish->part->aligned_next;
        *on = *on < next ? next : *on;
        slice = superslab_look(wish, wish->count, on, LOOKS_MAX);
        *on = *on == SIZE_MAX ? 0 : *on;
    }
    return slice;
}

/* The first slice of the lowest fitting run, or of some fitting run if `alignment` is above 1.
 * SLICE_NONE: none was found. Under REGION. */
static size_t superslab_find(const struct superslab_wish *wish)
{
    size_t start = 0;
    return wish->alignment == 1 ? superslab_look(wish, wish->count, &start, LOOKS_MAX)
                                : superslab_find_aligned(wish);
}

static void superslab_mark_in_use(size_t index, uint64_t mask)
{
    if (hak__superslab_mark_taken(index, mask)) {
        hak__superslab_note_peak();
    }
}

/* Takes a fitting run of free slices of the part, dirty ones first, or only dirty ones. SLICE_NONE:
 * there is none, or the thread was refused, which clears `*goes_on`. */
static struct slice_run superslab_take_free(struct superslab_wish wish, bool *goes_on)
{
    struct slice_run run = {SLICE_NONE, false};
    bool begins = false, dirty_only = wish.dirty_only;
    if (HAK_UNLIKELY(!hak__superslab_lock(&wish.part->lock))) {
        *goes_on = false;
        return run;
    }
    if (wish.part->dirty_free_slices >= wish.count) {
        wish.dirty_only = true;
        run.slice = superslab_find(&wish);
    }
    wish.dirty_only = false;
    if (run.slice == SLICE_NONE && !dirty_only && wish.part->free_slices >= wish.count) {
        run.slice = superslab_find(&wish);
    }
    if (run.slice != SLICE_NONE) {
        size_t index = run.slice / SUPERSLAB_SLICES;
        uint64_t mask = bits_mask(run.slice % SUPERSLAB_SLICES, wish.count);
        struct superslab *superslab = superslab_at(index);
        begins = superslab->huge_pages != 0 && superslab->dirty == 0;
        run.zeroed = superslab->huge_pages != 0 ? begins : (superslab->dirty & mask) == 0;
        superslab_mark_in_use(index, mask);
        superslab->dirty |= mask;
    }
    lock_release(&wish.part->lock);
    if (HAK_UNLIKELY(begins)) {
        hak__superslab_begin(run.slice, &wish);
    }
    return run;
}

/* As superslab_take_free, from any other part than the wish's, or any of its node; the part after
 * it comes first. */
static struct slice_run superslab_take_other(struct superslab_wish wish, bool anywhere,
                                             bool *goes_on)
{
    struct slice_run run = {SLICE_NONE, false};
    struct superslab_part *own = wish.part;
    uint32_t count = superslab_parts();
    for (uint32_t i = 1; i < count && run.slice == SLICE_NONE && *goes_on; i++) {
        wish.part = hak__superslab_parts[(own->number + i) % count];
        const size_t *slices =
            wish.dirty_only ? &wish.part->dirty_free_slices : &wish.part->free_slices;
        if ((anywhere || wish.part->node == own->node) &&
            atomic_load_relaxed(slices) >= wish.count) {
            run = superslab_take_free(wish, goes_on);
        }
    }
    return run;
}

/* Makes more addresses free in any other part. */
static bool superslab_advance_other(struct superslab_wish wish)
{
    bool advanced = false;
    for (uint32_t i = 0; !advanced && i < superslab_parts(); i++) {
        struct superslab_part *part = hak__superslab_parts[i];
        advanced = part != wish.part && hak__superslab_advance(part, &wish);
    }
    return advanced;
}

/* Makes more slices free for the wish, or takes those of another part. Under GROWTH. */
static struct slice_run superslab_grow(struct superslab_wish wish, bool *goes_on)
{
    struct slice_run run = {SLICE_NONE, false};
    if (hak__superslab_reclaim(wish.part->node, &wish)) { /* maybe of another part */
        run = superslab_take_free(wish, goes_on);
        return run.slice != SLICE_NONE || !*goes_on ? run
                                                    : superslab_take_other(wish, false, goes_on);
    }
    if (hak__superslab_advance(wish.part, &wish)) {
        return run;
    }
    run = superslab_take_other(wish, true, goes_on);
    if (run.slice == SLICE_NONE && *goes_on) {
        *goes_on = hak__superslab_reclaim(NODE_ANY, &wish) || superslab_advance_other(wish);
        run = *goes_on ? superslab_take_other(wish, true, goes_on) : run;
    }
    return run;
}

struct slice_run hak__superslab_take(uint32_t part, uint32_t count, uint32_t alignment,
                                     enum slices_for use)
{
    HAK_ASSERT(count >= 1 && count <= SUPERSLAB_SLICES && alignment <= SUPERSLAB_SLICES);
    struct superslab_wish wish = {
        .part = hak__superslab_parts[part], .count = count, .alignment = alignment, .use = use};
    bool goes_on = true;
    struct slice_run run = superslab_take_free(wish, &goes_on);
    if (run.slice == SLICE_NONE && goes_on) { /* before the process grows; without GROWTH */
        wish.dirty_only = true;
        run = superslab_take_other(wish, false, &goes_on);
        wish.dirty_only = false;
    }
    /* Another thread may take the slices of a claim before this one does. Then this thread claims
     * again, until it gets slices or a claim fails. */
    while (run.slice == SLICE_NONE && goes_on) {
        uint64_t signals = hak__lock_block_signals();
        lock_acquire(&hak__growth_lock);
        /* another thread may have claimed meanwhile */
        run = superslab_take_free(wish, &goes_on);
        if (run.slice == SLICE_NONE && goes_on) {
            run = superslab_grow(wish, &goes_on);
        }
        lock_release(&hak__growth_lock);
        hak__os_restore_signals(signals);
        if (run.slice == SLICE_NONE && goes_on) {
            run = superslab_take_free(wish, &goes_on);
        }
    }
    return run;
}

static void superslab_give(size_t slice, uint32_t count, bool clean)
{
    size_t index = slice / SUPERSLAB_SLICES;
    uint64_t mask = bits_mask(slice % SUPERSLAB_SLICES, count);
    struct lock *lock = &superslab_part_of(index)->lock;
    if (HAK_UNLIKELY(!lock_acquire_soon(lock))) {
        hak__superslab_give_late(index, mask);
        return;
    }
    struct superslab *superslab = superslab_at(index);
    /* A pass unmaps the superslab if all of it is free, and finds it by its dirty slices. */
    if (clean && superslab->huge_pages == 0 && (superslab->free | mask) != ~UINT64_C(0)) {
        superslab->dirty &= ~mask;
        hak__superslab_mark_free(index, mask);
    } else {
        superslab_add_free(index, mask);
        hak__superslab_index_grown(index, mask);
    }
    lock_release(lock);
}

void hak__superslab_give(size_t slice, uint32_t count)
{
    superslab_give(slice, count, false);
}

void hak__superslab_give_clean(size_t slice, uint32_t count)
{
    superslab_give(slice, count, true);
}

bool hak__superslab_take_exact(size_t slice, uint32_t count)
{
    uint32_t offset = (uint32_t)(slice % SUPERSLAB_SLICES);
    /* offset 0: the slice before lies in another superslab */
    if (offset == 0 || offset + count > SUPERSLAB_SLICES) {
        return false;
    }
    size_t index = slice / SUPERSLAB_SLICES;
    uint64_t mask = bits_mask(offset, count);
    struct lock *lock = &superslab_part_of(index)->lock;
    if (!lock_acquire_soon(lock)) {
        return false;
    }
    struct superslab *superslab = superslab_at(index);
    bool all_free = (superslab->free & mask) == mask;
    if (all_free) {
        superslab_mark_in_use(index, mask);
        superslab->dirty |= mask;
    }
    lock_release(lock);
    return all_free;
}
