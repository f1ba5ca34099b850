/* SPDX-License-Identifier: MIT */
/* whale_left.c: see whale_left.h. */
#include "large/whale_left.h"

#include "core/gate.h"
#include "large/whale_registry.h"

/* Whales with a note. Twice as many: a program that leaves something on more than 64 at a time
 * keeps a cache of freed whales. */
#define LEFT_WHALES_MAX 64u
/* Addresses for a bit of the table, and its bits: 128 GiB of whales before all calls look. Half the
 * addresses: fewer calls look in vain, but a large whale sets more bits. */
#define LEFT_GRANULE_SHIFT 25u
#define LEFT_GRANULES 4096u

struct left_whale {
    struct whale whale;
    uintptr_t from; /* all changed pages lie in [from, to) */
    uintptr_t to;
    uint32_t kinds; /* 0: all was undone; the entry spares the next change a search */
};

static uint64_t shared_left_granules[LEFT_GRANULES / 64]; /* written under WHALES, read relaxed */
static struct left_whale left_whales[LEFT_WHALES_MAX];    /* under WHALES, as is the count */
static uint32_t left_count;
uint32_t hak__whale_left_used;
static uint32_t shared_left_missed; /* 1: a change could not be noted; relaxed */
/* No whale meets [left_gap_from, left_gap_to), for programs that protect pages beside whales again
 * and again. Under WHALES. */
static uintptr_t left_gap_from, left_gap_to;

static uint32_t granule_bit(uintptr_t granule)
{
    return (uint32_t)((granule * UINT64_C(0x9e3779b97f4a7c15)) >> 52);
}

void hak__whale_left_cover(struct whale whale)
{
    if (whale.address < left_gap_to && whale.address + whale.size > left_gap_from) {
        left_gap_from = left_gap_to = 0;
    }
    uintptr_t first = whale.address >> LEFT_GRANULE_SHIFT;
    uintptr_t last = (whale.address + whale.size - 1) >> LEFT_GRANULE_SHIFT;
    last = last - first < LEFT_GRANULES ? last : first + LEFT_GRANULES - 1;
    for (uintptr_t granule = first; granule <= last; granule++) {
        uint32_t bit = granule_bit(granule);
        uint64_t *word = &shared_left_granules[bit / 64];
        atomic_store_relaxed(word, *word | UINT64_C(1) << bit % 64);
    }
}

/* True: a huge allocation may lie in the range. */
static bool left_may_meet(uintptr_t from, uintptr_t to)
{
    uintptr_t first = from >> LEFT_GRANULE_SHIFT, last = (to - 1) >> LEFT_GRANULE_SHIFT;
    if (last - first >= LEFT_GRANULES) {
        return true;
    }
    for (uintptr_t granule = first; granule <= last; granule++) {
        uint32_t bit = granule_bit(granule);
        if ((atomic_load_relaxed(&shared_left_granules[bit / 64]) >> bit % 64 & 1) != 0) {
            return true;
        }
    }
    return false;
}

static struct left_whale *left_find(uintptr_t address)
{
    for (uint32_t i = 0; i < left_count; i++) {
        if (left_whales[i].whale.address == address) {
            return &left_whales[i];
        }
    }
    return NULL;
}

static void left_forget(struct left_whale *left)
{
    *left = left_whales[--left_count];
}

bool hak__whale_left_on(uintptr_t address)
{
    const struct left_whale *left = left_count != 0 ? left_find(address) : NULL;
    return left != NULL && left->kinds != 0;
}

bool hak__whale_left_end(uintptr_t address)
{
    struct left_whale *left = left_count != 0 ? left_find(address) : NULL;
    bool on = left != NULL && left->kinds != 0;
    if (left != NULL) {
        left_forget(left);
    }
    return on || atomic_load_relaxed(&shared_left_missed) != 0;
}

/* An entry for the whale. NULL: all are in use. */
static struct left_whale *left_add(struct whale whale)
{
    for (uint32_t i = 0; left_count == LEFT_WHALES_MAX && i < LEFT_WHALES_MAX; i++) {
        if (left_whales[i].kinds == 0) {
            left_forget(&left_whales[i]);
        }
    }
    if (left_count == LEFT_WHALES_MAX) {
        return NULL;
    }
    atomic_store_relaxed(&hak__whale_left_used, 1u);
    left_whales[left_count] = (struct left_whale){whale, UINTPTR_MAX, 0, 0};
    return &left_whales[left_count++];
}

static void left_change(struct left_whale *left, const struct left_change *change)
{
    if (change->undone) {
        bool all = left->kinds == (uint32_t)change->kind && change->from <= left->from &&
                   change->to >= left->to;
        if (all) {
            left->kinds = 0;
            left->from = UINTPTR_MAX;
            left->to = 0;
        }
        return;
    }
    left->from = change->from < left->from ? change->from : left->from;
    left->to = change->to > left->to ? change->to : left->to;
    left->kinds |= (uint32_t)change->kind;
}

/* Searches all whales. Under WHALES. */
static void left_search(const struct left_change *change)
{
    struct whale whale;
    uintptr_t below = 0, above = UINTPTR_MAX;
    bool met = false;
    for (size_t place = 0; (whale = hak__whale_registry_next(&place)).address != 0;) {
        uintptr_t end = whale.address + whale.size;
        if (end <= change->from) {
            below = end > below ? end : below;
        } else if (whale.address >= change->to) {
            above = whale.address < above ? whale.address : above;
        } else {
            struct left_whale *left = left_find(whale.address);
            met = true;
            left = left == NULL && !change->undone ? left_add(whale) : left;
            if (left != NULL) {
                left_change(left, change);
            } else if (!change->undone) {
                atomic_store_relaxed(&shared_left_missed, 1u);
            }
        }
    }
    if (!met) {
        left_gap_from = below;
        left_gap_to = above;
    }
}

/* Under WHALES. */
static void left_note(const struct left_change *change)
{
    if (change->from >= left_gap_from && change->to <= left_gap_to) {
        return;
    }
    for (uint32_t i = 0; i < left_count; i++) {
        struct whale whale = left_whales[i].whale;
        if (change->from >= whale.address && change->to <= whale.address + whale.size) {
            left_change(&left_whales[i], change);
            return;
        }
    }
    left_search(change);
}

void hak__whale_left_note(const struct left_change *change)
{
    if ((change->undone && atomic_load_relaxed(&hak__whale_left_used) == 0) || /* no change yet */
        !left_may_meet(change->from, change->to)) {
        return;
    }
    uint64_t signals = hak__lock_block_signals();
    uint32_t inside = hak__inside;
    hak__inside |= INSIDE_LOCK; /* for a handler of this thread, and for fork's child */
    if (hak__whale_lock_soon()) {
        left_note(change);
        lock_release(&hak__whale_lock);
    } else if (!change->undone) {
        atomic_store_relaxed(&shared_left_missed, 1u);
        atomic_store_relaxed(&hak__whale_left_used, 1u);
    }
    hak__inside = inside;
    hak__os_restore_signals(signals);
}
