/* SPDX-License-Identifier: MIT */
/* superslab_index.c: the tree of maxima that superslab_index.h describes. A node is 64 bytes. */
#include "region/superslab_index.h"

#include "base/bits.h"
#include "region/superslab.h"

/* The highest level. One more would save comparisons from 512 GiB of heap on. One less would
 * compare a byte for each 128 MiB of a large heap. */
#define INDEX_LEVEL_TOP 2u

/* Nodes of the top level lie in groups 1 to 63, which exist when the level is used. */
HAK_STATIC_ASSERT(WINDOW_SIZE_MAX / SUPERSLAB_SIZE >> 6 * (INDEX_LEVEL_TOP + 1) < SUPERSLAB_GROUP,
                  "no node of level 1 lies there");

/* A part's number of a superslab. */
static size_t index_number(const struct superslab_part *part, size_t index)
{
    size_t group = index / SUPERSLAB_GROUP;
    group = part->groups == NULL ? group : superslab_group(group)->number;
    return group * SUPERSLAB_GROUP + index % SUPERSLAB_GROUP;
}

/* The group that the part's group `number` is. */
static size_t index_group(const struct superslab_part *part, size_t number)
{
    return part->groups == NULL ? number : part->groups[number];
}

/* The first byte of a node. part->index_level is the highest level in use; if it is not the top, it
 * has one node. */
static unsigned char *index_node(const struct superslab_part *part, enum superslab_index kind,
                                 uint32_t level, size_t node)
{
    if (level == 0) {
        return superslab_group(index_group(part, node))->index[kind];
    }
    size_t number = level == INDEX_LEVEL_TOP ? node + 1 : node * SUPERSLAB_GROUP;
    return superslab_group(index_group(part, number))->upper[kind];
}

/* The byte with the number `at` of a level. */
static unsigned char *index_entry(const struct superslab_part *part, enum superslab_index kind,
                                  uint32_t level, size_t at)
{
    return index_node(part, kind, level, at / SUPERSLAB_GROUP) + at % SUPERSLAB_GROUP;
}

/* The position of the first byte of a node, from `from` on, that is at least `least`;
 * SUPERSLAB_GROUP: there is none. It compares eight bytes at a time: it sets bit 7 of each and
 * subtracts `least`. Bit 7 stays set where the byte is large enough. No byte is above 127, so none
 * borrows from the next. */
static size_t index_scan(const unsigned char *node, uint32_t least, size_t from)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t wanted = tops << from % 8 * 8;
    for (size_t i = from & ~(size_t)7; i < SUPERSLAB_GROUP; i += 8) {
        uint64_t word;
        __builtin_memcpy(&word, node + i, sizeof word);
        uint64_t enough = ((word | tops) - least * ones) & wanted;
        if (enough != 0) {
            return i + bits_lowest(enough) / 8;
        }
        wanted = tops;
    }
    return SUPERSLAB_GROUP;
}

static uint32_t index_maximum(const unsigned char *node)
{
    unsigned char maximum = 0;
    for (uint32_t i = 0; i < SUPERSLAB_GROUP; i++) {
        maximum = node[i] > maximum ? node[i] : maximum;
    }
    return maximum;
}

/* Continues a search that found nothing before *at, which is the end of a node. At the top level
 * the search goes on in the next node. At a lower level it climbs to the byte that is the next
 * node's maximum. If that byte is the first of its own node, it climbs again. False: there is no
 * further node. */
static bool index_go_on(const struct superslab_part *part, uint32_t *level, size_t *at)
{
    if (*level == INDEX_LEVEL_TOP) {
        return *at << 6 * INDEX_LEVEL_TOP < part->count;
    }
    do {
        if (*level == part->index_level) {
            return false;
        }
        *at /= SUPERSLAB_GROUP;
        *level += 1;
    } while (*level != INDEX_LEVEL_TOP && *at % SUPERSLAB_GROUP == 0);
    return true;
}

size_t hak__superslab_index_find(const struct superslab_part *part, enum superslab_index kind,
                                 uint32_t least, size_t from)
{
    size_t at = from == 0 || from == SIZE_MAX ? from : index_number(part, from);
    if (at >= part->count) {
        return SLICE_NONE;
    }
    for (uint32_t level = at == 0 ? part->index_level : 0;;) {
        size_t node = at / SUPERSLAB_GROUP;
        size_t found = index_scan(index_node(part, kind, level, node), least, at % SUPERSLAB_GROUP);
        if (found == SUPERSLAB_GROUP) {
            at = (node + 1) * SUPERSLAB_GROUP;
            if (!index_go_on(part, &level, &at)) {
                return SLICE_NONE;
            }
            continue;
        }
        at = node * SUPERSLAB_GROUP + found;
        if (level == 0) {
            return index_group(part, node) * SUPERSLAB_GROUP + found;
        }
        at *= SUPERSLAB_GROUP;
        level--;
    }
}

