/* SPDX-License-Identifier: MIT */
/* huge_registry.c: see huge_registry.h.
 *
 * The table grows by the number of promised places, not of used ones. A huge block that is out of
 * the table while it is resized keeps its place promised, so that putting it back cannot fail. */
#include "large/huge_registry.h"

#include "base/bits.h"
#include "large/huge.h"
#include "large/huge_cache.h"
#include "os/os.h"
#include "region/mappings.h"
#include "region/superslab.h"

static struct huge *registry_table;
static size_t registry_capacity; /* places, a power of two; 0 before the first huge block */
static size_t registry_mapped;   /* bytes of the table */
static size_t registry_count;    /* huge blocks in the table */
static size_t registry_promised; /* live huge blocks, in the table or being resized */
static size_t registry_small;    /* of these, at most SPAN_SIZE_MAX bytes each */
static size_t registry_bytes;    /* of the huge blocks in the table */

static size_t registry_home(uintptr_t address)
{
    /* Fibonacci hashing (Knuth 6.4): the middle bits of addresses tell mappings apart. */
    uint64_t hash = (uint64_t)(address >> 12) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 20) & (registry_capacity - 1);
}

static void registry_store(struct huge block)
{
    size_t at = registry_home(block.address);
    while (registry_table[at].address != 0) {
        at = (at + 1) & (registry_capacity - 1);
    }
    registry_table[at] = block;
    registry_count++;
    registry_small += block.size <= SPAN_SIZE_MAX;
    registry_bytes += block.size;
}

/* Moves all huge blocks to the table `bigger`. Returns the old table. */
static struct huge *registry_move(struct huge *bigger, size_t capacity)
{
    struct huge *old = registry_table;
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

bool hak__huge_registry_lock(void)
{
    lock_acquire(&hak__huge_lock);
    while (2 * (registry_promised + 1) > registry_capacity) {
        /* Places of the first table. 256 are 6 KiB, two OS pages. Twice: a program with few huge
         * blocks touches one page more. Half: the table grows once more in programs with more than
         * 64 huge blocks. */
        size_t capacity =
            registry_capacity == 0 ? (HAK_TINY_LIMITS ? 4u : 256u) : 2 * registry_capacity;
        lock_release(&hak__huge_lock); /* no system call under the lock */
        size_t bytes = bits_align_up(capacity * sizeof(struct huge), hak__os_page_size());
        void *bigger;
        if (hak__os_map(bytes, hak__os_page_size(), &bigger) != 0) {
            return false;
        }
        lock_acquire(&hak__huge_lock);
        void *unused = bigger;
        size_t unused_bytes = bytes;
        if (capacity > registry_capacity) { /* else another thread was faster */
            unused = registry_move(bigger, capacity);
            unused_bytes = registry_mapped;
            registry_mapped = bytes;
        }
        lock_release(&hak__huge_lock);
        if (unused != NULL) {
            hak__os_discard(unused, unused_bytes);
        }
        lock_acquire(&hak__huge_lock);
    }
    return true;
}

void hak__huge_registry_add(struct huge block)
{
    registry_promised++;
    mappings_add_huge(1);
    registry_store(block);
    hak__superslab_note_huge(registry_bytes);
}

bool hak__huge_registry_insert(struct huge block)
{
    if (!hak__huge_registry_lock()) {
        return false;
    }
    hak__huge_registry_add(block);
    lock_release(&hak__huge_lock);
    return true;
}

void hak__huge_registry_put_back(struct huge block)
{
    registry_store(block);
    hak__superslab_note_huge(registry_bytes);
}

/* The place of the huge block that starts at `address`; SIZE_MAX: there is none. */
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

struct huge hak__huge_registry_find(uintptr_t address)
{
    size_t at = registry_index(address);
    return at == SIZE_MAX ? (struct huge){0} : registry_table[at];
}

struct huge hak__huge_registry_remove(uintptr_t address)
{
    size_t hole = registry_index(address);
    if (hole == SIZE_MAX) {
        return (struct huge){0};
    }
    struct huge block = registry_table[hole];
    size_t mask = registry_capacity - 1;
    for (size_t at = (hole + 1) & mask; registry_table[at].address != 0; at = (at + 1) & mask) {
        /* An entry may fill the hole unless its home lies cyclically in (hole, at]. */
        if (((at - registry_home(registry_table[at].address)) & mask) >= ((at - hole) & mask)) {
            registry_table[hole] = registry_table[at];
            hole = at;
        }
    }
    registry_table[hole] = (struct huge){0};
    registry_count--;
    registry_promised--;
    mappings_remove_huge(1);
    registry_small -= block.size <= SPAN_SIZE_MAX;
    registry_bytes -= block.size;
    hak__superslab_note_huge(registry_bytes);
    return block;
}

struct huge hak__huge_registry_lift(uintptr_t address)
{
    struct huge block = hak__huge_registry_remove(address);
    registry_promised += block.address != 0;
    mappings_add_huge(block.address != 0);
    return block;
}

/* The next huge block of the table from *place on, which becomes the place after it. Address 0:
 * there is no other. */
static struct huge registry_next(size_t *place)
{
    while (registry_count != 0 && *place < registry_capacity) {
        struct huge block = registry_table[(*place)++];
        if (block.address != 0) {
            return block;
        }
    }
    return (struct huge){0};
}

struct huge hak__huge_registry_containing(uintptr_t address)
{
    struct huge block;
    size_t place = 0;
    do {
        block = registry_next(&place);
    } while (block.address != 0 && address - block.address >= block.size);
    return block;
}

struct huge_totals hak__huge_registry_totals(void)
{
    return (struct huge_totals){.live_count = registry_count,
                                .small_count = registry_small,
                                .live_bytes = registry_bytes,
                                .metadata_bytes = registry_mapped};
}

/* --- lists of huge blocks --- */

/* Puts the huge block into the list if it belongs there: an insertion into a sorted array. If that
 * is full, the huge block with the highest address leaves. */
static void huge_list_offer(struct huge_list *list, struct huge_view view)
{
    bool full = list->count == HAK_COUNT_OF(list->views);
    if (view.address <= list->after ||
        (full && view.address >= list->views[HAK_COUNT_OF(list->views) - 1].address)) {
        return;
    }
    uint32_t at = full ? HAK_COUNT_OF(list->views) - 1 : list->count++;
    for (; at != 0 && list->views[at - 1].address > view.address; at--) {
        list->views[at] = list->views[at - 1];
    }
    list->views[at] = view;
}

struct huge_view hak__huge_table(void)
{
    lock_acquire(&hak__huge_lock);
    struct huge_view table = {(uintptr_t)registry_table, registry_mapped, 0, false};
    lock_release(&hak__huge_lock);
    return table;
}

bool hak__huge_list_next(struct huge_list *list)
{
    struct huge block;
    size_t place = 0;
    list->count = 0;
    lock_acquire(&hak__huge_lock);
    uint32_t now = hak__os_clock_ms(); /* under the lock: no range is younger */
    while ((block = registry_next(&place)).address != 0) {
        huge_list_offer(list, (struct huge_view){block.address, block.size, 0, false});
    }
    for (uint32_t i = 0; i < hak__huge_cache.count; i++) {
        const struct kept_range *range = &hak__huge_cache.ranges[i];
        huge_list_offer(list, (struct huge_view){range->block.address, range->block.size,
                                                 now - range->freed_ms, true});
    }
    lock_release(&hak__huge_lock);
    if (list->count == 0) {
        return false;
    }
    list->after = list->views[list->count - 1].address;
    return true;
}
