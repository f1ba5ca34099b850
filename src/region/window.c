/* SPDX-License-Identifier: MIT */
/* window.c: chooses the window's addresses and claims its tables. See window.h. */
#include "region/window.h"

#include <errno.h>

#include "base/bits.h"
#include "base/check.h"
#include "core/knobs.h"
#include "core/seal.h"
#include "os/os.h"
#include "region/huge_pages.h"
#include "region/secure.h"
#include "region/superslab.h"

struct window hak__window = {.base = WINDOW_NOWHERE};

/* Two tables that grow away from the address `meet`. [low, high) is claimed, except for
 * window_skipped_bytes in PAIR_SLABS. */
struct table_pair {
    uintptr_t meet;
    uintptr_t low;
    uintptr_t high;
};

/* Spare bytes of the keys; see pair_claim_below. */
#define KEYS_SPARE ((size_t)1 << 20)

/* PAIR_SECURE: keys and states (secure.h); only in the secure form. */
enum { PAIR_SLICES, PAIR_SLABS, PAIR_SECURE, PAIR_COUNT = HAK_SECURE ? 3 : 2 };
static struct table_pair window_pairs[PAIR_COUNT];
static size_t window_skipped_bytes; /* slab metadata of skipped slices: never claimed */
static size_t window_room_bytes;    /* constant once the window has started */

/* The sizes in bytes of a pair's two tables. */
struct table_sides {
    size_t below;
    size_t above;
};

/* The sizes that a pair's tables need to cover slices [0, slices). */
static struct table_sides table_sides(int pair, size_t slices)
{
    const size_t group_slices = SUPERSLAB_GROUP * SUPERSLAB_SLICES;
    size_t groups = (slices + group_slices - 1) / group_slices;
    if (pair == PAIR_SECURE) {
        return (struct table_sides){slices * sizeof(struct secure_keys),
                                    slices * SECURE_STATES_SIZE};
    }
    return pair == PAIR_SLICES ? (struct table_sides){groups * sizeof(struct superslab_group),
                                                      slices * sizeof(uint32_t)}
                               : (struct table_sides){window_room_bytes, slices * HAK_CACHE_LINE};
}

/* Maps [from, to), which may be empty. 0 or -errno. */
static int pair_claim(uintptr_t from, uintptr_t to)
{
    return from < to ? hak__os_map_at((void *)from, to - from) : 0;
}

/* True: the upper table is that of states, of which parts go back while others are in use. It has
 * small pages, because the kernel may make a purged part of a huge page resident again. */
static bool pair_goes_back(const struct table_pair *pair)
{
    return PAIR_COUNT > PAIR_SECURE && pair == &window_pairs[PAIR_COUNT - 1];
}

/* Extends a pair's upper table to `high`. In a large heap the table gets huge pages: all of it is
 * touched, and fork copies a page-table entry for each small page (docs/decisions/0069). */
static int pair_claim_above(struct table_pair *pair, uintptr_t high)
{
    uintptr_t whole = bits_align_up(high, HUGE_PAGE_SIZE);
    uintptr_t first = bits_align_up(pair->high, HUGE_PAGE_SIZE);
    /* The table's length is not enough: a long table may cover skipped superslabs. */
    size_t claimed = hak__superslab_bytes_claimed();
    bool huge_pages = !pair_goes_back(pair) && high > pair->high &&
                      high - pair->meet > HUGE_PAGE_SIZE && claimed >= TABLE_HUGE_HEAP_BYTES &&
                      claimed >= atomic_load_relaxed(&hak__knobs.huge_threshold) &&
                      hak__os_page_size() == ARCH_PAGE_SIZE_MIN;
    if (!huge_pages || pair_claim(pair->high, whole) != 0) {
        whole = high;
        int error = pair_claim(pair->high, high);
        if (error == -ENOMEM && pair->high != pair->low) {
            error = hak__os_extend((void *)pair->high, high - pair->high);
        }
        if (error != 0) {
            return error;
        }
    }
    if (pair_goes_back(pair) && pair->high < high) {
        hak__os_small((void *)pair->high, high - pair->high);
    }
    if (huge_pages && first < whole) {
        hak__os_huge_pages((void *)first, bits_align_down(whole - first, HUGE_PAGE_SIZE));
    }
    atomic_store_relaxed(&pair->high, whole > pair->high ? whole : pair->high);
    return 0;
}

