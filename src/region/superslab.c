/* SPDX-License-Identifier: MIT */
/* superslab.c: takes, gives and claims slices. See superslab.h.
 *
 * Calls: take -> take_free -> find; if nothing fits, reclaim or advance (which choose the pages and
 * publish the slices), and take_free again. */
#include "region/superslab.h"

#include <errno.h>

#include "base/bits.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/left.h"
#include "region/mappings.h"
#include "region/numa.h"
#include "region/secure.h"
#include "region/window.h"

struct lock hak__region_lock = LOCK_INITIAL(LOCK_RANK_REGION);
struct lock hak__growth_lock = LOCK_INITIAL(LOCK_RANK_GROWTH);
struct superslab_table hak__superslabs = {.growth_due = PAGES_GROWTH_MIN};

/* Slices of a claim: a whole superslab, which is the most. Half of that would double the number of
 * mmap calls and prevent huge pages. At assertion level 2 a quarter, to test superslabs that are
 * partly claimed. */
#define CLAIM_SLICES (HAK_TINY_LIMITS ? SUPERSLAB_SLICES / 4 : SUPERSLAB_SLICES)
/* Slices of the first claim: half a superslab, because many programs need no more. No page in it
 * can be huge, so it needs no madvise (docs/decisions/0064). Doubled: each process makes that call.
 * Halved: programs that use more than 512 KiB need a second claim. */
#define CLAIM_FIRST (CLAIM_SLICES < SUPERSLAB_SLICES / 2 ? CLAIM_SLICES : SUPERSLAB_SLICES / 2)

void hak__superslab_tables(struct superslab_group *groups_end)
{
    hak__superslabs.groups_end = groups_end;
}

void hak__superslab_set_state(size_t index, enum superslab_state state, uint32_t claimed)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    size_t count = table->claimed_count;
    count += (state == SUPERSLAB_CLAIMED) - (size_t)(superslab->state == SUPERSLAB_CLAIMED);
    atomic_store_relaxed(&table->claimed_count, count);
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
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    HAK_ASSERT((superslab->free & mask) == 0);
    superslab->free |= mask;
    /* relaxed: reports and hints read the sums without the lock */
    atomic_store_relaxed(&table->free_slices, table->free_slices + bits_count(mask));
    atomic_store_relaxed(&table->dirty_free_slices,
                         table->dirty_free_slices + bits_count(mask & superslab->dirty));
    if (table->dirty_free_slices >= table->dirty_free_noted + FREED_MUCH_SLICES) {
        table->dirty_free_noted = table->dirty_free_slices;
        superslab_note_freed_much();
    }
    superslab_check(superslab);
}

void hak__superslab_mark_free(size_t index, uint64_t mask)
{
    superslab_add_free(index, mask);
    hak__superslab_index_maps(index);
}

void hak__superslab_mark_taken(size_t index, uint64_t mask)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    HAK_ASSERT((superslab->free & mask) == mask);
    superslab->free &= ~mask;
    superslab->aged &= ~mask;
    hak__superslab_index_maps(index);
    atomic_store_relaxed(&table->free_slices, table->free_slices - bits_count(mask));
    atomic_store_relaxed(&table->dirty_free_slices,
                         table->dirty_free_slices - bits_count(mask & superslab->dirty));
    if (table->dirty_free_slices < table->dirty_free_noted) {
        table->dirty_free_noted = table->dirty_free_slices;
    }
    if (hak__superslab_bytes_touched() >= atomic_load_relaxed(&table->growth_due) &&
        !superslab_has_grown()) {
        atomic_store_relaxed(&table->grown, 1u);
    }
    superslab_check(superslab);
}

#define HUGE_SLICES ((uint32_t)(HUGE_PAGE_SIZE / SLICE_SIZE))
HAK_STATIC_ASSERT(SUPERSLAB_SIZE == HUGE_PAGE_SIZE, "one is asked for");

/* Makes the slices of `mask`, which were just taken, dirty. In a superslab with huge pages it makes
 * all slices dirty: the first touch may make a whole huge page resident, and then all of it must be
 * purged. Under REGION. */
static void superslab_make_dirty(size_t index, uint64_t mask)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    for (uint32_t first = 0; superslab->huge != 0 && first < SUPERSLAB_SLICES;
         first += HUGE_SLICES) {
        uint64_t page = bits_mask(first, HUGE_SLICES);
        mask |= (mask & page) != 0 ? page : 0;
    }
    uint64_t became_dirty = mask & ~superslab->dirty & superslab->free;
    superslab->dirty |= mask;
    if (became_dirty != 0) {
        atomic_store_relaxed(&table->dirty_free_slices,
                             table->dirty_free_slices + bits_count(became_dirty));
        hak__superslab_index_maps(index);
    }
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

