/* SPDX-License-Identifier: MIT */
/* purge.c: returns the pages of free slices to the OS, and unmaps wholly free superslabs.
 *
 * A purge pass takes slices out of the free map, calls the kernel without REGION, and puts them
 * back clean. Meanwhile nobody else can take them. Policy and cost: docs/design/region.md.
 *
 * Locks: a pass that is not urgent holds PURGE over system calls, for a superslab or a part of the
 * pass. Nobody waits for PURGE: who finds it taken leaves the work out. REGION and GROWTH are held
 * only while maps are read or changed. If REGION is stuck (superslab.h), the rest of a pass is left
 * out.
 *
 * Why no lock that a malloc needs: where the program watches its memory by a userfaultfd, these
 * calls wait until its watching thread has read what happened. That thread may allocate first. */
#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "os/os.h"
#include "region/huge_pages.h"
#include "region/mappings.h"
#include "region/secure.h"
#include "region/superslab.h"
#include "region/window.h"

struct lock HAK_LOCK_LINE hak__purge_lock = LOCK_INITIAL(LOCK_RANK_PURGE);

/* A superslab with slices to purge. */
struct purge_work {
    size_t index;   /* SIZE_MAX: none was found */
    uint64_t due;   /* slices to purge */
    uint64_t taken; /* slices taken out of the free map: those due and those of purge_groups; all,
                       if `whole` */
    bool whole;     /* all slices are free, and the dirty ones due */
    bool split;     /* the superslab is split, so it may be joined */
    bool refused;   /* by the kernel */
};

/* Purges the whole OS pages of a run; returns the slices that were not purged. An OS page may be
 * larger than a slice. */
static uint64_t purge_run(struct purge_work *work, uint32_t first, uint32_t count)
{
    uint32_t step = (uint32_t)((hak__os_page_size() + SLICE_SIZE - 1) / SLICE_SIZE);
    uint32_t start = (uint32_t)bits_align_up(first, step);
    uint32_t end = (uint32_t)bits_align_down(first + count, step);
    uint64_t run = bits_mask(first, count);
    if (start >= end) {
        return run;
    }
    bool refused = hak__os_purge(window_slice_address(work->index * SUPERSLAB_SLICES + start),
                                 (end - start) * SLICE_SIZE) != 0;
    work->refused |= refused;
    return refused ? run : run & ~bits_mask(start, end - start);
}

/* Takes the lowest run of slices out of *map, which is not 0. Returns its length. */
static uint32_t purge_take_run(uint64_t *map, uint32_t *first)
{
    *first = bits_lowest(*map);
    uint64_t above = ~(*map >> *first);
    uint32_t count = above == 0 ? 64 - *first : bits_lowest(above);
    *map &= ~bits_mask(*first, count);
    return count;
}

/* Purges what is due; returns the slices that were not purged. */
static uint64_t purge_runs(struct purge_work *work)
{
    uint64_t failed = 0, map = work->due;
    while (map != 0) {
        uint32_t first, count = purge_take_run(&map, &first);
        failed |= purge_run(work, first, count);
    }
    return failed;
}

static void purge_tables(size_t index, uint64_t map)
{
    while (map != 0) {
        uint32_t first, count = purge_take_run(&map, &first);
        hak__window_purge_tables(index * SUPERSLAB_SLICES + first, count);
    }
}

/* Secure form: an OS page has the states of several slices, its group. Returns the groups that have
 * a slice of `due` and else only free clean slices: their states go back, too. */
static uint64_t purge_groups(uint64_t due, uint64_t clean)
{
    uint64_t groups = 0;
    if (!HAK_SECURE) {
        return 0;
    }
    uint32_t length = (uint32_t)(hak__os_page_size() / SECURE_STATES_SIZE);
    for (uint32_t first = 0; first < SUPERSLAB_SLICES; first += length) {
        uint64_t group = bits_mask(first, length);
        bool goes = (due & group) != 0 && ((due | clean) & group) == group;
        groups |= goes ? group : 0;
    }
    return groups;
}

/* Where a pass goes on. */
struct purge_place {
    uint32_t part; /* at least the number of parts: it is at its end */
    size_t from;   /* superslab, see hak__superslab_index_find */
    bool refused;  /* the kernel did not do all that it was asked for last */
};

/* Looks for slices to purge, at up to LOOKS_MAX superslabs of a part that have a run of at least
 * `length` free dirty ones. All other free dirty slices of these superslabs become aged, so that
 * the next pass purges them. Moves *next on. */
