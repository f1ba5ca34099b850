/* SPDX-License-Identifier: MIT */
/* huge_cache.c: see huge_cache.h. */
#include "large/huge_cache.h"

#include "core/gate.h"
#include "core/knobs.h"
#include "core/watched.h"
#include "large/huge_ranges.h"
#include "large/huge_registry.h"
#include "os/os.h"
#include "region/superslab.h"

/* If less than this would be left of a range, the huge block gets the whole range. A joined huge
 * block takes no shorter end out of the cache. Twice: a huge block may be 128 KiB larger than asked
 * for. Half: more and shorter ranges in the cache. */
#define HUGE_REST_MIN ((size_t)64 << 10)
/* calloc takes a new mapping rather than clear more than this. Pages of a new mapping that the
 * program never touches take no memory. Twice: calloc clears up to 64 MiB, and faults less. Half:
 * more page faults where the program uses all of the block. */
#define HUGE_CLEAR_MAX ((size_t)32 << 20)
/* Ranges that a trim takes out of the cache before it unmaps them without the lock. Twice: a larger
 * array on the stack (384 bytes now). Half: it takes the lock twice as often. */
#define HUGE_DROP_MAX 16u

size_t hak__huge_joined_bytes;

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

/* Takes [address, address + size) out of a range. The rests before and behind it stay in the
 * cache. */
