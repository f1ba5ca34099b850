/* superslab.c: see superslab.h. Calls: take -> find, or claim (and choose pages) and find again. */
#include "region/superslab.h"

#include <errno.h>

#include "base/bits.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/window.h"

struct lock hak__region_lock = LOCK_INITIAL(LOCK_RANK_REGION);
struct lock hak__growth_lock = LOCK_INITIAL(LOCK_RANK_GROWTH);
struct superslab_table hak__superslabs;

/* Claims are whole superslabs; at level 2 a quarter, so that partly claimed ones are common. The
 * first is half of one: many a program needs no more, and no page can be huge in it. */
#define CLAIM_SLICES (HAK_TINY_LIMITS ? SUPERSLAB_SLICES / 4 : SUPERSLAB_SLICES)
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

static void superslab_check(const struct superslab *superslab)
{
    HAK_ASSERT((superslab->aged & ~(superslab->free & superslab->dirty)) == 0);
    (void)superslab;
}

static void superslab_add_free(size_t index, uint64_t mask)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab *superslab = superslab_at(index);
    HAK_ASSERT((superslab->free & mask) == 0);
    superslab->free |= mask;
    /* the sums are read relaxed by reports and by nobody else without the lock */
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
    superslab_check(superslab);
}

#define HUGE_SLICES ((uint32_t)(HUGE_PAGE_SIZE / SLICE_SIZE))
HAK_STATIC_ASSERT(SUPERSLAB_SIZE == HUGE_PAGE_SIZE, "one is asked for");

/* Slices just taken become dirty. A first touch may bring a whole huge page: then its other slices
 * are resident too, and have to be purged like any dirty one. */
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

/* Bits at which a slice number is a multiple of `alignment`. */
static uint64_t superslab_aligned_bits(uint32_t alignment)
{
    uint64_t bits = 1;
    for (uint32_t step = alignment; step < SUPERSLAB_SLICES; step *= 2) {
        bits |= bits << step;
    }
    return bits;
}

/* What to look for. */
struct superslab_wish {
    uint32_t count;
    uint32_t alignment;
    bool dirty_only;
};

/* The lowest fitting run of the first `looks` superslabs from *from on that have a run of `length`
 * at least. SLICE_NONE: there is none, and *from is the next superslab to look at. Under REGION. */
static size_t superslab_look(const struct superslab_wish *wish, uint32_t length, size_t *from,
                             uint32_t looks)
{
    uint64_t aligned =
        wish->alignment == 1 ? ~UINT64_C(0) : superslab_aligned_bits(wish->alignment);
    for (; looks != 0; looks--) {
        size_t index = wish->dirty_only ? hak__superslab_index_find(INDEX_DIRTY, length, *from)
                                        : hak__superslab_index_find(INDEX_FREE, length, *from);
        if (index == INDEX_NONE) {
            *from = SIZE_MAX;
            break;
        }
        const struct superslab *superslab = superslab_at(index);
        uint64_t map = wish->dirty_only ? superslab->free & superslab->dirty : superslab->free;
        uint64_t starts = bits_run_starts(map, wish->count) & aligned;
        if (starts != 0) {
            return index * SUPERSLAB_SLICES + bits_lowest(starts);
        }
        *from = index + 1;
    }
    return SLICE_NONE;
}

/* Aligned runs are found in a bounded number of looks: at the first superslabs with a run that is
 * long enough, at the first with one that fits wherever it starts, then further on than the last
 * search. */
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

/* Lowest fitting run, of dirty slices only or of any. SLICE_NONE when there is none. Under REGION.
 */
static size_t superslab_find(const struct superslab_wish *wish)
{
    size_t start = 0;
    return wish->alignment == 1 ? superslab_look(wish, wish->count, &start, 1)
                                : superslab_find_aligned(wish);
}

/* Under REGION. */
static void superslab_note_taken(void)
{
    struct superslab_table *table = &hak__superslabs;
    size_t taken = table->claimed_slices - table->free_slices;
    if (taken > table->taken_most) {
        atomic_store_relaxed(&table->taken_most, taken);
    }
}

static struct slice_run superslab_take_free(uint32_t count, uint32_t alignment)
{
    struct slice_run run = {SLICE_NONE, false};
    struct superslab_wish wish = {count, alignment, true};
    lock_acquire(&hak__region_lock);
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
        superslab_make_dirty(index, mask);
    }
    lock_release(&hak__region_lock);
    return run;
}

void hak__superslab_publish(size_t first, uint32_t count)
{
    size_t index = first / SUPERSLAB_SLICES;
    uint32_t offset = (uint32_t)(first % SUPERSLAB_SLICES);
    lock_acquire(&hak__region_lock);
    struct superslab_table *table = &hak__superslabs;
    hak__superslab_index_reach(index);
    hak__superslab_set_state(index, SUPERSLAB_CLAIMED, offset + count);
    atomic_store_relaxed(&table->claimed_slices, table->claimed_slices + count);
    hak__superslab_mark_free(index, bits_mask(offset, count));
    size_t limit = first + count;
    if (limit > hak__window.shared_limit) {
        /* release: pairs with the acquire in window_contains_slice; the tables exist before */
        atomic_store_release(&hak__window.shared_limit, limit);
    }
    lock_release(&hak__region_lock);
}