/* The run of slices to look for. */
struct superslab_wish {
    uint32_t count;         /* slices */
    uint32_t alignment;     /* slices, a power of two */
    bool dirty_only;        /* all of them are dirty */
    const uint64_t *groups; /* in which it lies (numa_groups) */
};

/* Runs of so many slices or more lie at an end of the free ones. Half: runs of 128 KiB are packed
 * more densely, and can be guessed better. Twice: 300 kB take 1.3 times their addresses. */
#define RANDOM_SLICES_MAX 8u

/* One of the starts of a run of `count`: the lowest; in the secure form any, or for a long run the
 * lowest or the highest, so that others fit beside it. Under REGION. */
static uint32_t superslab_choose(uint64_t starts, uint32_t count)
{
    if (!HAK_SECURE) {
        return bits_lowest(starts);
    }
    static uint64_t random;
    random = random == 0 ? hak__secure.canary : random;
    if (count >= RANDOM_SLICES_MAX) {
        return secure_random(&random) % 2 == 0 ? bits_lowest(starts) : bits_log2(starts);
    }
    uint32_t shift = secure_random(&random) % SUPERSLAB_SLICES;
    uint64_t turned = starts >> shift | starts << ((SUPERSLAB_SLICES - shift) % SUPERSLAB_SLICES);
    return (bits_lowest(turned) + shift) % SUPERSLAB_SLICES;
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
        size_t index = hak__superslab_index_find_in(wish->dirty_only ? INDEX_DIRTY : INDEX_FREE,
                                                    length, *from, wish->groups);
        if (index == INDEX_NONE) {
            *from = SIZE_MAX;
            break;
        }
        const struct superslab *superslab = superslab_at(index);
        uint64_t map = wish->dirty_only ? superslab->free & superslab->dirty : superslab->free;
        uint64_t starts = bits_run_starts(map, wish->count) & aligned;
        if (starts != 0) {
            return index * SUPERSLAB_SLICES + superslab_choose(starts, wish->count);
        }
        *from = index + 1;
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
    size_t slice = superslab_look(wish, wish->count, &next, ALIGNED_LOOKS);
    if (slice != SLICE_NONE || next == SIZE_MAX) {
        return slice;
    }
    uint32_t fits = wish->count + wish->alignment - 1;
    slice = superslab_look(wish, fits < SUPERSLAB_SLICES ? fits : SUPERSLAB_SLICES, &start, 1);
    if (slice == SLICE_NONE) {
        size_t *on = &hak__superslabs.aligned_next;
        *on = *on < next ? next : *on;
        slice = superslab_look(wish, wish->count, on, ALIGNED_LOOKS);
        *on = *on == SIZE_MAX ? 0 : *on;
    }
    return slice;
}

/* The first slice of the lowest fitting run, or of some fitting run if `alignment` is above 1.
 * SLICE_NONE: none was found. Under REGION. */
static size_t superslab_find(const struct superslab_wish *wish)
{
    size_t start = 0;
    return wish->alignment == 1 ? superslab_look(wish, wish->count, &start, 1)
                                : superslab_find_aligned(wish);
}

/* Updates the peaks of slices in use. Under REGION. */
static void superslab_note_taken(void)
{
    struct superslab_table *table = &hak__superslabs;
    size_t taken = table->claimed_slices - table->free_slices;
    hak__superslab_note_peak();
    if (taken > table->taken_most) {
        atomic_store_relaxed(&table->taken_most, taken);
    }
}

/* In a small child of fork, the first touch of a superslab from the parent should not bring a whole
 * huge page. If another thread purges, it may. */
static HAK_COLD void superslab_stay_small(size_t index)
{
    if (hak__superslab_bytes_grown() >= atomic_load_relaxed(&hak__knobs.huge_threshold)) {
        return;
    }
    uint64_t signals = hak__lock_block_signals();
    if (lock_try(&hak__purge_lock)) {
        (void)hak__superslab_split(index);
        lock_release(&hak__purge_lock);
    }
    hak__os_restore_signals(signals);
}

/* Takes a fitting run of free slices, dirty ones first. SLICE_NONE: there is none, or the thread
 * was refused, which clears `*goes_on`. */