static struct purge_work purge_take_next(struct purge_place *next, bool everything, uint32_t length)
{
    struct purge_work work = {.index = SIZE_MAX};
    struct superslab_part *part = hak__superslab_parts[next->part];
    if (!lock_acquire_soon(&part->lock)) {
        *next = (struct purge_place){.part = next->part + 1}; /* a later pass purges */
        return work;
    }
    HAK_ASSERT_FULL(next->from != 0 || hak__superslab_index_is_right(part));
    for (uint32_t looks = 0; looks < (HAK_TINY_LIMITS ? 2 : LOOKS_MAX) && work.index == SIZE_MAX;
         looks++) {
        size_t index = hak__superslab_index_find(part, INDEX_DIRTY, length, next->from);
        if (index == SLICE_NONE) {
            *next = (struct purge_place){.part = next->part + 1};
            break;
        }
        next->from = superslab_next(part, index);
        struct superslab *superslab = superslab_at(index);
        uint64_t free = superslab->free, dirty = free & superslab->dirty;
        uint64_t due = dirty & (everything ? ~UINT64_C(0) : superslab->aged);
        if (due != 0) {
            if (superslab->huge_pages != 0) { /* the clean ones are resident as well */
                due |= free & ~dirty;
                dirty = free;
            }
            bool whole = due == dirty && free == ~UINT64_C(0);
            uint64_t taken = whole ? free : due | purge_groups(due, free & ~dirty);
            work = (struct purge_work){index, due, taken, whole, superslab->split != 0, false};
            (void)hak__superslab_mark_taken(index, work.taken);
        }
        superslab->aged = superslab->free & superslab->dirty;
    }
    lock_release(&part->lock);
    return work;
}

/* Puts slices back into the free map; those of `clean` are clean now. */
static void purge_put(size_t index, uint64_t taken, uint64_t clean)
{
    struct lock *lock = &superslab_part_of(index)->lock;
    if (lock_acquire_soon(lock)) {
        superslab_at(index)->dirty &= ~clean;
        hak__superslab_mark_free(index, taken);
        lock_release(lock);
    } else {
        hak__superslab_give_late(index, taken); /* they stay dirty */
    }
}

/* Notes that a superslab was unmapped. Under GROWTH. */
static void release_note(size_t index)
{
    struct lock *lock = &superslab_part_of(index)->lock;
    if (!lock_acquire_soon(lock)) {
        /* REGION is stuck: the superslab is mapped again. If that fails, its addresses stay out of
         * use. */
        if (hak__os_map_at(window_slice_address(index * SUPERSLAB_SLICES), SUPERSLAB_SIZE) == 0) {
            hak__superslab_give_late(index, ~UINT64_C(0));
        }
        return;
    }
    superslab_at(index)->dirty = 0;
    hak__superslab_set_pages(index, SUPERSLAB_SMALL);
    hak__superslab_set_state(index, SUPERSLAB_RELEASED, 0);
    lock_release(lock);
}

/* Looks for the last time at a superslab that may be watched. */
static void purge_unwatch(size_t index)
{
    (void)hak__huge_pages_unwatch(&superslab_part_of(index)->evidence, 1,
                                  window_slice_address(index * SUPERSLAB_SLICES));
}

/* Unmaps a superslab that is out of the free map, so nobody else uses it or claims it. False: the
 * kernel refuses, because it would have to split a mapping and there are too many. */
static bool release_one(size_t index)
{
    hak__gate_let_ending_signals(true);
    bool unmapped =
        hak__os_unmap(window_slice_address(index * SUPERSLAB_SLICES), SUPERSLAB_SIZE) == 0;
    hak__gate_let_ending_signals(false);
    if (unmapped) {
        lock_acquire(&hak__growth_lock);
        release_note(index);
        lock_release(&hak__growth_lock);
    }
    return unmapped;
}

/* Bytes of free clean slices that stay mapped before a pass unmaps superslabs. Twice: as much more
 * address space. Half: a program whose memory swings by a few superslabs maps them again each time.
 * Assertion level 2: each wholly free superslab is unmapped. */
#define PURGE_KEPT (HAK_TINY_LIMITS ? (size_t)0 : (size_t)4 << 20)

/* True: a pass by ticks unmaps a wholly free superslab, which is out of the free map, instead of
 * purging it. With a limit none is kept. */
static bool purge_unmaps(void)
{
    bool limited = atomic_load_relaxed(&hak__knobs.limit) != UINT64_MAX ||
                   atomic_load_relaxed(&hak__knobs.limit_hard) != UINT64_MAX;
    size_t kept = limited ? 0 : PURGE_KEPT;
    return hak__superslab_bytes_claimed() >= hak__superslab_bytes_touched() + kept &&
           !hak__mappings_have_holes() && !hak__mappings_are_short();
}

/* Purges slices of at most one superslab or, if `unmaps`, unmaps it, and moves *next on as
 * purge_take_next does. Returns the bytes. */
