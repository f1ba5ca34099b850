/* SPDX-License-Identifier: MIT */
/* huge_cache.c: see huge_cache.h. */
#include "large/huge_cache.h"

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "core/watched.h"
#include "large/huge_registry.h"
#include "os/os.h"
#include "region/mappings.h"
#include "region/superslab.h"

size_t hak__huge_joined_bytes;
struct huge_cache hak__huge_cache HAK_SELDOM;

/* --- the bound --- */

/* Bytes that the cache may hold: of the `kept` bytes of free memory what is no dirty slices, but at
 * most knobs.huge_cache_bytes. 0 above the soft limit and without a purge delay. */
static size_t cache_bound(size_t kept)
{
    size_t dirty = hak__superslab_dirty() * SLICE_SIZE;
    if (kept <= dirty || atomic_load_relaxed(&hak__knobs.purge_delay_ms) == 0 ||
        hak__os_mapped_bytes() > atomic_load_relaxed(&hak__knobs.limit)) {
        return 0;
    }
    uint64_t allowed = atomic_load_relaxed(&hak__knobs.huge_cache_bytes);
    return kept - dirty < allowed ? kept - dirty : (size_t)allowed;
}

/* True: the cache holds too many bytes or ranges. A hint without the lock. */
static bool cache_exceeds(size_t kept)
{
    size_t resident = atomic_load_relaxed(&hak__huge_cache.resident);
    return atomic_load_relaxed(&hak__huge_cache.count) > KEPT_MAX - HUGE_PARTS_MAX ||
           (resident != 0 && resident > cache_bound(kept));
}

bool hak__huge_cache_exceeds(void)
{
    return cache_exceeds(hak__superslab_wanted());
}

/* --- the ranges --- */

static void cache_add(struct huge block, size_t resident, uint32_t freed_ms)
{
    struct huge_cache *cache = &hak__huge_cache;
    HAK_ASSERT(cache->count < KEPT_MAX);
    cache->ranges[cache->count] = (struct kept_range){block, resident, freed_ms};
    atomic_store_relaxed(&cache->count, cache->count + 1);
    atomic_store_relaxed(&cache->resident, cache->resident + resident);
    mappings_add_huge(1);
}

static struct kept_range cache_remove(uint32_t index)
{
    struct huge_cache *cache = &hak__huge_cache;
    struct kept_range range = cache->ranges[index];
    cache->ranges[index] = cache->ranges[cache->count - 1];
    atomic_store_relaxed(&cache->count, cache->count - 1);
    atomic_store_relaxed(&cache->resident, cache->resident - range.resident);
    mappings_remove_huge(1);
    return range;
}

/* What a search is for. */
struct range_wish {
    size_t size;
    size_t alignment;
    bool want_zero;
};
/* True: the range is suitable and better than `best`, another suitable one; NULL: there is none
 * yet. */
typedef bool range_judge(const struct kept_range *range, const struct kept_range *best,
                         const struct range_wish *wish);

static uint32_t cache_search(range_judge *judge, const struct range_wish *wish)
{
    const struct kept_range *ranges = hak__huge_cache.ranges;
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < hak__huge_cache.count; i++) {
        if (judge(&ranges[i], best == UINT32_MAX ? NULL : &ranges[best], wish)) {
            best = i;
        }
    }
    return best;
}

static bool range_is_older(const struct kept_range *range, const struct kept_range *best,
                           const struct range_wish *wish)
{
    (void)wish;
    return best == NULL || (int32_t)(range->freed_ms - best->freed_ms) < 0;
}

/* The range of the mapping `origin` that starts at `start` or ends at `end`; 0: any or none. */
static uint32_t cache_find(uintptr_t start, uintptr_t end, uint64_t origin)
{
    uint32_t i = 0, count = hak__huge_cache.count;
    for (; i < count; i++) {
        struct huge block = hak__huge_cache.ranges[i].block;
        if (block.origin == origin && (block.address == start || huge_end(block) == end)) {
            return i;
        }
    }
    return UINT32_MAX;
}

static bool cache_has_room(uint32_t ranges)
{
    return hak__huge_cache.count + ranges <= KEPT_MAX;
}

/* Bytes of a range in whole huge pages, which can be joined. 0 for a sparse one: moving pages that
 * are not there gains nothing. */
static size_t range_units(const struct kept_range *range)
{
    uintptr_t start = bits_align_up(range->block.address, HUGE_PAGE_SIZE);
    uintptr_t end = bits_align_down(huge_end(range->block), HUGE_PAGE_SIZE);
    return range->resident == range->block.size && start < end ? end - start : 0;
}