void hak__superslab_index_set(enum superslab_index kind, size_t index, uint32_t value)
{
    const struct superslab_part *part = superslab_part_of(index);
    size_t at = index_number(part, index);
    for (uint32_t level = 0;; level++) {
        unsigned char *entry = index_entry(part, kind, level, at);
        uint32_t before = *entry;
        *entry = (unsigned char)value;
        if (before == value || level == part->index_level) {
            return;
        }
        size_t node = at / SUPERSLAB_GROUP;
        uint32_t maximum = *index_entry(part, kind, level + 1, node);
        if (value < before) {
            if (before < maximum) {
                return;
            }
            value = index_maximum(index_node(part, kind, level, node));
        } else if (value <= maximum) {
            return;
        }
        at = node;
    }
}

void hak__superslab_index_reach(size_t index)
{
    struct superslab_part *part = superslab_part_of(index);
    size_t at = index_number(part, index);
    while (part->index_level != INDEX_LEVEL_TOP && at >> 6 * (part->index_level + 1) != 0) {
        for (uint32_t kind = 0; kind < INDEX_KINDS; kind++) {
            const unsigned char *below = index_node(part, kind, part->index_level, 0);
            *index_entry(part, kind, part->index_level + 1, 0) =
                (unsigned char)index_maximum(below);
        }
        part->index_level++;
    }
    part->count = at >= part->count ? at + 1 : part->count;
    if (index >= hak__superslabs.count) {
        atomic_store_relaxed(&hak__superslabs.count,
                             index + 1); /* reports read it without the lock */
    }
}

static uint32_t index_dirty_value(const struct superslab *superslab, uint32_t free_run)
{
    uint64_t dirty = superslab->free & superslab->dirty;
    return dirty == superslab->free ? free_run : bits_longest_run(dirty);
}

void hak__superslab_index_maps(size_t index)
{
    const struct superslab *superslab = superslab_at(index);
    uint32_t free_run = bits_longest_run(superslab->free);
    hak__superslab_index_set(INDEX_FREE, index, free_run);
    hak__superslab_index_set(INDEX_DIRTY, index, index_dirty_value(superslab, free_run));
}

void hak__superslab_index_grown(size_t index, uint64_t mask)
{
    const struct superslab *superslab = superslab_at(index);
    struct superslab_group *group = superslab_group(index / SUPERSLAB_GROUP);
    HAK_ASSERT((mask & ~(superslab->free & superslab->dirty)) == 0);
    uint32_t run = bits_run_around(superslab->free, mask);
    if (run > group->index[INDEX_FREE][index % SUPERSLAB_GROUP]) {
        hak__superslab_index_set(INDEX_FREE, index, run);
    }
    run = bits_run_around(superslab->free & superslab->dirty, mask);
    if (run > group->index[INDEX_DIRTY][index % SUPERSLAB_GROUP]) {
        hak__superslab_index_set(INDEX_DIRTY, index, run);
    }
}

static bool index_superslab_is_right(size_t index)
{
    const struct superslab *superslab = superslab_at(index);
    const struct superslab_group *group = superslab_group(index / SUPERSLAB_GROUP);
    uint32_t free_run = bits_longest_run(superslab->free), at = index % SUPERSLAB_GROUP;
    return group->index[INDEX_FREE][at] == free_run &&
           group->index[INDEX_DIRTY][at] == index_dirty_value(superslab, free_run) &&
           group->index[INDEX_RELEASED][at] == (superslab->state == SUPERSLAB_RELEASED);
}

static bool index_node_is_right(const struct superslab_part *part, uint32_t level, size_t node)
{
    bool right = true;
    for (uint32_t kind = 0; kind < INDEX_KINDS; kind++) {
        right &= *index_entry(part, kind, level + 1, node) ==
                 index_maximum(index_node(part, kind, level, node));
    }
    return right;
}

bool hak__superslab_index_is_right(const struct superslab_part *part)
{
    size_t count = part->count;
    bool right = true;
    for (size_t at = 0; at < count; at++) {
        right &= index_superslab_is_right(
            index_group(part, at / SUPERSLAB_GROUP) * SUPERSLAB_GROUP + at % SUPERSLAB_GROUP);
    }
    for (uint32_t level = 0; level < part->index_level; level++) {
        count = (count + SUPERSLAB_GROUP - 1) / SUPERSLAB_GROUP;
        for (size_t node = 0; node < count; node++) {
            right &= index_node_is_right(part, level, node);
        }
    }
    return right;
}