/* Extends a pair's lower table to `low`. Where the kernel allows no further mapping, the upper
 * table can be extended, but not the lower one. So that one has bytes to spare, if no limit is
 * near: 64 KiB are the maps of 1,700 superslabs, 1 MiB the keys of 2,048. 0 or -errno. */
static int pair_claim_below(struct table_pair *pair, uintptr_t low)
{
    if (low >= pair->low) {
        return 0;
    }
    size_t spare = pair_goes_back(pair) ? KEYS_SPARE : OS_PAGE_SIZE_MAX;
    uintptr_t with_spare = bits_align_down(low, spare);
    int error = pair_claim(with_spare, pair->low);
    if (error == 0) {
        low = with_spare;
    } else if (with_spare < low) {
        error = pair_claim(low, pair->low);
    }
    if (error == 0) {
        atomic_store_relaxed(&pair->low, low);
    }
    return error;
}

/* Extends both tables of a pair to these sizes. 0 or -errno. */
static int pair_extend(struct table_pair *pair, struct table_sides sides)
{
    uintptr_t low = bits_align_down(pair->meet - sides.below, hak__os_page_size());
    uintptr_t high = bits_align_up(pair->meet + sides.above, hak__os_page_size());
    /* The lower table grows first. If the upper one then cannot grow, the lower one keeps what it
     * got. At start the upper table's claim begins at pair->low: it is the only claim and maps both
     * tables. Reports read pair->low and pair->high without a lock. */
    int error = pair_claim_below(pair, low);
    return error == 0 ? pair_claim_above(pair, high) : error;
}

/* Makes the tables cover slices [0, slices). 0 or -errno. */
static int window_cover(size_t slices)
{
    int error = 0;
    for (int i = 0; i < PAIR_COUNT && error == 0; i++) {
        error = pair_extend(&window_pairs[i], table_sides(i, slices));
    }
    return error;
}

int hak__window_grow_tables(size_t slice_count)
{
    size_t step = bits_align_up(slice_count, TABLE_STEP_SUPERSLABS * SUPERSLAB_SLICES);
    int error = window_cover(step);
    return error == 0 ? 0 : window_cover(slice_count); /* near a limit: only what is needed */
}

bool hak__window_give_spare(size_t slice_count)
{
    bool given = false;
    size_t limit = hak__window.shared_limit; /* of the part that has claimed farthest */
    size_t groups = hak__superslabs.groups_count * GROUP_SLICES; /* that parts have */
    slice_count = slice_count > limit ? slice_count : limit;
    slice_count = slice_count > groups ? slice_count : groups;
    for (int i = 0; i < PAIR_COUNT; i++) {
        struct table_pair *pair = &window_pairs[i];
        size_t below = table_sides(i, slice_count).below;
        uintptr_t low = bits_align_down(pair->meet - below, hak__os_page_size());
        /* the end of a mapping: no further one is needed */
        if (pair->low < low && hak__os_unmap((void *)pair->low, low - pair->low) == 0) {
            atomic_store_relaxed(&pair->low, low);
            given = true;
        }
    }
    return given;
}

void hak__window_skip(size_t slice)
{
    struct table_pair *pair = &window_pairs[PAIR_SLABS];
    uintptr_t high = bits_align_down(pair->meet + slice * HAK_CACHE_LINE, hak__os_page_size());
    if (high > pair->high) {
        atomic_store_relaxed(&window_skipped_bytes, window_skipped_bytes + (high - pair->high));
        atomic_store_relaxed(&pair->high, high);
    }
}