/* Takes [address, address + size) out of a range. The rests before and behind it stay in the
 * cache. */
static struct huge cache_carve(uint32_t index, uintptr_t address, size_t size)
{
    struct kept_range range = cache_remove(index);
    struct huge front =
        HUGE_OF(range.block.address, address - range.block.address, range.block.origin);
    struct huge back =
        HUGE_OF(address + size, huge_end(range.block) - (address + size), range.block.origin);
    const struct huge rests[] = {front, back};
    for (uint32_t i = 0; i < 2; i++) {
        if (rests[i].size != 0) { /* where pages are is unknown, so each rest counts them all */
            size_t counts = range.resident < rests[i].size ? range.resident : rests[i].size;
            cache_add(rests[i], counts, range.freed_ms);
        }
    }
    return (struct huge)HUGE_OF(address, size, range.block.origin);
}

/* --- taking --- */

/* Where in a range a huge block may start; 0: nowhere. From two huge pages on, a huge block takes
 * the first aligned address. A smaller huge block ends where the range ends, so that whole huge
 * pages stay in front of it. */
static uintptr_t range_place(struct huge range, size_t size, size_t alignment)
{
    if (range.size < size) {
        return 0;
    }
    if (size >= 2 * HUGE_PAGE_SIZE) {
        alignment = alignment < HUGE_PAGE_SIZE ? HUGE_PAGE_SIZE : alignment;
        uintptr_t start = bits_align_up(range.address, alignment);
        return start <= huge_end(range) - size ? start : 0;
    }
    uintptr_t start = bits_align_down(huge_end(range) - size, alignment);
    return start >= range.address ? start : 0;
}

/* calloc would have to clear too much of it. */
static bool range_clears(const struct kept_range *range, const struct range_wish *wish)
{
    return wish->want_zero && range->resident > HUGE_CLEAR_MAX;
}

/* It lies on the calling thread's memory node. */
static bool range_is_near(const struct kept_range *range)
{
    return range->block.origin >> ORIGIN_NUMBER_BITS == numa_node();
}

static bool range_fits(const struct kept_range *range, const struct kept_range *best,
                       const struct range_wish *wish)
{
    return (best == NULL || range->block.size <= best->block.size) && range_is_near(range) &&
           !range_clears(range, wish) &&
           range_place(range->block, wish->size, wish->alignment) != 0;
}

/* Takes a huge block out of the smallest range that it fits into. Of equal ones it takes one that
 * was added late, whose contents may still be in the processor's cache. False: there is none. */
static bool cache_take_whole(struct huge_parts *taken, const struct range_wish *wish)
{
    size_t size = wish->size;
    uint32_t best = cache_search(range_fits, wish);
    if (best == UINT32_MAX) {
        return false;
    }
    struct huge range = hak__huge_cache.ranges[best].block;
    uintptr_t start = range_place(range, size, wish->alignment);
    bool all = range.size - size < HUGE_REST_MIN && (range.address & (wish->alignment - 1)) == 0 &&
               (size < 2 * HUGE_PAGE_SIZE || start == range.address);
    taken->parts[0] = all ? cache_remove(best).block : cache_carve(best, start, size);
    taken->count = 1;
    taken->whole = true;
    return true;
}

static bool range_has_more_units(const struct kept_range *range, const struct kept_range *best,
                                 const struct range_wish *wish)
{
    (void)wish;
    return range_is_near(range) && range_units(range) > (best == NULL ? 0 : range_units(best));
}

/* The first bytes of a range can be the end of a joined huge block. They must lie in one mapping.
 * In a range of a joined huge block, that is sure only inside one huge page's place. */
static bool range_has_end(const struct kept_range *range, const struct kept_range *best,
                          const struct range_wish *wish)
{
    uintptr_t unit_end = bits_align_up(range->block.address + 1, HUGE_PAGE_SIZE);
    return range_is_near(range) && range->resident == range->block.size &&
           range->block.size >= wish->size &&
           (!huge_is_joined(range->block) || range->block.address + wish->size <= unit_end) &&
           (best == NULL || range->block.size < best->block.size);
}

/* Takes parts for a joined huge block: whole huge pages from the ranges that have most of them, and
 * then the end from the smallest range that has it. The parts may cover less than `size`. */
