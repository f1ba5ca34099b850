/* SPDX-License-Identifier: MIT */
/* huge_ranges.c: see huge_ranges.h. */
#include "large/huge_ranges.h"

#include "os/os.h"
#include "region/mappings.h"

/* Entries of the first table, which is static. Twice: data that every process touches lies on more
 * pages. Half: programs with few freed huge blocks map a table. */
#define RANGES_CAPACITY_MIN (HAK_TINY_LIMITS ? 2 * HUGE_PARTS_MAX : 32u)
/* Lists by size, four for each power of two. Twice: a search finds a range that fits more closely,
 * and looks at more empty lists. Half: it takes larger ranges than needed more often. */
#define RANGE_LISTS (4u * 48u)
/* Ranges of a list that a search looks at while none is suitable, and then. Twice: a long list may
 * take twice the time. Half: of many ranges of about one size, a request finds none that fits, or
 * gets one that fits less well. */
#define RANGE_LOOKS 256u
#define RANGE_LOOKS_THEN 16u
HAK_STATIC_ASSERT((RANGES_CAPACITY_MIN & (RANGES_CAPACITY_MIN - 1)) == 0, "hashes are masked");

static struct huge_range ranges_first_table[RANGES_CAPACITY_MIN];
static uint32_t ranges_lists[RANGE_LISTS];           /* the first of each list by size */
static uint64_t ranges_map[(RANGE_LISTS + 63) / 64]; /* lists that have a range */
struct range_table hak__ranges = {
    .entries = ranges_first_table, .capacity = RANGES_CAPACITY_MIN, .used = 1};

static uint32_t ranges_hash(uintptr_t address)
{
    return (uint32_t)(bits_mix(address >> 12) >> 32) & (hak__ranges.capacity - 1);
}

/* The list for ranges of `size` bytes. Each range of a later list is larger. */
static uint32_t ranges_list_of(size_t size)
{
    uint32_t log2 = bits_log2(size | 4);
    uint32_t list = log2 * 4 + (uint32_t)(size >> (log2 - 2)) % 4;
    return list < RANGE_LISTS ? list : RANGE_LISTS - 1;
}

/* The first list from `list` on that has a range; RANGE_LISTS: there is none. */
static uint32_t ranges_list_from(uint32_t list)
{
    for (; list < RANGE_LISTS; list = (list | 63) + 1) {
        uint64_t lists = ranges_map[list / 64] >> list % 64;
        if (lists != 0) {
            return list + bits_lowest(lists);
        }
    }
    return RANGE_LISTS;
}

/* The last list before `list` that has a range; RANGE_LISTS: there is none. */
static uint32_t ranges_list_before(uint32_t list)
{
    while (list-- != 0) {
        uint64_t lists = ranges_map[list / 64] << (63 - list % 64);
        if (lists != 0) {
            return list - (63 - bits_log2(lists));
        }
        list &= ~63u;
    }
    return RANGE_LISTS;
}

static void ranges_chain(uint32_t index)
{
    struct huge_range *range = &hak__ranges.entries[index];
    uint32_t *starts = &hak__ranges.entries[ranges_hash(range->block.address)].chain_of_starts;
    uint32_t *ends = &hak__ranges.entries[ranges_hash(huge_end(range->block))].chain_of_ends;
    range->next_start = *starts;
    *starts = index;
    range->next_end = *ends;
    *ends = index;
}

static void ranges_unchain(uint32_t index)
{
    const struct huge_range *range = &hak__ranges.entries[index];
    uint32_t *link = &hak__ranges.entries[ranges_hash(range->block.address)].chain_of_starts;
    while (*link != index) {
        link = &hak__ranges.entries[*link].next_start;
    }
    *link = range->next_start;
    link = &hak__ranges.entries[ranges_hash(huge_end(range->block))].chain_of_ends;
    while (*link != index) {
        link = &hak__ranges.entries[*link].next_end;
    }
    *link = range->next_end;
}

struct huge_range hak__ranges_remove(uint32_t index)
{
    struct huge_range range = hak__ranges.entries[index];
    uint32_t list = ranges_list_of(range.block.size);
    ranges_unchain(index);
    hak__ranges.entries[range.age.before].age.after = range.age.after;
    hak__ranges.entries[range.age.after].age.before = range.age.before;
    hak__ranges.entries[range.size.after].size.before =
        range.size.before; /* entry 0's is not read */
    if (range.size.before != 0) {
        hak__ranges.entries[range.size.before].size.after = range.size.after;
    } else {
        ranges_lists[list] = range.size.after;
        ranges_map[list / 64] &= ~((uint64_t)(range.size.after == 0) << list % 64);
    }
    hak__ranges.entries[index].size.after = hak__ranges.unused;
    hak__ranges.unused = index;
    hak__ranges.size -= range.block.size;
    hak__ranges.resident -= range.resident;
    hak__ranges.units -= range_units(&range);
    atomic_store_relaxed(&hak__ranges.count, hak__ranges.count - 1);
    mappings_remove_huge(1);
    return range;
}

