/* SPDX-License-Identifier: MIT */
/* superslab_index.c: the tree of maxima that superslab_index.h describes. A node is 64 bytes. */
#include "region/superslab_index.h"

#include "base/bits.h"
#include "region/numa.h"
#include "region/superslab.h"

/* Bytes of a node. Fixed: the code shifts by 6 bits a level (superslab.h, SUPERSLAB_GROUP). */
#define INDEX_FANOUT SUPERSLAB_GROUP
/* The highest level. One more would save comparisons from 512 GiB of heap on. One less would
 * compare a byte for each 128 MiB of a large heap. */
#define INDEX_LEVEL_TOP 2u

/* Nodes of the top level lie in groups 1 to 63, which exist when the level is used. */
HAK_STATIC_ASSERT(WINDOW_SIZE_MAX / SUPERSLAB_SIZE >> 6 * (INDEX_LEVEL_TOP + 1) < INDEX_FANOUT,
                  "no node of level 1 lies there");

static uint32_t index_level; /* the highest level in use; if it is not the top, it has one node */

/* The first byte of a node. */
static unsigned char *index_node(enum superslab_index kind, uint32_t level, size_t node)
{
    if (level == 0) {
        return superslab_group(node)->index[kind];
    }
    return superslab_group(level == INDEX_LEVEL_TOP ? node + 1 : node * INDEX_FANOUT)->upper[kind];
}

/* The byte with the number `at` of a level. */
static unsigned char *index_entry(enum superslab_index kind, uint32_t level, size_t at)
{
    return index_node(kind, level, at / INDEX_FANOUT) + at % INDEX_FANOUT;
}

/* Bit 7 of byte i is bit i of `bits`. */
static uint64_t index_spread(uint64_t bits)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t spread = (bits & 0xff) * ones & UINT64_C(0x8040201008040201);
    return (spread + 0x7f * ones) & ones << 7;
}

/* The position of the first byte of a node, from `from` on, that is at least `least` and whose bit
 * in `among` is set; INDEX_FANOUT: there is none. It compares eight bytes at a time: it sets bit 7
 * of each and subtracts `least`. Bit 7 stays set where the byte is large enough. No byte is above
 * 127, so none borrows from the next. */
static size_t index_scan(const unsigned char *node, uint32_t least, size_t from, uint64_t among)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t wanted = tops << from % 8 * 8;
    for (size_t i = from & ~(size_t)7; i < INDEX_FANOUT; i += 8) {
        uint64_t word;
        __builtin_memcpy(&word, node + i, sizeof word);
        uint64_t enough = ((word | tops) - least * ones) & wanted;
        enough &= among == ~UINT64_C(0) ? tops : index_spread(among >> i);
        if (enough != 0) {
            return i + bits_lowest(enough) / 8;
        }
        wanted = tops;
    }
    return INDEX_FANOUT;
}

static uint32_t index_maximum(const unsigned char *node)
{
    unsigned char maximum = 0;
    for (uint32_t i = 0; i < INDEX_FANOUT; i++) {
        maximum = node[i] > maximum ? node[i] : maximum;
    }
    return maximum;
}

/* Continues a search that found nothing before *at, which is the end of a node. At the top level
 * the search goes on in the next node. At a lower level it climbs to the byte that is the next
 * node's maximum. If that byte is the first of its own node, it climbs again. False: there is no
 * further node. */
static bool index_go_on(uint32_t *level, size_t *at)
{
    if (*level == INDEX_LEVEL_TOP) {
        return *at << 6 * INDEX_LEVEL_TOP < hak__superslabs.count;
    }
    do {
        if (*level == index_level) {
            return false;
        }
        *at /= INDEX_FANOUT;
        *level += 1;
    } while (*level != INDEX_LEVEL_TOP && *at % INDEX_FANOUT == 0);
    return true;
}

