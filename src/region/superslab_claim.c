/* SPDX-License-Identifier: MIT */
/* superslab_claim.c: claims slices: maps them, or maps released ones again, chooses their pages and
 * publishes them. See superslab.h. */
#include "region/superslab.h"

#include <errno.h>

#include "base/bits.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/mappings.h"
#include "region/window.h"

/* Makes newly claimed slices of one superslab free. False: refused. Under GROWTH. */
static bool publish_one(size_t first, uint32_t count)
{
    size_t index = first / SUPERSLAB_SLICES;
    uint32_t offset = (uint32_t)(first % SUPERSLAB_SLICES);
    struct lock *lock = &superslab_part_of(index)->lock;
    if (!hak__superslab_lock(lock)) {
        return false;
    }
    hak__superslab_index_reach(index);
    hak__superslab_set_state(index, SUPERSLAB_CLAIMED, offset + count);
    hak__superslab_mark_free(index, bits_mask(offset, count));
    size_t limit = first + count;
    if (limit > hak__window.shared_limit) {
        /* release: pairs with the acquire in window_contains_slice; the tables already exist */
        atomic_store_release(&hak__window.shared_limit, limit);
    }
    lock_release(lock);
    return true;
}

size_t hak__superslab_publish(size_t first, size_t end, const struct superslab_wish *wish)
{
    size_t whole = bits_align_up(first, SUPERSLAB_SLICES), slice = first;
    whole = whole < end ? whole : end;
    if (HAK_SECURE) { /* asked here, because each slab needs to know */
        atomic_store_relaxed(&hak__superslabs.limited, hak__os_addresses_are_limited());
    }
    if (first < whole) { /* the rest of a superslab */
        hak__superslab_choose_pages(first, whole - first, wish);
    }
    if (whole < end) {
        hak__superslab_choose_pages(whole, end - whole, wish);
    }
    while (slice < end) {
        size_t some = SUPERSLAB_SLICES - slice % SUPERSLAB_SLICES;
        some = some < end - slice ? some : end - slice;
        if (!publish_one(slice, (uint32_t)some)) {
            hak__os_discard(window_slice_address(slice), (end - slice) * SLICE_SIZE);
            break;
        }
        slice += some;
    }
    return slice;
}

/* A released superslab of the node, or of any; the part `own` comes first. SLICE_NONE: there is
 * none, or refused. */
static size_t superslab_find_released(uint32_t node, uint32_t own)
{
    size_t index = SLICE_NONE;
    uint32_t count = superslab_parts();
    for (uint32_t i = 0; i < count && index == SLICE_NONE; i++) {
        struct superslab_part *part = hak__superslab_parts[(own + i) % count];
        if (node != NODE_ANY && part->node != node) {
            continue;
        }
        if (!hak__superslab_lock(&part->lock)) {
            break;
        }
        index = hak__superslab_index_find(part, INDEX_RELEASED, 1, 0);
        lock_release(&part->lock);
    }
    return index;
}

bool hak__superslab_reclaim(uint32_t node, const struct superslab_wish *wish)
{
    while (hak__superslabs.released_count != 0) {
        size_t index = superslab_find_released(node, wish->part != NULL ? wish->part->number : 0u);
        if (index == SLICE_NONE) {
            return false;
        }
        size_t first = index * SUPERSLAB_SLICES;
        int error = hak__mappings_claim(first, SUPERSLAB_SLICES);
        if (error == 0) {
            return hak__superslab_publish(first, first + SUPERSLAB_SLICES, wish) != first;
        }
        struct lock *lock = &superslab_part_of(index)->lock;
        if (error != -EEXIST || !hak__superslab_lock(lock)) {
            return false;
        }
        hak__superslab_set_state(index, SUPERSLAB_LOST, 0);
        lock_release(lock);
    }
    return false;
}

/* True if another mapping lies in the superslab's addresses: tries to map it. Under GROWTH. */
static bool superslab_is_foreign(size_t index)
{
    void *start = window_slice_address(index * SUPERSLAB_SLICES);
    int error = hak__os_map_at(start, SUPERSLAB_SIZE);
    if (error == 0) {
        hak__os_discard(start, SUPERSLAB_SIZE);
    }
    return error == -EEXIST;
}

/* Finds the end of a foreign mapping that lies in superslab `taken`, by steps that double and then
 * halve. Returns a free superslab that follows a taken one, or the window's end if it finds none.
 * Free superslabs before the result are never used, which costs addresses only. Under GROWTH. */
static size_t superslab_behind(size_t taken)
{
    size_t end = hak__window.size / SUPERSLAB_SIZE, step = 1;
    while (taken + step < end && superslab_is_foreign(taken + step)) {
        taken += step;
        step *= 2;
    }
    size_t free = taken + step < end ? taken + step : end;
    while (free - taken > 1) {
        size_t middle = taken + (free - taken) / 2;
        if (superslab_is_foreign(middle)) {
            taken = middle;
        } else {
            free = middle;
        }
    }
    return free;
}

/* Maps slices at the frontier, and the tables that describe them. 0 or -errno. Under GROWTH. */
static int superslab_claim(size_t first, size_t count)
{
    int error = hak__mappings_claim(first, count);
    if (error == 0 && (error = hak__window_grow_tables(first + count)) != 0) {
        hak__os_discard(window_slice_address(first), count * SLICE_SIZE);
        error = -ENOMEM; /* not -EEXIST, which would concern the slices */
    }
    return error;
}

/* If there are several parts: makes sure that `slices` from the frontier on are the part's.
 * False: no memory. */