static void cache_take_parts(struct huge_parts *taken, size_t size)
{
    size_t missing = bits_align_down(size, HUGE_PAGE_SIZE);
    uint32_t best;
    while (missing != 0 && taken->count < HUGE_PARTS_MAX - 1 &&
           (best = cache_search(range_has_more_units, NULL)) != UINT32_MAX) {
        const struct kept_range *range = &hak__huge_cache.ranges[best];
        size_t bytes = range_units(range) < missing ? range_units(range) : missing;
        uintptr_t start = bits_align_up(range->block.address, HUGE_PAGE_SIZE);
        taken->parts[taken->count++] = cache_carve(best, start, bytes);
        missing -= bytes;
    }
    struct range_wish end = {.size = size % HUGE_PAGE_SIZE};
    if (end.size >= HUGE_REST_MIN && taken->count != 0 &&
        (best = cache_search(range_has_end, &end)) != UINT32_MAX) {
        uintptr_t start = hak__huge_cache.ranges[best].block.address;
        taken->parts[taken->count++] = cache_carve(best, start, end.size);
    }
}

static bool range_stretches(const struct kept_range *range, const struct kept_range *best,
                            const struct range_wish *wish)
{
    return (best == NULL || range->block.size > best->block.size) && range_is_near(range) &&
           !huge_is_joined(range->block) && range->block.size < wish->size &&
           !range_clears(range, wish);
}

/* Takes the largest range of one mapping, which the caller stretches. False: it has less than half
 * of the size, or joined parts would bring more. */
static bool cache_take_to_stretch(struct huge_parts *taken, const struct range_wish *wish)
{
    uint32_t best = cache_search(range_stretches, wish);
    size_t size = best == UINT32_MAX ? 0 : hak__huge_cache.ranges[best].block.size, units = 0;
    for (uint32_t i = 0; i < hak__huge_cache.count; i++) {
        units += range_units(&hak__huge_cache.ranges[i]);
    }
    units = units < wish->size ? units : wish->size;
    if (best == UINT32_MAX || size < wish->size / 2 || size < units) {
        return false;
    }
    taken->parts[0] = cache_remove(best).block;
    taken->count = 1;
    taken->whole = true;
    return true;
}

/* The caller maps what was not taken. If as much was unmapped before, it was missed. calloc misses
 * nothing, because new memory suits it better. */
static void cache_note_missed(const struct huge_parts *taken, const struct range_wish *wish)
{
    size_t given = hak__huge_cache.given;
    size_t missed = wish->want_zero || given < wish->size ? 0 : wish->size;
    for (uint32_t i = 0; i < taken->count; i++) {
        missed -= missed < taken->parts[i].size ? missed : taken->parts[i].size;
    }
    atomic_store_relaxed(&hak__huge_cache.given, given - missed);
    superslab_note_missed(missed);
}

void hak__huge_cache_take(struct huge_parts *taken, size_t size, size_t alignment, bool want_zero)
{
    taken->count = 0;
    taken->whole = false;
    if (HAK_SECURE || watched()) {
        return;
    }
    const struct range_wish wish = {size, alignment, want_zero};
    lock_acquire(&hak__huge_lock);
    /* The most bytes of all joined huge blocks together. Each 2 MiB of them may be one mapping of
     * the 65,530 that the kernel allows a process. Twice: joined huge blocks may use a quarter of
     * these, not an eighth. */
    bool joins = size >= 2 * HUGE_PAGE_SIZE && alignment <= HUGE_PAGE_SIZE &&
                 !(want_zero && size > HUGE_CLEAR_MAX) &&
                 atomic_load_relaxed(&hak__huge_joined_bytes) + size <= (size_t)16 << 30;
    if (cache_has_room(HUGE_PARTS_MAX) && !cache_take_whole(taken, &wish) &&
        !(alignment <= hak__os_page_size() && cache_take_to_stretch(taken, &wish)) && joins) {
        cache_take_parts(taken, size);
    }
    cache_note_missed(taken, &wish);
    lock_release(&hak__huge_lock);
}

size_t hak__huge_cache_take_next(struct huge block, size_t size)
{
    if (watched()) {
        return 0;
    }
    lock_acquire(&hak__huge_lock);
    uint32_t next = cache_find(huge_end(block), 0, block.origin);
    size_t bytes = next != UINT32_MAX ? hak__huge_cache.ranges[next].block.size : 0;
    bytes = bytes < size ? bytes : size;
    if (bytes != 0) {
        cache_carve(next, huge_end(block), bytes);
    }
    lock_release(&hak__huge_lock);
    return bytes;
}

/* --- keeping --- */

/* Merges a range with its neighbours of the same mapping. Ranges of joined huge blocks have origin
 * 0 and merge, too. That is safe: joined huge blocks start at huge pages' boundaries, so inside one
 * huge page's place only parts of one mapping can meet. */