/* Maps a superslab that was released before, for a run of `count`. Under GROWTH. */
static bool superslab_reclaim(uint32_t count)
{
    struct superslab_table *table = &hak__superslabs;
    while (table->released_count != 0) { /* states are written under GROWTH */
        lock_acquire(&hak__region_lock);
        size_t index = hak__superslab_index_find(INDEX_RELEASED, 1, 0);
        lock_release(&hak__region_lock);
        size_t first = index * SUPERSLAB_SLICES;
        int error = hak__os_map_at(window_slice_address(first), SUPERSLAB_SIZE);
        if (error == 0) {
            table->released_count--;
            hak__superslab_choose_pages(first, SUPERSLAB_SLICES, count);
            hak__superslab_publish(first, SUPERSLAB_SLICES);
            return true;
        }
        if (error != -EEXIST) {
            return false;
        }
        lock_acquire(&hak__region_lock);
        hak__superslab_set_state(index, SUPERSLAB_LOST, 0);
        lock_release(&hak__region_lock);
        table->released_count--;
    }
    return false;
}

static bool superslab_is_foreign(size_t index)
{
    void *start = window_slice_address(index * SUPERSLAB_SLICES);
    int error = hak__os_map_at(start, SUPERSLAB_SIZE);
    if (error == 0) {
        hak__os_discard(start, SUPERSLAB_SIZE);
    }
    return error == -EEXIST;
}

/* Behind somebody else's mapping that reaches into superslab `taken`: the first superslab that is
 * free after a taken one, found by steps that double and then halve; the window's end when there is
 * none. What is free in between is lost; that costs addresses only. Under GROWTH. */
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

/* Maps the next slices at the frontier, enough for `count` at `alignment`. Under GROWTH. */
static bool superslab_advance(uint32_t count, uint32_t alignment)
{
    struct superslab_table *table = &hak__superslabs;
    for (;;) {
        size_t first = table->frontier;
        uint32_t offset = (uint32_t)(first % SUPERSLAB_SLICES);
        uint32_t left = SUPERSLAB_SLICES - offset;
        uint32_t needed = (uint32_t)(bits_align_up(offset, alignment) - offset) + count;
        if (needed > left) { /* only in a partly claimed superslab: its tail stays unclaimed */
            table->frontier = first + left;
            continue;
        }
        if ((first + left) * SLICE_SIZE > hak__window.size ||
            hak__window_grow_tables(first + left) != 0) {
            return false;
        }
        uint32_t claim = first == 0 ? CLAIM_FIRST : CLAIM_SLICES < left ? CLAIM_SLICES : left;
        uint32_t page = (uint32_t)((hak__os_page_size() + SLICE_SIZE - 1) / SLICE_SIZE);
        needed = (uint32_t)bits_align_up(needed, page); /* an OS page may be two slices */
        claim = claim < needed ? needed : claim;
        int error = hak__os_map_at(window_slice_address(first), claim * SLICE_SIZE);
        if (error != 0 && error != -EEXIST &&
            needed < claim) { /* near a limit: just what is asked for */
            claim = needed;
            error = hak__os_map_at(window_slice_address(first), claim * SLICE_SIZE);
        }
        if (error == -EEXIST) { /* somebody lives here: leave this superslab to them */
            size_t behind = superslab_behind(first / SUPERSLAB_SLICES) * SUPERSLAB_SLICES;
            if (behind * SLICE_SIZE == hak__window.size) { /* all, as of now */
                table->frontier = first + left;
                return false;
            }
            table->frontier = behind;
            hak__window_skip(behind);
            continue;
        }
        if (error != 0) {
            return false;
        }
        table->frontier = first + claim;
        hak__superslab_choose_pages(first, claim, count);
        hak__superslab_publish(first, claim);
        return true;
    }
}

struct slice_run hak__superslab_take(uint32_t count, uint32_t alignment)
{
    HAK_ASSERT(count >= 1 && count <= SUPERSLAB_SLICES && alignment <= SUPERSLAB_SLICES);
    struct slice_run run = superslab_take_free(count, alignment);
    /* Another thread may take what a claim brought; each round then claims anew, and ends with
     * memory or without. */
    while (run.slice == SLICE_NONE) {
        lock_acquire(&hak__growth_lock);
        run = superslab_take_free(count, alignment); /* somebody may have claimed while we waited */
        bool grown = run.slice != SLICE_NONE || superslab_reclaim(count) ||
                     superslab_advance(count, alignment);
        lock_release(&hak__growth_lock);
        if (!grown) {
            break;
        }
        if (run.slice == SLICE_NONE) {
            run = superslab_take_free(count, alignment);
        }
    }
    return run;
}

void hak__superslab_give(size_t slice, uint32_t count)
{
    size_t index = slice / SUPERSLAB_SLICES;
    uint64_t mask = bits_mask(slice % SUPERSLAB_SLICES, count);
    lock_acquire(&hak__region_lock);
    superslab_add_free(index, mask);
    hak__superslab_index_grown(index, mask);
    lock_release(&hak__region_lock);
}

bool hak__superslab_take_exact(size_t slice, uint32_t count)
{
    uint32_t offset = (uint32_t)(slice % SUPERSLAB_SLICES);
    if (offset == 0 ||
        offset + count > SUPERSLAB_SLICES) { /* offset 0: the next superslab, never a neighbour */
        return false;
    }
    size_t index = slice / SUPERSLAB_SLICES;
    uint64_t mask = bits_mask(offset, count);
    lock_acquire(&hak__region_lock);
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

size_t hak__superslab_bytes_claimed(void)
{
    return atomic_load_relaxed(&hak__superslabs.claimed_slices) * SLICE_SIZE;
}

size_t hak__superslab_bytes_dirty(void)
{
    return atomic_load_relaxed(&hak__superslabs.dirty_free_slices) * SLICE_SIZE;
}

size_t hak__superslab_bytes_free(void)
{
    return atomic_load_relaxed(&hak__superslabs.free_slices) * SLICE_SIZE;
}