/* The entries of a node that are, or lie above, superslabs of these groups. At level 2 all may. */
static uint64_t index_among(const uint64_t *groups, uint32_t level, size_t node)
{
    if (HAK_LIKELY(groups == NULL) || level > 1) {
        return ~UINT64_C(0);
    }
    return level == 1 ? atomic_load_relaxed(&groups[node * NUMA_NODES_MAX])
                      : UINT64_C(0) - numa_has_group(groups, node);
}

size_t hak__superslab_index_find_in(enum superslab_index kind, uint32_t least, size_t from,
                                    const uint64_t *groups)
{
    if (from >= hak__superslabs.count) {
        return INDEX_NONE;
    }
    uint32_t level = from == 0 ? index_level : 0;
    for (size_t at = from;;) {
        size_t node = at / INDEX_FANOUT;
        size_t found = index_scan(index_node(kind, level, node), least, at % INDEX_FANOUT,
                                  index_among(groups, level, node));
        if (found == INDEX_FANOUT) {
            at = (node + 1) * INDEX_FANOUT;
            if (!index_go_on(&level, &at)) {
                return INDEX_NONE;
            }
            continue;
        }
        at = node * INDEX_FANOUT + found;
        if (level == 0) {
            return at;
        }
        at *= INDEX_FANOUT;
        level--;
    }
}

void hak__superslab_index_set(enum superslab_index kind, size_t index, uint32_t value)
{
    size_t at = index;
    for (uint32_t level = 0;; level++) {
        unsigned char *entry = index_entry(kind, level, at);
        uint32_t before = *entry;
        *entry = (unsigned char)value;
        if (before == value || level == index_level) {
            return;
        }
        size_t node = at / INDEX_FANOUT;
        uint32_t maximum = *index_entry(kind, level + 1, node);
        if (value < before) {
            if (before < maximum) {
                return;
            }
            value = index_maximum(index_node(kind, level, node));
        } else if (value <= maximum) {
            return;
        }
        at = node;
    }
}

void hak__superslab_index_reach(size_t index)
{
    while (index_level != INDEX_LEVEL_TOP && index >> 6 * (index_level + 1) != 0) {
        for (uint32_t kind = 0; kind < INDEX_KINDS; kind++) {
            const unsigned char *below = index_node(kind, index_level, 0);
            *index_entry(kind, index_level + 1, 0) = (unsigned char)index_maximum(below);
        }
        index_level++;
    }
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
    HAK_ASSERT((mask & ~(superslab->free & superslab->dirty)) == 0);
    uint32_t run = bits_run_around(superslab->free, mask);
    if (run > *index_entry(INDEX_FREE, 0, index)) {
        hak__superslab_index_set(INDEX_FREE, index, run);
    }
    run = bits_run_around(superslab->free & superslab->dirty, mask);
    if (run > *index_entry(INDEX_DIRTY, 0, index)) {
        hak__superslab_index_set(INDEX_DIRTY, index, run);
    }
}

static bool index_superslab_is_right(size_t index)
{
    const struct superslab *superslab = superslab_at(index);
    uint32_t free_run = bits_longest_run(superslab->free);
    return *index_entry(INDEX_FREE, 0, index) == free_run &&
           *index_entry(INDEX_DIRTY, 0, index) == index_dirty_value(superslab, free_run) &&
           *index_entry(INDEX_RELEASED, 0, index) == (superslab->state == SUPERSLAB_RELEASED);
}

static bool index_node_is_right(uint32_t level, size_t node)
{
    bool right = true;
    for (uint32_t kind = 0; kind < INDEX_KINDS; kind++) {
        right &=
            *index_entry(kind, level + 1, node) == index_maximum(index_node(kind, level, node));
    }
    return right;
}

bool hak__superslab_index_is_right(void)
{
    size_t count = hak__superslabs.count;
    bool right = true;
    for (size_t index = 0; index < count; index++) {
        right &= index_superslab_is_right(index);
    }
    for (uint32_t level = 0; level < index_level; level++) {
        count = (count + INDEX_FANOUT - 1) / INDEX_FANOUT;
        for (size_t node = 0; node < count; node++) {
            right &= index_node_is_right(level, node);
        }
    }
    return right;
}
