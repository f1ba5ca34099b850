/* SPDX-License-Identifier: MIT */
/* whale_cache.c: see whale_cache.h. */
#include "large/whale_cache.h"

#include "core/gate.h"
#include "core/knobs.h"
#include "core/watched.h"
#include "large/whale_ranges.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/superslab.h"

/* If less than this would be left of a range, the whale gets the whole range. A joined whale takes
 * no shorter end out of the cache. Twice: a whale may be 128 KiB larger than asked for. Half: more
 * and shorter ranges in the cache. */
#define WHALE_REST_MIN ((size_t)64 << 10)
/* calloc takes a new mapping rather than clear more than this. Pages of a new mapping that the
 * program never touches take no memory. Twice: calloc clears up to 64 MiB, and faults less. Half:
 * more page faults where the program uses all of the block. */
#define WHALE_CLEAR_MAX ((size_t)32 << 20)
/* Ranges that a trim takes out of the cache before it unmaps them without the lock. Twice: a larger
 * array on the stack (384 bytes now). Half: it takes the lock twice as often. */
#define WHALE_DROP_MAX 16u

size_t hak__whale_joined_bytes;

/* The most bytes in use: in the present half of a purge delay, and in the half before it. So a peak
 * counts for about one purge delay. Under WHALES. */
static struct {
    size_t now;
    size_t before;
    uint32_t since_ms; /* start of the present half */
} peak;

/* Bytes of slices, in use or dirty, above which the cache exceeds its bound: as of the last trim.
 * Written under WHALES, read without; relaxed: a tick looks again. */
static size_t shared_slices_most = SIZE_MAX;

/* --- the bound --- */

bool hak__whale_cache_exceeds(void)
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
 * most knobs.whale_cache_bytes. 0 above the soft limit. Under WHALES. */
static size_t cache_bound(uint32_t now_ms)
{
    size_t whales = hak__whale_registry_totals().live_bytes;
    peak_note(whales + hak__superslab_taken() * SLICE_SIZE, now_ms);
    size_t most = peak.now > peak.before ? peak.now : peak.before;
    size_t others = whales + hak__superslab_bytes_touched();
    if (most <= others || hak__os_mapped_bytes() > atomic_load_relaxed(&hak__knobs.limit)) {
        return 0;
    }
    size_t bound = most - others;
    uint64_t allowed = atomic_load_relaxed(&hak__knobs.whale_cache_bytes);
    return bound < allowed ? bound : (size_t)allowed;
}

/* Subtracts bytes from the peaks: a whale counted as in use turned out to be sparse. */
static void peak_correct(size_t untouched)
{
    peak.now -= peak.now < untouched ? peak.now : untouched;
    peak.before -= peak.before < untouched ? peak.before : untouched;
}

/* Takes [address, address + size) out of a range. The rests before and behind it stay in the
 * cache. */
static struct whale cache_carve(uint32_t index, uintptr_t address, size_t size)
{
    struct whale_range range = hak__ranges_remove(index);
    struct whale front =
        WHALE_OF(range.whale.address, address - range.whale.address, range.whale.origin);
    struct whale back =
        WHALE_OF(address + size, whale_end(range.whale) - (address + size), range.whale.origin);
    const struct whale rests[] = {front, back};
    for (uint32_t i = 0; i < 2; i++) {
        if (rests[i].size != 0) { /* where pages are is unknown, so each rest counts them all */
            size_t counts = range.resident < rests[i].size ? range.resident : rests[i].size;
            hak__ranges_add((struct whale_range){.whale = rests[i],
                                                 .resident = counts,
                                                 .freed_ms = range.freed_ms},
                            range.age.after);
        }
    }
    return (struct whale)WHALE_OF(address, size, range.whale.origin);
}

/* --- taking --- */

/* Where in a range a whale may start; 0: nowhere. From two huge pages on, a whale takes the first
 * aligned address. A smaller whale ends where the range ends, so that whole huge pages stay in
 * front of it. */
static uintptr_t range_place(struct whale range, size_t size, size_t alignment)
{
    if (range.size < size) {
        return 0;
    }
    if (size >= 2 * HUGE_PAGE_SIZE) {
        alignment = alignment < HUGE_PAGE_SIZE ? HUGE_PAGE_SIZE : alignment;
        uintptr_t start = bits_align_up(range.address, alignment);
        return start <= whale_end(range) - size ? start : 0;
    }
    uintptr_t start = bits_align_down(whale_end(range) - size, alignment);
    return start >= range.address ? start : 0;
}

