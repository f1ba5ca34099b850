/* SPDX-License-Identifier: MIT */
/* whale_registry.c: see whale_registry.h.
 *
 * The table grows by the number of promised places, not of used ones. A whale that is out of the
 * table while it is resized keeps its place promised, so that putting it back cannot fail. */
#include "large/whale_registry.h"

#include "base/bits.h"
#include "large/whale.h"
#include "large/whale_ranges.h"
#include "os/os.h"
#include "region/mappings.h"
#include "region/superslab.h"

/* Places of the first table. 256 are 6 KiB, two OS pages. Twice: a program with few whales touches
 * one page more. Half: the table grows once more in programs with more than 64 whales. */
#define REGISTRY_CAPACITY_MIN (HAK_TINY_LIMITS ? 4u : 256u)

static struct whale *registry_table;
static size_t registry_capacity; /* places, a power of two; 0 before the first whale */
static size_t registry_mapped;   /* bytes of the table */
static size_t registry_count;    /* whales in the table */
static size_t registry_promised; /* live whales, in the table or being resized */
static size_t registry_small;    /* of these, at most SPAN_SIZE_MAX bytes each */
static size_t registry_bytes;    /* of the whales in the table */

static size_t registry_home(uintptr_t address)
{
    /* Fibonacci hashing (Knuth 6.4): the middle bits of addresses tell mappings apart. */
    uint64_t hash = (uint64_t)(address >> 12) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 20) & (registry_capacity - 1);
}

static void registry_store(struct whale whale)
{
    size_t at = registry_home(whale.address);
    while (registry_table[at].address != 0) {
        at = (at + 1) & (registry_capacity - 1);
    }
    registry_table[at] = whale;
    registry_count++;
    registry_small += whale.size <= SPAN_SIZE_MAX;
    registry_bytes += whale.size;
}

/* Moves all whales to the table `bigger`. Returns the old table. */
static struct whale *registry_move(struct whale *bigger, size_t capacity)
{
    struct whale *old = registry_table;
    size_t old_capacity = registry_capacity;
    registry_table = bigger;
    registry_capacity = capacity;
    registry_count = 0;
    registry_small = 0;
    registry_bytes = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].address != 0) {
            registry_store(old[i]);
        }
    }
    return old;
}

bool hak__whale_registry_lock(void)
{
    lock_acquire(&hak__whale_lock);
    while (2 * (registry_promised + 1) > registry_capacity) {
        size_t capacity = registry_capacity == 0 ? REGISTRY_CAPACITY_MIN : 2 * registry_capacity;
        lock_release(&hak__whale_lock); /* no system call under the lock */
        size_t bytes = bits_align_up(capacity * sizeof(struct whale), hak__os_page_size());
        void *bigger;
        if (hak__os_map(bytes, hak__os_page_size(), &bigger) != 0) {
            return false;
        }
        lock_acquire(&hak__whale_lock);
        void *unused = bigger;
        size_t unused_bytes = bytes;
        if (capacity > registry_capacity) { /* else another thread was faster */
            unused = registry_move(bigger, capacity);
            unused_bytes = registry_mapped;
            registry_mapped = bytes;
        }
        lock_release(&hak__whale_lock);
        if (unused != NULL) {
            hak__os_discard(unused, unused_bytes);
        }
        lock_acquire(&hak__whale_lock);
    }
    return true;
}

void hak__whale_registry_add(struct whale whale)
{
    registry_promised++;
    mappings_add_whales(1);
    registry_store(whale);
    hak__superslab_note_whales(registry_bytes);
}

bool hak__whale_registry_insert(struct whale whale)
{
    if (!hak__whale_registry_lock()) {
        return false;
    }
    hak__whale_registry_add(whale);
    lock_release(&hak__whale_lock);
    return true;
}

void hak__whale_registry_put_back(struct whale whale)
{
    registry_store(whale);
    hak__superslab_note_whales(registry_bytes);
}

/* The place of the whale that starts at `address`; SIZE_MAX: there is none. */
static size_t registry_index(uintptr_t address)
{
    if (registry_count == 0 || address == 0) {
        return SIZE_MAX;
    }
    for (size_t at = registry_home(address); registry_table[at].address != 0;
         at = (at + 1) & (registry_capacity - 1)) {
        if (registry_table[at].address == address) {
            return at;
        }
    }
    return SIZE_MAX;
}