static void table_purge(uintptr_t table, size_t entry, size_t slice, size_t count)
{
    uintptr_t from = bits_align_up(table + slice * entry, hak__os_page_size());
    uintptr_t to = bits_align_down(table + (slice + count) * entry, hak__os_page_size());
    if (from < to) {
        (void)hak__os_purge((void *)from, to - from);
    }
}

void hak__window_purge_tables(size_t slice, size_t count)
{
    table_purge(window_pairs[PAIR_SLABS].meet, HAK_CACHE_LINE, slice, count);
    for (int i = PAIR_SECURE; i < PAIR_COUNT; i++) {
        table_purge(window_pairs[i].meet, SECURE_STATES_SIZE, slice, count);
    }
}

/* Bytes of the pair. Relaxed: a report may come between two steps of a claim. */
static size_t pair_bytes(const struct table_pair *pair)
{
    uintptr_t low = atomic_load_relaxed(&pair->low), high = atomic_load_relaxed(&pair->high);
    return low < high ? high - low : 0;
}

size_t hak__window_table_bytes(void)
{
    size_t bytes = 0;
    uintptr_t place;
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        bytes += hak__superslab_part_bytes(i, &place);
    }
    for (int i = 0; i < PAIR_COUNT; i++) {
        bytes += pair_bytes(&window_pairs[i]);
    }
    bool stands = pair_bytes(&window_pairs[PAIR_SLABS]) != 0;
    return bytes - (stands ? window_room_bytes + atomic_load_relaxed(&window_skipped_bytes) : 0);
}

bool hak__window_pair(uint32_t pair, uintptr_t *low, uintptr_t *high)
{
    if (pair >= PAIR_COUNT || pair_bytes(&window_pairs[pair]) == 0) {
        return false;
    }
    *low = atomic_load_relaxed(&window_pairs[pair].low);
    *high = atomic_load_relaxed(&window_pairs[pair].high);
    return true;
}

size_t hak__window_room_bytes(void)
{
    return pair_bytes(&window_pairs[PAIR_SLABS]) == 0 ? 0 : window_room_bytes;
}

void *hak__window_room(void)
{
    return hak__window.slabs - window_room_bytes;
}

static void window_drop_tables(void)
{
    for (int i = 0; i < PAIR_COUNT; i++) {
        struct table_pair *pair = &window_pairs[i];
        if (pair->low != pair->high) {
            hak__os_discard((void *)pair->low, pair->high - pair->low);
        }
        *pair = (struct table_pair){0, 0, 0};
    }
}

/* Lays the tables out from `low` on, with a gap of at least one OS page after each pair, and claims
 * their first step. The first group begins at an OS page, so that the first owner words share that
 * page, which is the last of the room that the lower table claims at once. The other upper tables
 * begin at an OS page, so that whole pages of them can go back. `room`: bytes for the room. 0 or
 * -errno. */
static int window_try(uintptr_t low, size_t size, size_t room)
{
    uintptr_t at = low;
    window_room_bytes = room;
    for (int i = 0; i < PAIR_COUNT; i++) {
        struct table_sides most = table_sides(i, size / SLICE_SIZE);
        struct table_sides least = table_sides(i, 1);
        uintptr_t first = at + bits_align_up(most.below - least.below, OS_PAGE_SIZE_MAX);
        first += i == PAIR_SLABS ? 0 : OS_PAGE_SIZE_MAX - hak__os_page_size();
        uintptr_t start = bits_align_down(first, OS_PAGE_SIZE_MAX);
        if (i == PAIR_SECURE && room != 0 && start - at >= KEYS_SPARE) {
            start -= KEYS_SPARE;
        }
        uintptr_t meet = first + least.below;
        meet = i == PAIR_SLICES ? meet : bits_align_up(meet, hak__os_page_size());
        window_pairs[i] = (struct table_pair){meet, start, start};
        at = bits_align_up(meet + most.above, OS_PAGE_SIZE_MAX) + OS_PAGE_SIZE_MAX;
    }
    int error = hak__window_grow_tables(1);
    if (error != 0) {
        window_drop_tables();
        return error;
    }
    hak__window.owners = (uint32_t *)(void *)window_pairs[PAIR_SLICES].meet;
    hak__window.slabs = (unsigned char *)window_pairs[PAIR_SLABS].meet;
    atomic_store_relaxed(&hak__window.base, bits_align_up(at, SUPERSLAB_SIZE));
    hak__window.size = size;
    hak__superslab_tables((struct superslab_group *)(void *)window_pairs[PAIR_SLICES].meet);
    return 0;
}

