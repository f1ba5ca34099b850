/* SPDX-License-Identifier: MIT */
/* superslab_parts.c: makes parts, gives them addresses, and adds their sums up. See superslab.h. */
#include "base/bits.h"
#include "os/os.h"
#include "region/superslab.h"
#include "region/window.h"

struct superslab_part hak__superslab_first = {.lock = LOCK_INITIAL(LOCK_RANK_REGION)};
struct superslab_part *hak__superslab_parts[PARTS_MAX] = {&hak__superslab_first};

void hak__superslab_tables(struct superslab_group *groups_end)
{
    hak__superslabs.groups_end = groups_end;
}

/* Tells the sum of all parts what a part's has become, if that is much. */
static bool part_tell(size_t *all, size_t *told, size_t now)
{
    bool much = now - *told + PART_UNTOLD > 2 * (size_t)PART_UNTOLD;
    if (much) {
        atomic_add_relaxed(all, now - *told); /* it wraps if the part's sum fell */
        *told = now;
    }
    return much;
}

bool hak__superslab_add_free(struct superslab_part *part, size_t free, size_t dirty)
{
    struct superslab_table *table = &hak__superslabs;
    atomic_store_relaxed(&part->free_slices, part->free_slices + free);
    atomic_store_relaxed(&part->dirty_free_slices, part->dirty_free_slices + dirty);
    if (HAK_LIKELY(part->groups == NULL)) { /* there is one part */
        return true;
    }
    bool told = part_tell(&table->free_slices, &part->free_told, part->free_slices);
    return part_tell(&table->dirty_free_slices, &part->dirty_free_told, part->dirty_free_slices) ||
           told;
}

/* Bytes of a part with a list for all groups that it can have. */
static size_t part_bytes(void)
{
    size_t groups = hak__window.size / SUPERSLAB_SIZE / SUPERSLAB_GROUP + 1;
    size_t bytes = sizeof(struct superslab_part) + groups * sizeof(uint32_t);
    return bits_align_up(bytes, hak__os_page_size());
}

/* Maps a part. NULL: no memory. Under GROWTH. */
static struct superslab_part *part_map(void)
{
    void *place;
    if (hak__os_map(part_bytes(), hak__os_page_size(), &place) != 0) {
        return NULL;
    }
    struct superslab_part *part = place;
    part->groups = (uint32_t *)(void *)(part + 1);
    return part;
}

size_t hak__superslab_part_bytes(uint32_t number, uintptr_t *place)
{
    const uint32_t *groups = atomic_load_relaxed(&hak__superslab_parts[number]->groups);
    *place = (uintptr_t)groups - sizeof(struct superslab_part);
    return groups == NULL ? 0 : part_bytes();
}

/* Part 0 has had all groups; it keeps those so far. False: no memory. Under GROWTH. */
static bool part_list_first(void)
{
    struct superslab_table *table = &hak__superslabs;
    struct superslab_part *part = &hak__superslab_first, *list = NULL;
    size_t slices = bits_align_up(part->frontier, GROUP_SLICES);
    if (slices == 0 || hak__window_grow_tables(slices) == 0) {
        list = part_map();
    }
    if (list == NULL || !lock_acquire_soon(&part->lock)) {
        if (list != NULL) {
            hak__os_discard(list, part_bytes());
        }
        return false;
    }
    size_t count = slices / GROUP_SLICES;
    for (uint32_t i = 0; i < count; i++) {
        list->groups[i] = i;
        superslab_group(i)->number = i;
    }
    part->groups_count = (uint32_t)count;
    table->groups_count = (uint32_t)count;
    part->free_told = part->free_slices;
    part->dirty_free_told = part->dirty_free_slices;
    atomic_store_relaxed(&table->free_slices, part->free_slices);
    atomic_store_relaxed(&table->dirty_free_slices, part->dirty_free_slices);
    atomic_store_relaxed(&part->groups, list->groups); /* reports read it without a lock */
    lock_release(&part->lock);
    return true;
}

/* Makes one more part. Returns its number, or that of part 0 if there is no memory. */
static uint32_t part_make(uint32_t node)
{
    struct superslab_table *table = &hak__superslabs;
    uint32_t number = 0;
    uint64_t signals = hak__lock_block_signals();
    lock_acquire(&hak__growth_lock);
    struct superslab_part *part = NULL;
    if (table->parts_count < PARTS_MAX &&
        (hak__superslab_first.groups != NULL || part_list_first())) {
        part = part_map();
    }
    if (part != NULL) {
        number = table->parts_count;
        part->lock = (struct lock)LOCK_INITIAL(LOCK_RANK_REGION);
        part->number = (uint16_t)number;
        part->node = (uint16_t)node;
        hak__superslab_parts[number] = part;
        /* release: pairs with the acquire in superslab_parts */
        atomic_store_release(&table->parts_count, number + 1);
    }
    lock_release(&hak__growth_lock);
    hak__os_restore_signals(signals);
    return number;
}

/* True: one more arena may have the part. */
static bool part_has_room(const struct superslab_part *part)
{
    return HAK_SECURE || part->arenas < (part->number == 0 ? PART_ARENAS_LONE : PART_ARENAS);
}

uint32_t hak__superslab_part_for(uint32_t node)
{
    struct superslab_part *best = NULL;
    for (uint32_t i = 0; i < superslab_parts() && (best == NULL || !part_has_room(best)); i++) {
        struct superslab_part *part = hak__superslab_parts[i];
        if (part->node == node &&
            (best == NULL || part_has_room(part) || part->arenas < best->arenas)) {
            best = part;
        }
    }
    if ((best == NULL || !part_has_room(best)) && superslab_parts() < PARTS_MAX) {
        uint32_t made = part_make(node);
        best = made != 0 ? hak__superslab_parts[made] : best;
    }
    best = best == NULL ? &hak__superslab_first : best;
    best->arenas++;
    return best->number;
}

uint32_t hak__superslab_part_near(uint32_t node)
{
    uint32_t part = superslab_parts() - 1;
    while (part != 0 && hak__superslab_parts[part]->node != node) {
        part--;
    }
    return part;
}

void hak__superslab_inherit(void)
{
    hak__superslabs.inherited_slices = hak__superslabs.claimed_slices;
    atomic_store_relaxed(&hak__huge_pages_begun, NULL); /* the parent's */
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        struct superslab_part *part = hak__superslab_parts[i];
        part->arenas = 0;
        part->inherited_slices = part->claimed_slices;
    }
}

size_t hak__superslab_end(const struct superslab_part *part)
{
    return part->groups_count == 0
               ? 0
               : (part->groups[part->groups_count - 1] + (size_t)1) * GROUP_SLICES;
}

bool hak__superslab_add_group(struct superslab_part *part)
{
    struct superslab_table *table = &hak__superslabs;
    uint32_t group = table->groups_count;
    size_t end = (size_t)(group + 1) * SUPERSLAB_GROUP;
    if (end * SUPERSLAB_SIZE > hak__window.size ||
        hak__window_grow_tables((group + (size_t)1) * GROUP_SLICES) != 0 ||
        !lock_acquire_soon(&part->lock)) {
        return false;
    }
    for (size_t index = end - SUPERSLAB_GROUP; index < end; index++) {
        atomic_store_relaxed(&superslab_at(index)->part, part->number);
    }
    superslab_group(group)->number = part->groups_count;
    part->groups[part->groups_count++] = group;
    table->groups_count = group + 1;
    lock_release(&part->lock);
    return true;
}