/* calloc would have to clear too much of it. */
static bool range_clears(const struct whale_range *range, const struct range_wish *wish)
{
    return wish->want_zero && range->resident > WHALE_CLEAR_MAX;
}

/* It lies on the calling thread's memory node. */
static bool range_is_near(const struct whale_range *range)
{
    return range->whale.origin >> ORIGIN_NUMBER_BITS == numa_node();
}

static bool range_fits(const struct whale_range *range, const struct whale_range *best,
                       const struct range_wish *wish)
{
    return (best == NULL || range->whale.size < best->whale.size) && range_is_near(range) &&
           !range_clears(range, wish) &&
           range_place(range->whale, wish->size, wish->alignment) != 0;
}

/* Takes a whale out of the smallest range that it fits into, if there are not very many (see
 * hak__ranges_search; so are the next two). Of equal ones it takes the one that was added last,
 * whose contents may still be in the processor's cache. False: there is none. */
static bool cache_take_whole(struct whale_parts *taken, const struct range_wish *wish)
{
    size_t size = wish->size;
    uint32_t best = hak__ranges_search(size, true, range_fits, wish);
    if (best == 0) {
        return false;
    }
    struct whale range = hak__ranges.entries[best].whale;
    uintptr_t start = range_place(range, size, wish->alignment);
    bool all = range.size - size < WHALE_REST_MIN && (range.address & (wish->alignment - 1)) == 0 &&
               (size < 2 * HUGE_PAGE_SIZE || start == range.address);
    taken->parts[0] = all ? hak__ranges_remove(best).whale : cache_carve(best, start, size);
    taken->count = 1;
    taken->whole = true;
    return true;
}

static bool range_has_more_units(const struct whale_range *range, const struct whale_range *best,
                                 const struct range_wish *wish)
{
    (void)wish;
    return range_is_near(range) && range_units(range) > (best == NULL ? 0 : range_units(best));
}

/* The first bytes of a range can be the end of a joined whale. They must lie in one mapping. In a
 * range of a joined whale, that is sure only inside one huge page's place. */
static bool range_has_end(const struct whale_range *range, const struct whale_range *best,
                          const struct range_wish *wish)
{
    uintptr_t unit_end = bits_align_up(range->whale.address + 1, HUGE_PAGE_SIZE);
    return range_is_near(range) && range->resident == range->whale.size &&
           range->whale.size >= wish->size &&
           (!whale_is_joined(range->whale) || range->whale.address + wish->size <= unit_end) &&
           (best == NULL || range->whale.size < best->whale.size);
}

/* Takes parts for a joined whale: whole huge pages from the ranges that have most of them, and then
 * the end from the smallest range that has it. The parts may cover less than `size`. */
static void cache_take_parts(struct whale_parts *taken, size_t size)
{
    size_t missing = bits_align_down(size, HUGE_PAGE_SIZE);
    uint32_t best = 0;
    while (missing != 0 && taken->count < WHALE_PARTS_MAX - 1 &&
           (best = hak__ranges_search(SIZE_MAX, false, range_has_more_units, NULL)) != 0) {
        const struct whale_range *range = &hak__ranges.entries[best];
        size_t bytes = range_units(range) < missing ? range_units(range) : missing;
        uintptr_t start = bits_align_up(range->whale.address, HUGE_PAGE_SIZE);
        taken->parts[taken->count++] = cache_carve(best, start, bytes);
        missing -= bytes;
    }
    struct range_wish end = {.size = size % HUGE_PAGE_SIZE};
    if (end.size >= WHALE_REST_MIN && taken->count != 0 &&
        (best = hak__ranges_search(end.size, true, range_has_end, &end)) != 0) {
        uintptr_t start = hak__ranges.entries[best].whale.address;
        taken->parts[taken->count++] = cache_carve(best, start, end.size);
    }
}

static bool range_stretches(const struct whale_range *range, const struct whale_range *best,
                            const struct range_wish *wish)
{
    return (best == NULL || range->whale.size > best->whale.size) && range_is_near(range) &&
           !whale_is_joined(range->whale) && range->whale.size < wish->size &&
           !range_clears(range, wish);
}