/* A random address in [low, high), a multiple of SUPERSLAB_SIZE above `low`. */
static uintptr_t window_candidate(uint64_t seed, uint64_t low, uint64_t high)
{
    uint64_t places = (high - low) / SUPERSLAB_SIZE;
    return (uintptr_t)(low + (seed % places) * SUPERSLAB_SIZE);
}

/* Where sanitizers allow it. 0: the kernel gives no memory. */
static uintptr_t window_sanitized(uint64_t seed)
{
    void *last;
    size_t page = hak__os_page_size();
    if (hak__os_map(page, page, &last) != 0) {
        return 0;
    }
    hak__os_discard(last, page);
    uint64_t high = bits_align_down((uintptr_t)last, SUPERSLAB_SIZE) - WINDOW_SANITIZED_SIZE;
    return window_candidate(seed, high - WINDOW_SANITIZED_SIZE / 4, high);
}

/* The place and the size of the window at this try. 0: there is none. */
static uintptr_t window_choose(uint32_t try, uint64_t seed, uint64_t *size)
{
    if (hak__os_is_sanitized()) {
        *size = WINDOW_SANITIZED_SIZE;
        return window_sanitized(seed);
    }
    /* Places that hakmem tries for the window before its start fails. The later half of the tries
     * assumes a small address space. */
    if (try >= 16 / 2) { /* for small address spaces */
        *size = UINT64_C(1) << 37;
        /* The range and the size for address spaces of 39 bits, which some aarch64 kernels have.
         * The window is a quarter of the address space, above the addresses that programs usually
         * use. */
        return window_candidate(seed, UINT64_C(0x1000000000), UINT64_C(0x3000000000));
    }
    uint64_t wanted = hak__os_ram_size() * 4;
    wanted = wanted < UINT64_C(1) << 40 ? UINT64_C(1) << 40
             : wanted > WINDOW_SIZE_MAX ? WINDOW_SIZE_MAX
                                        : wanted;
    *size = bits_align_up(wanted, SUPERSLAB_SIZE);
    /* The window starts at a random place in this range. Linux and common run times map nothing
     * between 32 and 80 TiB. Below lie non-PIE programs, brk, and the heaps of Java and Go. Above
     * lie PIE programs (85 TiB) and mmap's own area (from 127 TiB down). */
    return window_candidate(seed, UINT64_C(0x200000000000), UINT64_C(0x500000000000));
}

int hak__window_start(void)
{
    uint64_t seed = hak__os_random_seed(), size = 0;
    hak__window.mark =
        (uintptr_t)(bits_mix(seed) | UINT64_C(1) << 63); /* the top half has no addresses */
    int error = -ENOMEM;
    for (uint32_t try = 0; try < 16; try++) {
        uintptr_t low = window_choose(try, seed, &size);
        if (low != 0) {
            error = window_try(low, size, METADATA_CHUNK_SIZE);
            error = error == 0 ? 0 : window_try(low, size, 0); /* a limit may be near */
        }
        if (error == 0) {
            break;
        }
        seed = seed * UINT64_C(6364136223846793005) +
               UINT64_C(1442695040888963407); /* Knuth's MMIX generator */
    }
    if (HAK_SECURE && error == 0) {
        hak__secure_begin(window_pairs[PAIR_COUNT - 1].meet, hak__window.mark);
        hak__seal_begin();
    }
    return error;
}