static struct slice_run superslab_take_free(uint32_t count, uint32_t alignment, bool *goes_on)
{
    struct slice_run run = {SLICE_NONE, false};
    bool new_huge = false;
    struct superslab_wish wish = {count, alignment, true, numa_groups()};
    if (HAK_UNLIKELY(!hak__superslab_lock())) {
        *goes_on = false;
        return run;
    }
    if (hak__superslabs.dirty_free_slices >= count) {
        run.slice = superslab_find(&wish);
    }
    wish.dirty_only = false;
    if (run.slice == SLICE_NONE && hak__superslabs.free_slices >= count) {
        run.slice = superslab_find(&wish);
    }
    if (run.slice != SLICE_NONE) {
        size_t index = run.slice / SUPERSLAB_SLICES;
        uint64_t mask = bits_mask(run.slice % SUPERSLAB_SLICES, count);
        hak__superslab_mark_taken(index, mask);
        superslab_note_taken();
        run.zeroed = (superslab_at(index)->dirty & mask) == 0;
        new_huge = superslab_at(index)->huge != 0 && run.zeroed;
        superslab_make_dirty(index, mask);
    }
    lock_release(&hak__region_lock);
    if (HAK_UNLIKELY(new_huge) && window_inherits()) {
        superslab_stay_small(run.slice / SUPERSLAB_SLICES);
    }
    return run;
}

bool hak__superslab_publish(size_t first, uint32_t count)
{
    size_t index = first / SUPERSLAB_SLICES;
    uint32_t offset = (uint32_t)(first % SUPERSLAB_SLICES);
    if (!hak__superslab_lock()) {
        hak__os_discard(window_slice_address(first), count * SLICE_SIZE);
        return false;
    }
    struct superslab_table *table = &hak__superslabs;
    hak__superslab_index_reach(index);
    hak__superslab_set_state(index, SUPERSLAB_CLAIMED, offset + count);
    atomic_store_relaxed(&table->claimed_slices, table->claimed_slices + count);
    hak__superslab_mark_free(index, bits_mask(offset, count));
    size_t limit = first + count;
    if (limit > hak__window.shared_limit) {
        /* release: pairs with the acquire in window_contains_slice; the tables already exist */
        atomic_store_release(&hak__window.shared_limit, limit);
    }
    lock_release(&hak__region_lock);
    return true;
}

bool hak__superslab_reclaim(uint32_t count)
{
    struct superslab_table *table = &hak__superslabs;
    while (table->released_count != 0) { /* states change under GROWTH only */
        if (!hak__superslab_lock()) {
            return false;
        }
        size_t index = hak__superslab_index_find_in(INDEX_RELEASED, 1, 0, numa_groups());
        lock_release(&hak__region_lock);
        if (index == INDEX_NONE) { /* they are of other memory nodes */
            return false;
        }
        size_t first = index * SUPERSLAB_SLICES;
        int error = hak__mappings_claim(first, SUPERSLAB_SLICES);
        if (error == 0) {
            hak__superslab_choose_pages(first, SUPERSLAB_SLICES, count);
            bool published = hak__superslab_publish(first, SUPERSLAB_SLICES);
            atomic_store_relaxed(&table->released_count, table->released_count - published);
            return published;
        }
        if (error != -EEXIST || !hak__superslab_lock()) {
            return false;
        }
        hak__superslab_set_state(index, SUPERSLAB_LOST, 0);
        lock_release(&hak__region_lock);
        atomic_store_relaxed(&table->released_count, table->released_count - 1);
    }
    return false;
}

/* True if another mapping lies in the superslab's addresses: tries to map it. Under GROWTH. */
static bool superslab_is_foreign(size_t index)
{
    void *start = window_slice_address(index * SUPERSLAB_SLICES);
    int error = hak__os_map_at(start, SUPERSLAB_SIZE);
    if (error == 0) {
        hak__os_discard(start, SUPERSLAB_SIZE);
    }
    return error == -EEXIST;
}

/* Finds the end of a foreign mapping that lies in superslab `taken`, by steps that double and then
 * halve. Returns a free superslab that follows a taken one, or the window's end if it finds none.
 * Free superslabs before the result are never used, which costs addresses only. Under GROWTH. */
static size_t superslab_behind(size_t taken)
{
    size_t end = hak__window.size / SUPERSLAB_SIZE, step = 1;
    while (taken + step < end && superslab_is_foreign(taken + step)) {
        taken += step;
        step *= 2;
    }
    size_t free = taken + step < end ? taken + step : end;
    while (free - taken > 1) {
        size_t middle = taken + (free - taken) / 2;
        if (superslab_is_foreign(middle)) {
            taken = middle;
        } else {
            free = middle;
        }
    }
    return free;
}

/* Maps slices at the frontier, and the tables that describe them. 0 or -errno. Under GROWTH. */
static int superslab_claim(size_t first, uint32_t count)
{
    int error = hak__mappings_claim(first, count);
    if (error == 0 && (error = hak__window_grow_tables(first + count)) != 0) {
        hak__os_discard(window_slice_address(first), count * SLICE_SIZE);
        error = -ENOMEM; /* not -EEXIST, which would concern the slices */
    }
    return error;
}