static struct kept_range cache_meet(struct kept_range range)
{
    uint32_t next;
    while ((next = cache_find(huge_end(range.block), range.block.address, range.block.origin)) !=
           UINT32_MAX) {
        struct kept_range other = cache_remove(next);
        range.resident += other.resident;
        range.block.size += other.block.size;
        if (other.block.address < range.block.address) {
            range.block.address = other.block.address;
        }
    }
    return range;
}

void hak__huge_cache_put(struct huge block, size_t resident)
{
    lock_acquire(&hak__huge_lock);
    hak__superslab_note_sparse(block.size - resident);
    bool has_room = cache_has_room(1);
    if (has_room) {
        struct kept_range range =
            cache_meet((struct kept_range){.block = block, .resident = resident});
        cache_add(range.block, range.resident, hak__os_clock_ms());
    }
    lock_release(&hak__huge_lock);
    if (!has_room) {
        hak__huge_unmap(block);
    }
}

/* --- going --- */

/* Takes a range out of the cache. If it is not sparse and larger than `too_many` bytes, it
 * takes only its end, from a huge page's boundary on, so that at least `too_many` bytes go. */
static struct huge cache_drop(uint32_t oldest, size_t too_many)
{
    struct kept_range range = hak__huge_cache.ranges[oldest];
    uintptr_t end = huge_end(range.block);
    if (too_many < range.block.size && range.resident == range.block.size) {
        uintptr_t cut = bits_align_down(end - too_many, HUGE_PAGE_SIZE);
        if (cut > range.block.address) {
            return cache_carve(oldest, cut, end - cut);
        }
    }
    return cache_remove(oldest).block;
}

/* What a trim unmaps next; size 0: nothing. */
static struct huge cache_drop_next(uint32_t age_ms, size_t kept)
{
    struct huge dropped = {0};
    lock_acquire(&hak__huge_lock);
    uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
    size_t given = age_ms == UINT32_MAX ? hak__huge_cache.given : 0;
    uint32_t oldest = cache_search(range_is_older, NULL);
    if (oldest != UINT32_MAX) {
        size_t bound = cache_bound(kept), resident = hak__huge_cache.resident;
        bool whole = !cache_has_room(HUGE_PARTS_MAX) ||
                     now - hak__huge_cache.ranges[oldest].freed_ms >= age_ms;
        if (whole || resident > bound) {
            dropped = cache_drop(oldest, whole ? SIZE_MAX : resident - bound);
            given += whole ? 0 : dropped.size;
        }
    }
    atomic_store_relaxed(&hak__huge_cache.given, given);
    lock_release(&hak__huge_lock);
    return dropped;
}

/* Secure form: nobody is likely to get the addresses soon, as huge blocks lie at random places. */
static void huge_unmap_closed(char *start, size_t size)
{
    if (hak__os_unmap(start, size) == 0) {
        hak__os_discard_again();
    } else if (hak__os_open_pages(start, HUGE_HEAD)) {
        hak__os_discard(start, size); /* it may write to the first page */
    } else {
        hak__os_leave(HUGE_HEAD);
        hak__os_discard(start + HUGE_HEAD, size - HUGE_HEAD);
    }
}

void hak__huge_unmap(struct huge block)
{
    if (block.size == 0) {
        return;
    }
    char *start = (char *)block.address - HUGE_HEAD;
    hak__gate_let_ending_signals(true);
    if (HAK_SECURE) {
        huge_unmap_closed(start, block.size + 2 * HUGE_HEAD);
    } else {
        hak__os_discard(start, block.size);
    }
    hak__gate_let_ending_signals(false);
    huge_uncount(block);
}

static size_t cache_trim(uint32_t age_ms, size_t kept)
{
    size_t bytes = 0;
    if (HAK_SECURE || (age_ms != 0 && watched())) { /* the secure form caches no huge blocks */
        return 0;
    }
    for (struct huge dropped; (age_ms != UINT32_MAX || cache_exceeds(kept)) &&
                              (dropped = cache_drop_next(age_ms, kept)).size != 0;) {
        bytes += dropped.size;
        hak__huge_unmap(dropped);
    }
    return bytes;
}

size_t hak__huge_cache_trim(uint32_t age_ms)
{
    return cache_trim(age_ms, hak__superslab_wanted());
}

void hak__huge_cache_give_back(void)
{
    (void)cache_trim(UINT32_MAX, hak__superslab_expected());
}
