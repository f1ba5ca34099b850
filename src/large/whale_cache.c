/* whale_cache.c: see whale_cache.h. */
#include "large/whale_cache.h"

#include "base/bits.h"
#include "core/knobs.h"
#include "large/whale_registry.h"
#include "os/os.h"
#include "region/mappings.h"
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
/* Entries of the first table. More are mapped when needed, so a larger one only saves that. */
#define CACHE_CAPACITY_MIN (HAK_TINY_LIMITS ? WHALE_PARTS_MAX + 4u : 128u)

struct whale_range {
    struct whale whale;
    size_t resident;   /* bytes that the bound counts; less than the size if it is sparse */
    uint32_t freed_ms; /* time of the free */
};

/* The ranges, oldest first: entries 0 to cache_count - 1. Under WHALES. */
static struct whale_range cache_first_table[CACHE_CAPACITY_MIN];
static struct whale_range *cache_table = cache_first_table;
static size_t cache_capacity = CACHE_CAPACITY_MIN;
static size_t cache_mapped;   /* bytes of the table; 0: it is cache_first_table */
static size_t cache_count;    /* also read without the lock, relaxed */
static size_t cache_size;     /* bytes of all ranges */
static size_t cache_resident; /* bytes of all ranges that the bound counts */

size_t hak__whale_joined_bytes;

/* The most bytes in use: in the present half of a purge delay, and in the half before it. So a peak
 * counts for about one purge delay. Under WHALES. */
static struct {
    size_t now;
    size_t before;
    uint32_t since_ms; /* start of the present half */
} peak;

/* --- the bound --- */