struct whale hak__whale_registry_find(uintptr_t address)
{
    size_t at = registry_index(address);
    return at == SIZE_MAX ? (struct whale){0} : registry_table[at];
}

struct whale hak__whale_registry_remove(uintptr_t address)
{
    size_t hole = registry_index(address);
    if (hole == SIZE_MAX) {
        return (struct whale){0};
    }
    struct whale whale = registry_table[hole];
    size_t mask = registry_capacity - 1;
    for (size_t at = (hole + 1) & mask; registry_table[at].address != 0; at = (at + 1) & mask) {
        /* An entry may fill the hole unless its home lies cyclically in (hole, at]. */
        if (((at - registry_home(registry_table[at].address)) & mask) >= ((at - hole) & mask)) {
            registry_table[hole] = registry_table[at];
            hole = at;
        }
    }
    registry_table[hole] = (struct whale){0};
    registry_count--;
    registry_promised--;
    mappings_remove_whales(1);
    registry_small -= whale.size <= SPAN_SIZE_MAX;
    registry_bytes -= whale.size;
    hak__superslab_note_whales(registry_bytes);
    return whale;
}

struct whale hak__whale_registry_lift(uintptr_t address)
{
    struct whale whale = hak__whale_registry_remove(address);
    registry_promised += whale.address != 0;
    mappings_add_whales(whale.address != 0);
    return whale;
}

/* The next whale of the table from *place on, which becomes the place after it. Address 0: there is
 * no other. */
static struct whale registry_next(size_t *place)
{
    while (registry_count != 0 && *place < registry_capacity) {
        struct whale whale = registry_table[(*place)++];
        if (whale.address != 0) {
            return whale;
        }
    }
    return (struct whale){0};
}

struct whale hak__whale_registry_containing(uintptr_t address)
{
    struct whale whale;
    size_t place = 0;
    do {
        whale = registry_next(&place);
    } while (whale.address != 0 && address - whale.address >= whale.size);
    return whale;
}

struct whale_totals hak__whale_registry_totals(void)
{
    return (struct whale_totals){.live_count = registry_count,
                                 .small_count = registry_small,
                                 .live_bytes = registry_bytes,
                                 .metadata_bytes = registry_mapped};
}

/* --- lists of whales --- */

/* Puts the whale into the list if it belongs there: an insertion into a sorted array. If that is
 * full, the whale with the highest address leaves. */
static void whale_list_offer(struct whale_list *list, struct whale_view view)
{
    bool full = list->count == WHALE_LIST_MAX;
    if (view.address <= list->after ||
        (full && view.address >= list->views[WHALE_LIST_MAX - 1].address)) {
        return;
    }
    uint32_t at = full ? WHALE_LIST_MAX - 1 : list->count++;
    for (; at != 0 && list->views[at - 1].address > view.address; at--) {
        list->views[at] = list->views[at - 1];
    }
    list->views[at] = view;
}

struct whale_tables hak__whale_tables(void)
{
    lock_acquire(&hak__whale_lock);
    struct whale_tables tables = {{(uintptr_t)registry_table, registry_mapped, 0, false},
                                  {(uintptr_t)hak__ranges.entries, hak__ranges.mapped, 0, false}};
    lock_release(&hak__whale_lock);
    return tables;
}

bool hak__whale_list_next(struct whale_list *list)
{
    struct whale whale;
    size_t place = 0;
    list->count = 0;
    lock_acquire(&hak__whale_lock);
    uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
    while ((whale = registry_next(&place)).address != 0) {
        whale_list_offer(list, (struct whale_view){whale.address, whale.size, 0, false});
    }
    for (uint32_t i = ranges_oldest(); i != 0; i = hak__ranges.entries[i].age.after) {
        const struct whale_range *range = &hak__ranges.entries[i];
        whale_list_offer(list, (struct whale_view){range->whale.address, range->whale.size,
                                                   now - range->freed_ms, true});
    }
    lock_release(&hak__whale_lock);
    if (list->count == 0) {
        return false;
    }
    list->after = list->views[list->count - 1].address;
    return true;
}
