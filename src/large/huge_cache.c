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

/* The most bytes in use: in the present half of a purge delay, and in the half before it. So a peak
 * counts for about one purge delay. Under HUGE. */
static struct {
    size_t now;
    size_t before;
    uint32_t since_ms; /* start of the present half */
} peak;

/* Bytes of slices, in use or dirty, above which the cache exceeds its bound: as of the last trim.
 * Written under HUGE, read without; relaxed: a tick looks again. */
static size_t shared_slices_most = SIZE_MAX;

/* --- the bound --- */

bool hak__huge_cache_exceeds(void)
{
    size_t most = atomic_load_relaxed(&shared_slices_most);
    return most != SIZE_MAX && hak__superslab_bytes_touched() > most;
}

static void peak_note(size_t in_use, uint32_t now_ms)
{
    uint32_t delay_ms = atomic_load_relaxed(&hak__knobs.purge_delay_ms);
    uint32_t half = delay_ms / 2, since = now_ms - peak.since_ms;
    if (delay_ms != UINT32_MAX && since >= half) {
        peak.before = since < 2 * half ? peak.now : in_use;
        peak.now = in_use;
        peak.since_ms = now_ms;
    }
    peak.now = peak.now < in_use ? in_use : peak.now;
}

/* Bytes that the cache may hold: the recent peak, less memory in use and free dirty slices, but at
 * most knobs.huge_cache_bytes. 0 above the soft limit. Under HUGE. */
static size_t cache_bound(uint32_t now_ms)
{
    size_t huge = hak__huge_registry_totals().live_bytes;
    peak_note(huge + hak__superslab_taken() * SLICE_SIZE, now_ms);
    size_t most = peak.now > peak.before ? peak.now : peak.before;
    size_t others = huge + hak__superslab_bytes_touched();
    if (most <= others || hak__os_mapped_bytes() > atomic_load_relaxed(&hak__knobs.limit)) {
        return 0;
    }
    size_t bound = most - others;
    uint64_t allowed = atomic_load_relaxed(&hak__knobs.huge_cache_bytes);
    return bound < allowed ? bound : (size_t)allowed;
}

/* Subtracts bytes from the peaks: a huge block counted as in use turned out to be sparse. */
static void peak_correct(size_t untouched)
{
    peak.now -= peak.now < untouched ? peak.now : untouched;
    peak.before -= peak.before < untouched ? peak.before : untouched;
}

void hak__huge_cache_give_back(void)
{
    if (HAK_SECURE || atomic_load_relaxed(&hak__huge_cache.count) == 0 ||
        atomic_load_relaxed(&hak__knobs.purge_delay_ms) == UINT32_MAX) {
        return;
    }
    lock_acquire(&hak__huge_lock);
    size_t wanted = hak__huge_registry_totals().live_bytes + hak__superslab_taken() * SLICE_SIZE +
                    hak__superslab_expected();
    peak.now = peak.now < wanted ? peak.now : wanted;
    peak.before = peak.before < wanted ? peak.before : wanted;
    lock_release(&hak__huge_lock);
    hak__huge_cache_trim(UINT32_MAX);
}

/* --- the ranges --- */

static void cache_add(struct huge block, size_t resident, uint32_t freed_ms)
{
    struct huge_cache *cache = &hak__huge_cache;
    HAK_ASSERT(cache->count < KEPT_MAX);
    cache->ranges[cache->count] = (struct kept_range){block, resident, freed_ms};
    atomic_store_relaxed(&cache->count, cache->count + 1);
    cache->resident += resident;
    mappings_add_huge(1);
}

static struct kept_range cache_remove(uint32_t index)
{
    struct huge_cache *cache = &hak__huge_cache;
    struct kept_range range = cache->ranges[index];
    cache->ranges[index] = cache->ranges[cache->count - 1];
    atomic_store_relaxed(&cache->count, cache->count - 1);
    cache->resident -= range.resident;
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

void hak__huge_cache_take(struct huge_parts *taken, size_t size, size_t alignment, bool want_zero)
{
    taken->count = 0;
    taken->whole = false;
    if (atomic_load_relaxed(&hak__huge_cache.count) == 0 || watched()) {
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
    peak_correct(block.size - resident);
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
static struct huge cache_drop_next(uint32_t age_ms)
{
    struct huge dropped = {0};
    lock_acquire(&hak__huge_lock);
    uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
    if (age_ms == 0) {                 /* memory that goes back now does not count for the peak */
        peak.now = peak.before =
            hak__huge_registry_totals().live_bytes + hak__superslab_taken() * SLICE_SIZE;
    }
    size_t bound = cache_bound(now), kept = hak__huge_cache.resident;
    bool full = !cache_has_room(HUGE_PARTS_MAX);
    uint32_t oldest = age_ms == UINT32_MAX && !full && kept <= bound
                          ? UINT32_MAX
                          : cache_search(range_is_older, NULL);
    if (oldest != UINT32_MAX) {
        bool whole = full || now - hak__huge_cache.ranges[oldest].freed_ms >= age_ms;
        if (whole || kept > bound) {
            dropped = cache_drop(oldest, whole ? SIZE_MAX : kept - bound);
        }
    }
    kept = hak__huge_cache.resident;
    size_t room = hak__huge_cache.count == 0 ? SIZE_MAX : bound < kept ? 0 : bound - kept;
    size_t slices = hak__superslab_bytes_touched();
    atomic_store_relaxed(&shared_slices_most, room > SIZE_MAX - slices ? SIZE_MAX : slices + room);
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

size_t hak__huge_cache_trim(uint32_t age_ms)
{
    size_t bytes = 0;
    if (HAK_SECURE || (age_ms != 0 && watched())) { /* the secure form caches no huge blocks */
        return 0;
    }
    for (struct huge dropped; (dropped = cache_drop_next(age_ms)).size != 0;) {
        bytes += dropped.size;
        hak__huge_unmap(dropped);
    }
    return bytes;
}