static size_t bytes_in_use(void)
{
    size_t claimed = hak__superslab_bytes_claimed(), free = hak__superslab_bytes_free();
    size_t slices = claimed > free ? claimed - free : 0; /* they are read at different moments */
    return hak__whale_registry_totals().live_bytes + slices;
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
    size_t in_use = bytes_in_use();
    peak_note(in_use, now_ms);
    size_t most = peak.now > peak.before ? peak.now : peak.before;
    size_t others = in_use + hak__superslab_bytes_dirty();
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

/* --- the table; under WHALES --- */

static uintptr_t whale_end(struct whale whale)
{
    return whale.address + whale.size;
}

static void cache_count_set(size_t count)
{
    atomic_store_relaxed(&cache_count, count);
}

static struct whale_range cache_remove(size_t index)
{
    struct whale_range range = cache_table[index];
    cache_size -= range.whale.size;
    cache_resident -= range.resident;
    cache_count_set(cache_count - 1);
    mappings_remove_whales(1);
    for (size_t i = index; i < cache_count; i++) {
        cache_table[i] = cache_table[i + 1];
    }
    return range;
}

static void cache_insert(size_t index, struct whale_range range)
{
    HAK_ASSERT(cache_count < cache_capacity);
    for (size_t i = cache_count; i > index; i--) {
        cache_table[i] = cache_table[i - 1];
    }
    cache_table[index] = range;
    cache_count_set(cache_count + 1);
    mappings_add_whales(1);
    cache_size += range.whale.size;
    cache_resident += range.resident;
}

/* Makes room for `count` more entries. Releases WHALES while it maps a table, and holds it again
 * when it returns. False: no memory. */
static bool cache_reserve(size_t count)
{
    while (cache_count + count > cache_capacity) {
        size_t bytes = bits_align_up(2 * cache_capacity * sizeof *cache_table, hak__os_page_size());
        lock_release(&hak__whale_lock);
        void *bigger;
        bool mapped = hak__os_map(bytes, hak__os_page_size(), &bigger) == 0;
        lock_acquire(&hak__whale_lock);
        if (!mapped) {
            return cache_count + count <= cache_capacity;
        }
        void *unused = bigger;
        size_t unused_bytes = bytes;
        if (bytes / sizeof *cache_table > cache_capacity) { /* else another thread was faster */
            for (size_t i = 0; i < cache_count; i++) {
                ((struct whale_range *)bigger)[i] = cache_table[i];
            }
            unused = cache_table == cache_first_table ? NULL : cache_table;
            unused_bytes = cache_mapped;
            cache_table = bigger;
            cache_capacity = bytes / sizeof *cache_table;
            cache_mapped = bytes;
        }
        lock_release(&hak__whale_lock);
        if (unused != NULL) {
            hak__os_discard(unused, unused_bytes);
        }
        lock_acquire(&hak__whale_lock);
    }
    return true;
}

/* Takes [address, address + size) out of a range. The rests before and behind it stay in the cache.
 */
static struct whale cache_carve(size_t index, uintptr_t address, size_t size)
{
    struct whale_range range = cache_remove(index);
    struct whale front = {range.whale.address, address - range.whale.address, range.whale.origin};
    struct whale back = {address + size, whale_end(range.whale) - (address + size),
                         range.whale.origin};
    size_t resident = range.resident; /* where they are is unknown, so each rest counts them all */
    if (back.size != 0) {
        size_t counts = resident < back.size ? resident : back.size;
        cache_insert(index, (struct whale_range){back, counts, range.freed_ms});
    }
    if (front.size != 0) {
        size_t counts = resident < front.size ? resident : front.size;
        cache_insert(index, (struct whale_range){front, counts, range.freed_ms});
    }
    return (struct whale){address, size, range.whale.origin};
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

/* Takes a whale out of the smallest range that it fits into. Of equal ones it takes the youngest,
 * whose contents may still be in the processor's cache. False: there is none. */
static bool cache_take_whole(struct whale_parts *taken, size_t size, size_t alignment,
                             bool want_zero)
{
    size_t best = SIZE_MAX, best_size = SIZE_MAX;
    for (size_t i = cache_count; i-- != 0;) {
        const struct whale_range *range = &cache_table[i];
        bool clears = want_zero && range->resident > WHALE_CLEAR_MAX;
        if (range->whale.size < best_size && !clears &&
            range_place(range->whale, size, alignment) != 0) {
            best = i;
            best_size = range->whale.size;
        }
    }
    if (best == SIZE_MAX) {
        return false;
    }
    struct whale range = cache_table[best].whale;
    uintptr_t start = range_place(range, size, alignment);
    bool all = range.size - size < WHALE_REST_MIN && (range.address & (alignment - 1)) == 0 &&
               (size < 2 * HUGE_PAGE_SIZE || start == range.address);
    taken->parts[0] = all ? cache_remove(best).whale : cache_carve(best, start, size);
    taken->count = 1;
    taken->whole = true;
    return true;
}

/* Bytes of a range in whole huge pages, which can be joined. 0 for a sparse one: moving pages that
 * are not there gains nothing. */
static size_t range_units(const struct whale_range *range)
{
    uintptr_t start = bits_align_up(range->whale.address, HUGE_PAGE_SIZE);
    uintptr_t end = bits_align_down(whale_end(range->whale), HUGE_PAGE_SIZE);
    return range->resident == range->whale.size && start < end ? end - start : 0;
}

/* True: the first `size` bytes of a range can be the end of a joined whale. They must lie in one
 * mapping. In a range of a joined whale, that is sure only inside one huge page's place. */
static bool range_has_end(const struct whale_range *range, size_t size)
{
    uintptr_t unit_end = bits_align_up(range->whale.address + 1, HUGE_PAGE_SIZE);
    return range->resident == range->whale.size && range->whale.size >= size &&
           (range->whale.origin != 0 || range->whale.address + size <= unit_end);
}

/* Takes parts for a joined whale: whole huge pages from the ranges that have most of them, and then
 * the end from the smallest range that has it. The parts may cover less than `size`. */
static void cache_take_parts(struct whale_parts *taken, size_t size)
{
    size_t missing = bits_align_down(size, HUGE_PAGE_SIZE);
    while (missing != 0 && taken->count < WHALE_PARTS_MAX - 1) {
        size_t best = 0, best_bytes = 0;
        for (size_t i = 0; i < cache_count; i++) {
            size_t bytes = range_units(&cache_table[i]);
            best = bytes > best_bytes ? i : best;
            best_bytes = bytes > best_bytes ? bytes : best_bytes;
        }
        if (best_bytes == 0) {
            break;
        }
        size_t bytes = best_bytes < missing ? best_bytes : missing;
        uintptr_t start = bits_align_up(cache_table[best].whale.address, HUGE_PAGE_SIZE);
        taken->parts[taken->count++] = cache_carve(best, start, bytes);
        missing -= bytes;
    }
    size_t end = size % HUGE_PAGE_SIZE, best = SIZE_MAX;
    for (size_t i = 0; i < cache_count && end >= WHALE_REST_MIN && taken->count != 0; i++) {
        bool better = best == SIZE_MAX || cache_table[i].whale.size < cache_table[best].whale.size;
        best = better && range_has_end(&cache_table[i], end) ? i : best;
    }
    if (best != SIZE_MAX) {
        taken->parts[taken->count++] = cache_carve(best, cache_table[best].whale.address, end);
    }
}

/* Takes the largest range of one mapping, which the caller stretches. False: it has less than half
 * of `size`, or joined parts would bring more. */
static bool cache_take_to_stretch(struct whale_parts *taken, size_t size, bool want_zero)
{
    size_t units = 0, best = SIZE_MAX;
    for (size_t i = 0; i < cache_count; i++) {
        const struct whale_range *range = &cache_table[i];
        bool better = best == SIZE_MAX || range->whale.size >= cache_table[best].whale.size;
        bool clears = want_zero && range->resident > WHALE_CLEAR_MAX;
        best = range->whale.origin != 0 && range->whale.size < size && better && !clears ? i : best;
        units += range_units(range);
    }
    units = units < size ? units : size;
    if (best == SIZE_MAX || cache_table[best].whale.size < size / 2 ||
        cache_table[best].whale.size < units) {
        return false;
    }
    taken->parts[0] = cache_remove(best).whale;
    taken->count = 1;
    taken->whole = true;
    return true;
}

void hak__whale_cache_take(struct whale_parts *taken, size_t size, size_t alignment, bool want_zero)
{
    taken->count = 0;
    taken->whole = false;
    if (atomic_load_relaxed(&cache_count) == 0) {
        return;
    }
    lock_acquire(&hak__whale_lock);
    bool joins = size >= 2 * HUGE_PAGE_SIZE && alignment <= HUGE_PAGE_SIZE &&
                 !(want_zero && size > WHALE_CLEAR_MAX) &&
                 atomic_load_relaxed(&hak__whale_joined_bytes) + size <= WHALE_JOINED_MAX;
    if (cache_reserve(WHALE_PARTS_MAX) && !cache_take_whole(taken, size, alignment, want_zero) &&
        !(alignment <= hak__os_page_size() && cache_take_to_stretch(taken, size, want_zero)) &&
        joins) {
        cache_take_parts(taken, size);
    }
    lock_release(&hak__whale_lock);
}

size_t hak__whale_cache_take_next(struct whale whale, size_t size)
{
    size_t bytes = 0;
    lock_acquire(&hak__whale_lock);
    for (size_t i = 0; i < cache_count && bytes == 0; i++) {
        struct whale range = cache_table[i].whale;
        if (range.address == whale_end(whale) && range.origin == whale.origin) {
            bytes = range.size < size ? range.size : size;
            cache_carve(i, range.address, bytes);
        }
    }
    lock_release(&hak__whale_lock);
    return bytes;
}

/* --- keeping --- */

size_t hak__whale_cache_room(void)
{
    if (HAK_SECURE) {
        return 0; /* freed whales are unmapped */
    }
    lock_acquire(&hak__whale_lock);
    size_t bound = cache_bound(hak__os_clock_ms());
    size_t room = bound > cache_resident ? bound - cache_resident : 0;
    lock_release(&hak__whale_lock);
    return room;
}

/* Merges a range with its neighbours of the same mapping. Ranges of joined whales have origin 0 and
 * merge, too. That is safe: joined whales start at huge pages' boundaries, so inside one huge
 * page's place only parts of one mapping can meet. */
static struct whale_range cache_meet(struct whale_range range)
{
    for (size_t i = cache_count; i-- != 0;) {
        struct whale other = cache_table[i].whale;
        if (other.origin == range.whale.origin &&
            (whale_end(other) == range.whale.address || other.address == whale_end(range.whale))) {
            range.resident += cache_remove(i).resident;
            range.whale.address =
                other.address < range.whale.address ? other.address : range.whale.address;
            range.whale.size += other.size;
        }
    }
    return range;
}

void hak__whale_cache_put(struct whale whale, size_t resident)
{
    lock_acquire(&hak__whale_lock);
    peak_correct(whale.size - resident);
    bool has_entry = cache_reserve(1);
    if (has_entry) {
        struct whale_range range = {whale, resident, hak__os_clock_ms()};
        range = cache_meet(range);
        cache_insert(cache_count, range);
    }
    lock_release(&hak__whale_lock);
    if (!has_entry) {
        hak__whale_unmap(whale);
    }
}

void hak__whale_unmap(struct whale whale)
{
    if (whale.size != 0 && HAK_SECURE) {
        hak__whale_retire(whale);
    } else if (whale.size != 0) {
        hak__os_discard((void *)whale.address, whale.size);
        whale_uncount(whale);
    }
}

/* Takes the oldest range out of the cache. If it is not sparse and larger than `too_many` bytes, it
 * takes only its end, from a huge page's boundary on, so that at least `too_many` bytes go. */
static struct whale cache_drop_oldest(size_t too_many)
{
    struct whale_range range = cache_table[0];
    uintptr_t end = whale_end(range.whale);
    if (too_many < range.whale.size && range.resident == range.whale.size) {
        uintptr_t cut = bits_align_down(end - too_many, HUGE_PAGE_SIZE);
        if (cut > range.whale.address) {
            return cache_carve(0, cut, end - cut);
        }
    }
    return cache_remove(0).whale;
}

size_t hak__whale_cache_trim(uint32_t age_ms)
{
    size_t bytes = 0;
    uint32_t count = WHALE_DROP_MAX;
    while (count == WHALE_DROP_MAX) {
        struct whale dropped[WHALE_DROP_MAX];
        lock_acquire(&hak__whale_lock);
        uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
        if (age_ms == 0) { /* memory that goes back now does not count for the peak */
            peak.now = peak.before = bytes_in_use();
        }
        size_t bound = cache_bound(now);
        for (count = 0; cache_count != 0 && count < WHALE_DROP_MAX; count++) {
            bool old = now - cache_table[0].freed_ms >= age_ms;
            if (!old && cache_resident <= bound) {
                break;
            }
            dropped[count] = cache_drop_oldest(old ? SIZE_MAX : cache_resident - bound);
        }
        lock_release(&hak__whale_lock);
        for (uint32_t i = 0; i < count; i++) {
            bytes += dropped[i].size;
            hak__whale_unmap(dropped[i]);
        }
    }
    if (HAK_SECURE && age_ms == 0) {
        hak__whale_end_rests();
    }
    return bytes;
}

void hak__whale_cache_list(struct whale_list *list)
{
    uint32_t now = hak__os_clock_ms();
    for (size_t i = 0; i < cache_count; i++) {
        const struct whale_range *range = &cache_table[i];
        hak__whale_list_offer(list, (struct whale_view){range->whale.address, range->whale.size,
                                                        now - range->freed_ms, true});
    }
}

struct whale_cache_totals hak__whale_cache_totals(void)
{
    return (struct whale_cache_totals){cache_size, cache_mapped};
}

struct whale_view hak__whale_cache_table(void)
{
    return (struct whale_view){(uintptr_t)cache_table, cache_mapped, 0, false};
}