void hak__ranges_add(struct huge_range range, uint32_t younger)
{
    uint32_t index = hak__ranges.unused;
    if (index != 0) {
        hak__ranges.unused = hak__ranges.entries[index].size.after;
    } else {
        index = hak__ranges.used++;
    }
    HAK_ASSERT(index < hak__ranges.capacity);
    struct huge_range *place = &hak__ranges.entries[index];
    uint32_t list = ranges_list_of(range.block.size);
    range.chain_of_starts = place->chain_of_starts;
    range.chain_of_ends = place->chain_of_ends;
    range.age = (struct range_links){hak__ranges.entries[younger].age.before, younger};
    range.size = (struct range_links){0, ranges_lists[list]};
    *place = range;
    hak__ranges.entries[range.age.before].age.after = index;
    hak__ranges.entries[younger].age.before = index;
    hak__ranges.entries[range.size.after].size.before = index;
    ranges_lists[list] = index;
    ranges_map[list / 64] |= UINT64_C(1) << list % 64;
    ranges_chain(index);
    atomic_store_relaxed(&hak__ranges.count, hak__ranges.count + 1);
    mappings_add_huge(1);
    hak__ranges.size += range.block.size;
    hak__ranges.resident += range.resident;
    hak__ranges.units += range_units(&range);
}

/* Moves the ranges to a larger table. */
static void ranges_move(struct huge_range *bigger, uint32_t capacity)
{
    for (uint32_t i = 0; i < hak__ranges.used; i++) {
        bigger[i] = hak__ranges.entries[i];
        bigger[i].chain_of_starts = bigger[i].chain_of_ends = 0;
    }
    hak__ranges.entries = bigger;
    hak__ranges.capacity = capacity;
    for (uint32_t i = ranges_oldest(); i != 0; i = bigger[i].age.after) {
        ranges_chain(i);
    }
}

bool hak__ranges_reserve(uint32_t count)
{
    while (hak__ranges.count + 1 + count > hak__ranges.capacity) {
        uint32_t capacity = 2 * hak__ranges.capacity;
        size_t bytes = bits_align_up(capacity * sizeof *hak__ranges.entries, hak__os_page_size());
        lock_release(&hak__huge_lock);
        void *bigger;
        bool mapped = hak__os_map(bytes, hak__os_page_size(), &bigger) == 0;
        lock_acquire(&hak__huge_lock);
        if (!mapped) {
            return hak__ranges.count + 1 + count <= hak__ranges.capacity;
        }
        void *unused = bigger;
        size_t unused_bytes = bytes;
        if (capacity > hak__ranges.capacity) { /* else another thread was faster */
            unused = hak__ranges.entries == ranges_first_table ? NULL : hak__ranges.entries;
            unused_bytes = hak__ranges.mapped;
            ranges_move(bigger, capacity);
            hak__ranges.mapped = bytes;
        }
        lock_release(&hak__huge_lock);
        if (unused != NULL) {
            hak__os_discard(unused, unused_bytes);
        }
        lock_acquire(&hak__huge_lock);
    }
    return true;
}

uint32_t hak__ranges_starting_at(uintptr_t address, uint64_t origin)
{
    uint32_t i = hak__ranges.entries[ranges_hash(address)].chain_of_starts;
    while (i != 0 && (hak__ranges.entries[i].block.address != address ||
                      hak__ranges.entries[i].block.origin != origin)) {
        i = hak__ranges.entries[i].next_start;
    }
    return i;
}

uint32_t hak__ranges_ending_at(uintptr_t address, uint64_t origin)
{
    uint32_t i = hak__ranges.entries[ranges_hash(address)].chain_of_ends;
    while (i != 0 && (huge_end(hak__ranges.entries[i].block) != address ||
                      hak__ranges.entries[i].block.origin != origin)) {
        i = hak__ranges.entries[i].next_end;
    }
    return i;
}

uint32_t hak__ranges_search(size_t size, bool larger, range_judge *judge,
                            const struct range_wish *wish)
{
    uint32_t best = 0, list = ranges_list_of(size) + !larger;
    while (best == 0 &&
           (list = larger ? ranges_list_from(list) : ranges_list_before(list)) != RANGE_LISTS) {
        uint32_t looks = RANGE_LOOKS, i = ranges_lists[list];
        for (; i != 0 && looks-- != 0; i = hak__ranges.entries[i].size.after) {
            if (judge(&hak__ranges.entries[i], best == 0 ? NULL : &hak__ranges.entries[best],
                      wish)) {
                best = i;
                looks = looks < RANGE_LOOKS_THEN ? looks : RANGE_LOOKS_THEN;
            }
        }
        list += larger;
    }
    return best;
}