/* Maps slices at the frontier, enough for `count` at `alignment`. False: no memory. Under GROWTH.
 */
static bool superslab_advance(uint32_t count, uint32_t alignment)
{
    size_t *frontier = hak__numa_frontier();
    for (;;) {
        size_t first = hak__numa_reserve(frontier, 1);
        uint32_t offset = (uint32_t)(first % SUPERSLAB_SLICES);
        uint32_t left = SUPERSLAB_SLICES - offset;
        uint32_t needed = (uint32_t)(bits_align_up(offset, alignment) - offset) + count;
        if (needed > left) { /* only in a partly claimed superslab, whose end is then never used */
            *frontier = first + left;
            continue;
        }
        if ((first + left) * SLICE_SIZE > hak__window.size) {
            return false;
        }
        uint32_t claim = first == 0 ? CLAIM_FIRST : CLAIM_SLICES < left ? CLAIM_SLICES : left;
        uint32_t page = (uint32_t)((hak__os_page_size() + SLICE_SIZE - 1) / SLICE_SIZE);
        needed = (uint32_t)bits_align_up(needed, page); /* an OS page may be two slices */
        claim = claim < needed ? needed : claim;
        int error = superslab_claim(first, claim);
        if (error != 0 && error != -EEXIST &&
            needed < claim) { /* near a limit: only what is needed */
            claim = needed;
            error = superslab_claim(first, claim);
        }
        if (error != 0 && error != -EEXIST && !hak__mappings_are_short() &&
            hak__window_give_spare(first + claim)) {
            error = superslab_claim(first, claim);
        }
        if (error == -EEXIST) { /* another mapping is there: skip the superslab */
            size_t behind = superslab_behind(first / SUPERSLAB_SLICES) * SUPERSLAB_SLICES;
            if (behind * SLICE_SIZE == hak__window.size) { /* the rest of the window is taken */
                *frontier = first + left;
                return false;
            }
            *frontier = behind;
            hak__window_skip(behind);
            continue;
        }
        if (error != 0) {
            return false;
        }
        hak__superslab_choose_pages(first, claim, count);
        bool published = hak__superslab_publish(first, claim);
        *frontier += published ? claim : 0;
        return published;
    }
}

struct slice_run hak__superslab_take_near(uint32_t count, uint32_t alignment)
{
    HAK_ASSERT(count >= 1 && count <= SUPERSLAB_SLICES && alignment <= SUPERSLAB_SLICES);
    bool goes_on = true;
    struct slice_run run = superslab_take_free(count, alignment, &goes_on);
    /* Another thread may take the slices of a claim before this one does. Then this thread claims
     * again, until it gets slices or a claim fails. */
    while (run.slice == SLICE_NONE && goes_on) {
        uint64_t signals = hak__lock_block_signals();
        lock_acquire(&hak__growth_lock);
        /* another thread may have claimed meanwhile */
        run = superslab_take_free(count, alignment, &goes_on);
        goes_on = goes_on && (run.slice != SLICE_NONE || hak__superslab_reclaim(count) ||
                              superslab_advance(count, alignment));
        lock_release(&hak__growth_lock);
        hak__os_restore_signals(signals);
        if (run.slice == SLICE_NONE && goes_on) {
            run = superslab_take_free(count, alignment, &goes_on);
        }
    }
    return run;
}

void hak__superslab_give(size_t slice, uint32_t count)
{
    size_t index = slice / SUPERSLAB_SLICES;
    uint64_t mask = bits_mask(slice % SUPERSLAB_SLICES, count);
    if (left_may_be_in(slice, count) && !hak__left_renew(slice, count)) {
        return; /* nobody could use them */
    }
    if (HAK_UNLIKELY(!lock_acquire_soon(&hak__region_lock))) {
        hak__superslab_give_late(index, mask);
        return;
    }
    superslab_add_free(index, mask);
    hak__superslab_index_grown(index, mask);
    lock_release(&hak__region_lock);
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
    if (!lock_acquire_soon(&hak__region_lock)) {
        return false;
    }
    struct superslab *superslab = superslab_at(index);
    bool all_free = (superslab->free & mask) == mask;
    if (all_free) {
        hak__superslab_mark_taken(index, mask);
        superslab_note_taken();
        superslab_make_dirty(index, mask);
    }
    lock_release(&hak__region_lock);
    return all_free;
}

bool hak__superslab_would_grow(uint32_t count)
{
    struct superslab_table *table = &hak__superslabs;
    return atomic_load_relaxed(&table->claimed_slices) + count >
           atomic_load_relaxed(&table->free_slices) + atomic_load_relaxed(&table->taken_most);
}