/* Takes the largest range of one mapping, which the caller stretches. False: it has less than half
 * of the size, or joined parts would bring more. */
static bool cache_take_to_stretch(struct whale_parts *taken, const struct range_wish *wish)
{
    uint32_t best = hak__ranges_search(wish->size, false, range_stretches, wish);
    size_t size = hak__ranges.entries[best].whale.size; /* of entry 0: 0 */
    size_t units = hak__ranges.units < wish->size ? hak__ranges.units : wish->size;
    if (best == 0 || size < wish->size / 2 || size < units) {
        return false;
    }
    taken->parts[0] = hak__ranges_remove(best).whale;
    taken->count = 1;
    taken->whole = true;
    return true;
}

void hak__whale_cache_take(struct whale_parts *taken, size_t size, size_t alignment, bool want_zero)
{
    taken->count = 0;
    taken->whole = false;
    if (atomic_load_relaxed(&hak__ranges.count) == 0 || watched()) {
        return;
    }
    const struct range_wish wish = {size, alignment, want_zero};
    lock_acquire(&hak__whale_lock);
    bool joins = size >= 2 * HUGE_PAGE_SIZE && alignment <= HUGE_PAGE_SIZE &&
                 !(want_zero && size > WHALE_CLEAR_MAX) &&
                 atomic_load_relaxed(&hak__whale_joined_bytes) + size <= WHALE_JOINED_MAX;
    if (hak__ranges_reserve(WHALE_PARTS_MAX) && !cache_take_whole(taken, &wish) &&
        !(alignment <= hak__os_page_size() && cache_take_to_stretch(taken, &wish)) && joins) {
        cache_take_parts(taken, size);
    }
    lock_release(&hak__whale_lock);
}

size_t hak__whale_cache_take_next(struct whale whale, size_t size)
{
    if (watched()) {
        return 0;
    }
    lock_acquire(&hak__whale_lock);
    uint32_t next = hak__ranges_starting_at(whale_end(whale), whale.origin);
    size_t bytes = next != 0 ? hak__ranges.entries[next].whale.size : 0;
    bytes = bytes < size ? bytes : size;
    if (bytes != 0) {
        cache_carve(next, whale_end(whale), bytes);
    }
    lock_release(&hak__whale_lock);
    return bytes;
}

/* --- keeping --- */

size_t hak__whale_cache_room(void)
{
    if (HAK_SECURE || watched()) {
        return 0; /* freed whales are unmapped */
    }
    lock_acquire(&hak__whale_lock);
    size_t bound = cache_bound(hak__os_clock_ms());
    size_t room = bound > hak__ranges.resident ? bound - hak__ranges.resident : 0;
    lock_release(&hak__whale_lock);
    return room;
}

/* Merges a range with its neighbours of the same mapping. Ranges of joined whales have origin 0 and
 * merge, too. That is safe: joined whales start at huge pages' boundaries, so inside one huge
 * page's place only parts of one mapping can meet. */
static struct whale_range cache_meet(struct whale_range range)
{
    uint32_t before = hak__ranges_ending_at(range.whale.address, range.whale.origin);
    uint32_t after = hak__ranges_starting_at(whale_end(range.whale), range.whale.origin);
    if (after != 0) {
        struct whale_range other = hak__ranges_remove(after);
        range.resident += other.resident;
        range.whale.size += other.whale.size;
    }
    if (before != 0) {
        struct whale_range other = hak__ranges_remove(before);
        range.resident += other.resident;
        range.whale.size += other.whale.size;
        range.whale.address = other.whale.address;
    }
    return range;
}

void hak__whale_cache_put(struct whale whale, size_t resident)
{
    lock_acquire(&hak__whale_lock);
    peak_correct(whale.size - resident);
    bool has_entry = hak__ranges_reserve(1);
    if (has_entry) {
        struct whale_range range = {
            .whale = whale, .resident = resident, .freed_ms = hak__os_clock_ms()};
        hak__ranges_add(cache_meet(range), 0);
    }
    lock_release(&hak__whale_lock);
    if (!has_entry) {
        hak__whale_unmap(whale);
    }
}

/* --- rests of the secure form --- */

/* With heads and tails; size 0: none. Twice as many: a use after free faults for twice as long.
 * Under the lock. */
#define WHALES_RESTING 64u
static struct whale whales_resting[WHALES_RESTING];
static uint32_t whale_next_resting;