static size_t purge_next(struct purge_place *next, bool everything, uint32_t length, bool unmaps)
{
    struct purge_work work = purge_take_next(next, everything, length);
    if (work.index == SIZE_MAX) {
        return 0;
    }
    purge_tables(work.index, work.taken);
    if (work.whole && unmaps) {
        purge_unwatch(work.index);
    }
    bool stays_away = work.whole || hak__superslab_split(work.index);
    hak__gate_let_ending_signals(true);
    uint64_t failed = purge_runs(&work);
    hak__gate_let_ending_signals(false);
    next->refused = work.refused || !stays_away;
    /* Purged first: locked memory, which the kernel does not purge, stays, and what it does not
     * unmap is purged at least. */
    if (work.whole && unmaps && failed == 0 && purge_unmaps() && release_one(work.index)) {
        return SUPERSLAB_SIZE;
    }
    if (work.whole && work.split && failed == 0) {
        hak__superslab_join(work.index);
    }
    purge_put(work.index, work.taken, stays_away ? work.due & ~failed : 0);
    return bits_count(work.due & ~failed) * SLICE_SIZE;
}

size_t hak__superslab_purge(void)
{
    size_t purged = 0;
    hak__superslab_turn_use(true);
    for (struct purge_place next = {0};
         next.part < superslab_parts() && hak__gate_let_pass();) { /* a fork goes first */
        purged += purge_next(&next, true, 1, false);
    }
    return purged;
}

/* A pass begins. Under PURGE. */
static void purge_turn_use(bool anew)
{
    /* Passes of a period. Passes begin half a purge delay apart, and two periods count: so what was
     * used again is expected for 4 to 8 s. Twice: bursts of a program whose phases have ended stay
     * for up to 16 s. Half: phases of more than 2 s touch their memory anew. */
    static uint32_t passes;
    if (anew || ++passes % 8 == 0) {
        hak__superslab_turn_use(anew);
    }
}

/* Where the pass by ticks goes on. Under PURGE. */
static struct purge_place purge_place;
static bool purge_all;      /* it purges all free dirty slices. Under PURGE */
static bool shared_purging; /* such a pass is under way. Written under PURGE, read relaxed */

bool hak__superslab_purge_is_under_way(void)
{
    return atomic_load_relaxed(&shared_purging);
}

size_t hak__superslab_purge_part(bool begin, bool everything, size_t bytes)
{
    size_t purged = 0;
    if (!lock_try(&hak__purge_lock)) {
        return 0; /* another thread purges */
    }
    bool purging = shared_purging;
    for (size_t cost = 0; cost < bytes && (purging || begin);) {
        if (!purging) {
            purge_turn_use(everything);
            purge_place = (struct purge_place){0};
            purge_all = everything;
            begin = false;
        }
        size_t some = purge_next(&purge_place, purge_all, 1, true);
        purged += some;
        cost += SLICE_SIZE + some; /* looking takes time, too */
        purging = purge_place.part < superslab_parts();
    }
    atomic_store_relaxed(&shared_purging, purging);
    lock_release(&hak__purge_lock);
    return purged;
}

size_t hak__superslab_purge_beyond(size_t kept, size_t most)
{
    size_t purged = 0;
    uint32_t length = SUPERSLAB_SLICES; /* whole superslabs first: one call returns 2 MiB of each */
    struct purge_place next = {0};
    while (next.part < superslab_parts() && hak__superslab_bytes_dirty() > kept && purged < most &&
           lock_try(&hak__purge_lock)) {
        size_t some = purge_next(&next, true, length, true);
        lock_release(&hak__purge_lock);
        purged += next.refused ? 0 : some;
        /* If memory is locked, or there are too many mappings, the kernel would refuse the others,
         * too, again and again. A fork goes first. */
        if (next.refused || !hak__gate_let_pass()) {
            break;
        }
        if (next.part >= superslab_parts() && length != 1) {
            length = 1;
            next = (struct purge_place){0};
        }
    }
    return purged;
}

/* Takes the next wholly free superslab out of the free map, and moves *next on. SLICE_NONE: the
 * part has none. */
static size_t release_take_next(struct purge_place *next)
{
    struct superslab_part *part = hak__superslab_parts[next->part];
    size_t index = SLICE_NONE;
    if (lock_acquire_soon(&part->lock)) {
        index = hak__superslab_index_find(part, INDEX_FREE, SUPERSLAB_SLICES, next->from);
        if (index != SLICE_NONE) {
            (void)hak__superslab_mark_taken(index, ~UINT64_C(0));
            next->from = superslab_next(part, index);
        }
        lock_release(&part->lock);
    }
    *next = index == SLICE_NONE ? (struct purge_place){.part = next->part + 1} : *next;
    return index;
}

size_t hak__superslab_release(void)
{
    size_t released = 0;
    hak__superslab_turn_use(true);
    for (struct purge_place next = {0};
         next.part < superslab_parts() && !hak__mappings_are_short() && hak__gate_let_pass();) {
        size_t index = release_take_next(&next);
        if (index != SLICE_NONE) {
            purge_tables(index, ~UINT64_C(0));
            purge_unwatch(index);
            if (release_one(index)) {
                released += SUPERSLAB_SIZE;
            } else {
                purge_put(index, ~UINT64_C(0), 0);
            }
        }
    }
    return released;
}