static bool part_reach(struct superslab_part *part, size_t slices)
{
    if (part->groups == NULL) {
        return true;
    }
    size_t behind = hak__superslabs.groups_count * GROUP_SLICES;
    if (part->frontier + slices > hak__superslab_end(part) && hak__superslab_end(part) != behind) {
        part->frontier = behind; /* another part's group follows */
    }
    while (hak__superslab_end(part) < part->frontier + slices) {
        if (!hak__superslab_add_group(part)) {
            return false;
        }
    }
    return true;
}

/* Superslabs that a part with many claims beyond the one it needs, so that it takes GROWTH seldom:
 * a quarter of what this process has claimed in it. None if there is one part, or a limit on
 * addresses. */
static size_t part_ahead(const struct superslab_part *part)
{
    size_t claimed = part->claimed_slices, inherited = part->inherited_slices;
    size_t own = claimed > inherited ? claimed - inherited : 0;
    size_t ahead = own / SUPERSLAB_SLICES / 4;
    if (part->groups == NULL || ahead == 0 || hak__os_addresses_are_limited() ||
        atomic_load_relaxed(&hak__knobs.limit) != UINT64_MAX ||
        atomic_load_relaxed(&hak__knobs.limit_hard) != UINT64_MAX) {
        return 0;
    }
    size_t end = hak__superslab_end(part), most = hak__window.size / SLICE_SIZE;
    end = end < most ? end : most;
    size_t left = (end - part->frontier) / SUPERSLAB_SLICES - 1;
    /* The most superslabs that a part claims ahead. Twice: a part that stops growing has twice the
     * addresses to spare. Half: parts with much memory take GROWTH almost twice as often. */
    const uint32_t ahead_most = HAK_TINY_LIMITS ? 1 : 7;
    ahead = ahead < ahead_most ? ahead : ahead_most;
    return ahead < left ? ahead : left;
}

/* Lets nobody claim before `behind`: another mapping is there, from the frontier on. */
static void part_skip(struct superslab_part *part, size_t behind)
{
    struct superslab_table *table = &hak__superslabs;
    size_t end = part->groups == NULL ? SIZE_MAX : hak__superslab_end(part);
    size_t group = (behind + GROUP_SLICES - 1) / GROUP_SLICES;
    part->frontier = behind < end ? behind : end;
    if (behind > end && group > table->groups_count) {
        table->groups_count = (uint32_t)group; /* those before have no tables: no part gets them */
    }
    hak__window_skip(behind); /* if there are several parts, their groups have all tables already */
}

/* Claims at the part's frontier as much as it can of three sizes in slices, each at most the one
 * before. Sets *claimed. 0 or -errno. Under GROWTH. */
static int part_claim(struct superslab_part *part, const size_t sizes[3], size_t *claimed)
{
    int error = -ENOMEM;
    for (uint32_t i = 0; i < 3 && error != 0 && error != -EEXIST; i++) {
        if (i == 0 || sizes[i] != *claimed) {
            *claimed = sizes[i];
            error = superslab_claim(part->frontier, *claimed);
        }
    }
    return error;
}

bool hak__superslab_advance(struct superslab_part *part, const struct superslab_wish *wish)
{
    for (;;) {
        size_t run = wish->run * SUPERSLAB_SLICES;
        if (!part_reach(part, run == 0 ? 1 : run + SUPERSLAB_SLICES)) {
            return false;
        }
        size_t first = part->frontier;
        uint32_t offset = (uint32_t)(first % SUPERSLAB_SLICES);
        uint32_t left = SUPERSLAB_SLICES - offset;
        uint32_t needed = (uint32_t)(bits_align_up(offset, wish->alignment) - offset) + wish->count;
        if (run == 0 && needed > left) { /* the end of a partly claimed one is then never used */
            part->frontier = first + left;
            continue;
        }
        size_t most = run == 0 ? left : run + (offset == 0 ? 0 : left);
        if ((first + most) * SLICE_SIZE > hak__window.size) {
            return false;
        }
        /* A whole superslab, which is the most. Half of that would double the number of mmap calls
         * and prevent huge pages. At first half a superslab, because many programs need no more. No
         * page in it can be huge, so it needs no madvise (docs/decisions/0111). Doubled: each
         * process makes that call. Halved: programs that use more than 512 KiB need a second claim.
         * At assertion level 2 a quarter, to test superslabs that are partly claimed. */
        size_t claim = SUPERSLAB_SLICES / (HAK_TINY_LIMITS ? 4 : first == 0 && !HAK_SECURE ? 2 : 1);
        claim = claim < left ? claim : left;
        uint32_t page = (uint32_t)((hak__os_page_size() + SLICE_SIZE - 1) / SLICE_SIZE);
        needed = (uint32_t)bits_align_up(needed, page); /* an OS page may be two slices */
        claim = claim < needed ? needed : claim;
        size_t ahead = offset == 0 ? part_ahead(part) * SUPERSLAB_SLICES : 0;
        /* near a limit: only what is needed */
        const size_t sizes[2][3] = {{ahead != 0 ? left + ahead : claim, claim, needed},
                                    {most, most, most}};
        int error = part_claim(part, sizes[run != 0], &claim);
        if (error != 0 && error != -EEXIST && !hak__mappings_are_short() &&
            hak__window_give_spare(first + claim)) {
            error = superslab_claim(first, claim);
        }
        if (error == -EEXIST) { /* another mapping is there: skip the superslab */
            size_t behind = superslab_behind(first / SUPERSLAB_SLICES) * SUPERSLAB_SLICES;
            if (behind * SLICE_SIZE == hak__window.size) { /* the rest of the window is taken */
                part->frontier = first + left;
                return false;
            }
            part_skip(part, behind);
            continue;
        }
        if (error != 0) {
            return false;
        }
        part->frontier = hak__superslab_publish(first, first + claim, wish);
        return part->frontier != first;
    }
}