static struct huge cache_carve(uint32_t index, uintptr_t address, size_t size)
{
    struct huge_range range = hak__ranges_remove(index);
    struct huge front =
        HUGE_OF(range.block.address, address - range.block.address, range.block.origin);
    struct huge back =
        HUGE_OF(address + size, huge_end(range.block) - (address + size), range.block.origin);
    const struct huge rests[] = {front, back};
    for (uint32_t i = 0; i < 2; i++) {
        if (rests[i].size != 0) { /* where pages are is unknown, so each rest counts them all */
            size_t counts = range.resident < rests[i].size ? range.resident : rests[i].size;
            hak__ranges_add((struct huge_range){.block = rests[i],
                                                .resident = counts,
                                                .freed_ms = range.freed_ms},
                            range.age.after);
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
static bool range_clears(const struct huge_range *range, const struct range_wish *wish)
{
    return wish->want_zero && range->resident > HUGE_CLEAR_MAX;
}

/* It lies on the calling thread's memory node. */
static bool range_is_near(const struct huge_range *range)
{
    return range->block.origin >> ORIGIN_NUMBER_BITS == numa_node();
}

static bool range_fits(const struct huge_range *range, const struct huge_range *best,
                       const struct range_wish *wish)
{
    return (best == NULL || range->block.size < best->block.size) && range_is_near(range) &&
           !range_clears(range, wish) &&
           range_place(range->block, wish->size, wish->alignment) != 0;
}

/* Takes a huge block out of the smallest range that it fits into, if there are not very many (see
 * hak__ranges_search; so are the next two). Of equal ones it takes the one that was added last,
 * whose contents may still be in the processor's cache. False: there is none. */
static bool cache_take_whole(struct huge_parts *taken, const struct range_wish *wish)
{
    size_t size = wish->size;
    uint32_t best = hak__ranges_search(size, true, range_fits, wish);
    if (best == 0) {
        return false;
    }
    struct huge range = hak__ranges.entries[best].block;
    uintptr_t start = range_place(range, size, wish->alignment);
    bool all = range.size - size < HUGE_REST_MIN && (range.address & (wish->alignment - 1)) == 0 &&
               (size < 2 * HUGE_PAGE_SIZE || start == range.address);
    taken->parts[0] = all ? hak__ranges_remove(best).block : cache_carve(best, start, size);
    taken->count = 1;
    taken->whole = true;
    return true;
}

static bool range_has_more_units(const struct huge_range *range, const struct huge_range *best,
                                 const struct range_wish *wish)
{
    (void)wish;
    return range_is_near(range) && range_units(range) > (best == NULL ? 0 : range_units(best));
}

/* The first bytes of a range can be the end of a joined huge block. They must lie in one mapping.
 * In a range of a joined huge block, that is sure only inside one huge page's place. */
static bool range_has_end(const struct huge_range *range, const struct huge_range *best,
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
    uint32_t best = 0;
    while (missing != 0 && taken->count < HUGE_PARTS_MAX - 1 &&
           (best = hak__ranges_search(SIZE_MAX, false, range_has_more_units, NULL)) != 0) {
        const struct huge_range *range = &hak__ranges.entries[best];
        size_t bytes = range_units(range) < missing ? range_units(range) : missing;
        uintptr_t start = bits_align_up(range->block.address, HUGE_PAGE_SIZE);
        taken->parts[taken->count++] = cache_carve(best, start, bytes);
        missing -= bytes;
    }
    struct range_wish end = {.size = size % HUGE_PAGE_SIZE};
    if (end.size >= HUGE_REST_MIN && taken->count != 0 &&
        (best = hak__ranges_search(end.size, true, range_has_end, &end)) != 0) {
        uintptr_t start = hak__ranges.entries[best].block.address;
        taken->parts[taken->count++] = cache_carve(best, start, end.size);
    }
}

static bool range_stretches(const struct huge_range *range, const struct huge_range *best,
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
    uint32_t best = hak__ranges_search(wish->size, false, range_stretches, wish);
    size_t size = hak__ranges.entries[best].block.size; /* of entry 0: 0 */
    size_t units = hak__ranges.units < wish->size ? hak__ranges.units : wish->size;
    if (best == 0 || size < wish->size / 2 || size < units) {
        return false;
    }
    taken->parts[0] = hak__ranges_remove(best).block;
    taken->count = 1;
    taken->whole = true;
    return true;
}

void hak__huge_cache_take(struct huge_parts *taken, size_t size, size_t alignment, bool want_zero)
{
    taken->count = 0;
    taken->whole = false;
    if (atomic_load_relaxed(&hak__ranges.count) == 0 || watched()) {
        return;
    }
    const struct range_wish wish = {size, alignment, want_zero};
    lock_acquire(&hak__huge_lock);
    bool joins = size >= 2 * HUGE_PAGE_SIZE && alignment <= HUGE_PAGE_SIZE &&
                 !(want_zero && size > HUGE_CLEAR_MAX) &&
                 atomic_load_relaxed(&hak__huge_joined_bytes) + size <= HUGE_JOINED_MAX;
    if (hak__ranges_reserve(HUGE_PARTS_MAX) && !cache_take_whole(taken, &wish) &&
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
    uint32_t next = hak__ranges_starting_at(huge_end(block), block.origin);
    size_t bytes = next != 0 ? hak__ranges.entries[next].block.size : 0;
    bytes = bytes < size ? bytes : size;
    if (bytes != 0) {
        cache_carve(next, huge_end(block), bytes);
    }
    lock_release(&hak__huge_lock);
    return bytes;
}

/* --- keeping --- */

size_t hak__huge_cache_room(void)
{
    if (HAK_SECURE || watched()) {
        return 0; /* freed huge blocks are unmapped */
    }
    lock_acquire(&hak__huge_lock);
    size_t bound = cache_bound(hak__os_clock_ms());
    size_t room = bound > hak__ranges.resident ? bound - hak__ranges.resident : 0;
    lock_release(&hak__huge_lock);
    return room;
}

/* Merges a range with its neighbours of the same mapping. Ranges of joined huge blocks have origin
 * 0 and merge, too. That is safe: joined huge blocks start at huge pages' boundaries, so inside one
 * huge page's place only parts of one mapping can meet. */
static struct huge_range cache_meet(struct huge_range range)
{
    uint32_t before = hak__ranges_ending_at(range.block.address, range.block.origin);
    uint32_t after = hak__ranges_starting_at(huge_end(range.block), range.block.origin);
    if (after != 0) {
        struct huge_range other = hak__ranges_remove(after);
        range.resident += other.resident;
        range.block.size += other.block.size;
    }
    if (before != 0) {
        struct huge_range other = hak__ranges_remove(before);
        range.resident += other.resident;
        range.block.size += other.block.size;
        range.block.address = other.block.address;
    }
    return range;
}

void hak__huge_cache_put(struct huge block, size_t resident)
{
    lock_acquire(&hak__huge_lock);
    peak_correct(block.size - resident);
    bool has_entry = hak__ranges_reserve(1);
    if (has_entry) {
        struct huge_range range = {
            .block = block, .resident = resident, .freed_ms = hak__os_clock_ms()};
        hak__ranges_add(cache_meet(range), 0);
    }
    lock_release(&hak__huge_lock);
    if (!has_entry) {
        hak__huge_unmap(block);
    }
}

/* --- rests of the secure form --- */

/* With heads and tails; size 0: none. Twice as many: a use after free faults for twice as long.
 * Under the lock. */
#define HUGE_QUARANTINED 64u
static struct huge huge_quarantine[HUGE_QUARANTINED];
static uint32_t huge_quarantine_next;

static void huge_release(struct huge oldest)
{
    if (oldest.size != 0) {
        hak__os_release_addresses((void *)oldest.address, oldest.size);
    }
}

/* Unmaps a huge block with its head and tail, but keeps the addresses. False: it could not keep
 * them. */
static bool huge_keep_addresses(char *start, size_t size)
{
    hak__gate_begin_call();
    bool kept = hak__os_keep_addresses(start, size);
    if (!kept && hak__os_open_pages(start, HUGE_HEAD)) {
        hak__os_discard(start, size); /* it may write to the first page */
    } else if (!kept) {
        hak__os_leave(HUGE_HEAD);
        hak__os_discard(start + HUGE_HEAD, size - HUGE_HEAD);
    }
    hak__gate_end_call();
    return kept;
}

/* Unmaps the huge block and its tail, but keeps the addresses until HUGE_QUARANTINED others were
 * freed. */
static void huge_retire(struct huge block)
{
    char *start = (char *)block.address - HUGE_HEAD;
    block = (struct huge)HUGE_OF((uintptr_t)start, HUGE_HEAD + block.size + HUGE_TAIL, 0);
    if (!huge_keep_addresses(start, block.size)) {
        return;
    }
    lock_acquire(&hak__huge_lock);
    struct huge *place = &huge_quarantine[huge_quarantine_next++ % HUGE_QUARANTINED];
    struct huge oldest = *place;
    *place = block;
    lock_release(&hak__huge_lock);
    huge_release(oldest);
}

HAK_RACY_READER bool hak__huge_is_quarantined(uintptr_t address)
{
    bool found = false;
    for (uint32_t i = 0; i < HUGE_QUARANTINED; i++) {
        found |= address - huge_quarantine[i].address < huge_quarantine[i].size;
    }
    return found;
}

/* Gives all such addresses up. */
static void huge_end_quarantine(void)
{
    for (uint32_t i = 0; i < HUGE_QUARANTINED; i++) {
        lock_acquire(&hak__huge_lock);
        struct huge oldest = huge_quarantine[i];
        huge_quarantine[i].size = 0;
        lock_release(&hak__huge_lock);
        huge_release(oldest);
    }
}

void hak__huge_unmap(struct huge block)
{
    if (block.size != 0 && HAK_SECURE) {
        huge_retire(block);
    } else if (block.size != 0) {
        hak__gate_begin_call();
        hak__os_discard((void *)block.address, block.size);
        hak__gate_end_call();
        huge_uncount(block);
    }
}

/* Takes the oldest range out of the cache. If it is not sparse and larger than `too_many` bytes, it
 * takes only its end, from a huge page's boundary on, so that at least `too_many` bytes go. */
static struct huge cache_drop_oldest(size_t too_many)
{
    uint32_t oldest = ranges_oldest();
    struct huge_range range = hak__ranges.entries[oldest];
    uintptr_t end = huge_end(range.block);
    if (too_many < range.block.size && range.resident == range.block.size) {
        uintptr_t cut = bits_align_down(end - too_many, HUGE_PAGE_SIZE);
        if (cut > range.block.address) {
            return cache_carve(oldest, cut, end - cut);
        }
    }
    return hak__ranges_remove(oldest).block;
}

size_t hak__huge_cache_trim(uint32_t age_ms)
{
    if (HAK_SECURE) { /* which caches no huge blocks */
        if (age_ms == 0) {
            huge_end_quarantine();
        }
        return 0;
    }
    if (age_ms != 0 && watched()) {
        return 0;
    }
    size_t bytes = 0;
    uint32_t count = HUGE_DROP_MAX;
    while (count == HUGE_DROP_MAX) {
        struct huge dropped[HUGE_DROP_MAX];
        lock_acquire(&hak__huge_lock);
        uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
        if (age_ms == 0) { /* memory that goes back now does not count for the peak */
            peak.now = peak.before =
                hak__huge_registry_totals().live_bytes + hak__superslab_taken() * SLICE_SIZE;
        }
        size_t bound = cache_bound(now);
        for (count = 0; hak__ranges.count != 0 && count < HUGE_DROP_MAX; count++) {
            bool old = now - hak__ranges.entries[ranges_oldest()].freed_ms >= age_ms;
            if (!old && hak__ranges.resident <= bound) {
                break;
            }
            dropped[count] = cache_drop_oldest(old ? SIZE_MAX : hak__ranges.resident - bound);
        }
        size_t room = hak__ranges.count == 0         ? SIZE_MAX
                      : bound < hak__ranges.resident ? 0
                                                     : bound - hak__ranges.resident;
        size_t slices = hak__superslab_bytes_touched();
        atomic_store_relaxed(&shared_slices_most,
                             room > SIZE_MAX - slices ? SIZE_MAX : slices + room);
        lock_release(&hak__huge_lock);
        for (uint32_t i = 0; i < count; i++) {
            bytes += dropped[i].size;
            hak__huge_unmap(dropped[i]);
        }
    }
    return bytes;
}