static void whale_release(struct whale rested)
{
    if (rested.size != 0) {
        hak__os_release_addresses((void *)rested.address, rested.size);
    }
}

/* Unmaps a whale with its head and tail, but keeps the addresses. False: it could not keep them. */
static bool whale_keep_addresses(char *start, size_t size)
{
    hak__gate_begin_call();
    bool kept = hak__os_keep_addresses(start, size);
    if (!kept && hak__os_open_pages(start, WHALE_HEAD)) {
        hak__os_discard(start, size); /* it may write to the first page */
    } else if (!kept) {
        hak__os_leave(WHALE_HEAD);
        hak__os_discard(start + WHALE_HEAD, size - WHALE_HEAD);
    }
    hak__gate_end_call();
    return kept;
}

/* Unmaps the whale and its tail, but keeps the addresses until WHALES_RESTING others were freed. */
static void whale_retire(struct whale whale)
{
    char *start = (char *)whale.address - WHALE_HEAD;
    whale = (struct whale)WHALE_OF((uintptr_t)start, WHALE_HEAD + whale.size + WHALE_TAIL, 0);
    if (!whale_keep_addresses(start, whale.size)) {
        return;
    }
    lock_acquire(&hak__whale_lock);
    struct whale *place = &whales_resting[whale_next_resting++ % WHALES_RESTING];
    struct whale rested = *place;
    *place = whale;
    lock_release(&hak__whale_lock);
    whale_release(rested);
}

HAK_RACY_READER bool hak__whale_is_resting(uintptr_t address)
{
    bool found = false;
    for (uint32_t i = 0; i < WHALES_RESTING; i++) {
        found |= address - whales_resting[i].address < whales_resting[i].size;
    }
    return found;
}

/* Gives all such addresses up. */
static void whale_end_rests(void)
{
    for (uint32_t i = 0; i < WHALES_RESTING; i++) {
        lock_acquire(&hak__whale_lock);
        struct whale rested = whales_resting[i];
        whales_resting[i].size = 0;
        lock_release(&hak__whale_lock);
        whale_release(rested);
    }
}

void hak__whale_unmap(struct whale whale)
{
    if (whale.size != 0 && HAK_SECURE) {
        whale_retire(whale);
    } else if (whale.size != 0) {
        hak__gate_begin_call();
        hak__os_discard((void *)whale.address, whale.size);
        hak__gate_end_call();
        whale_uncount(whale);
    }
}

/* Takes the oldest range out of the cache. If it is not sparse and larger than `too_many` bytes, it
 * takes only its end, from a huge page's boundary on, so that at least `too_many` bytes go. */
static struct whale cache_drop_oldest(size_t too_many)
{
    uint32_t oldest = ranges_oldest();
    struct whale_range range = hak__ranges.entries[oldest];
    uintptr_t end = whale_end(range.whale);
    if (too_many < range.whale.size && range.resident == range.whale.size) {
        uintptr_t cut = bits_align_down(end - too_many, HUGE_PAGE_SIZE);
        if (cut > range.whale.address) {
            return cache_carve(oldest, cut, end - cut);
        }
    }
    return hak__ranges_remove(oldest).whale;
}

size_t hak__whale_cache_trim(uint32_t age_ms)
{
    if (HAK_SECURE) { /* which caches no whales */
        if (age_ms == 0) {
            whale_end_rests();
        }
        return 0;
    }
    if (age_ms != 0 && watched()) {
        return 0;
    }
    size_t bytes = 0;
    uint32_t count = WHALE_DROP_MAX;
    while (count == WHALE_DROP_MAX) {
        struct whale dropped[WHALE_DROP_MAX];
        lock_acquire(&hak__whale_lock);
        uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
        if (age_ms == 0) { /* memory that goes back now does not count for the peak */
            peak.now = peak.before =
                hak__whale_registry_totals().live_bytes + hak__superslab_taken() * SLICE_SIZE;
        }
        size_t bound = cache_bound(now);
        for (count = 0; hak__ranges.count != 0 && count < WHALE_DROP_MAX; count++) {
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
        lock_release(&hak__whale_lock);
        for (uint32_t i = 0; i < count; i++) {
            bytes += dropped[i].size;
            hak__whale_unmap(dropped[i]);
        }
    }
    return bytes;
}
