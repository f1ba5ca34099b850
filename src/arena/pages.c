/* SPDX-License-Identifier: MIT */
/* pages.c: purge passes over slabs in use: pages of free objects go back (slab/slab_pages.c).
 *
 * A pass looks at the superslabs in turn, a part at each tick, as that of region/purge.c does for
 * free slices. It begins with that pass, or later if the one before is still under way.
 *
 * A pass also begins when the touched slices have grown by a part of themselves: memory of sizes
 * that the program no longer uses makes room for those it uses now. It goes on whenever another
 * superslab has been touched.
 *
 * Locks: that of one arena at a time, for one slab. A part leaves out arenas whose lock is
 * taken. */
#include "arena/arena.h"

#include "base/bits.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "core/watched.h"
#include "region/superslab.h"

/* The superslab at which the pass goes on; SIZE_MAX: no pass is under way. */
static size_t shared_pages_next = SIZE_MAX;
/* Passes that must have seen a list unchanged before this one purges. */
static uint32_t shared_pages_passes;

bool hak__arena_pages_are_under_way(void)
{
    return atomic_load_relaxed(&shared_pages_next) != SIZE_MAX;
}

static size_t pages_superslabs(void)
{
    return atomic_load_acquire(&hak__window.shared_limit) / SUPERSLAB_SLICES; /* window.h */
}

/* Looks at the slabs that `arena` has in the slices of `wanted`, up to the first one that is worth
 * a walk, and takes these slices out of `wanted`. Under the arena's lock their owner words do not
 * change. Returns what the walk and the purge cost, in bytes. */
static size_t pages_of_arena(struct arena *arena, size_t first, uint64_t *wanted, uint32_t passes)
{
    size_t cost = 0;
    for (uint64_t rest = *wanted; rest != 0 && cost == 0; rest &= rest - 1) {
        size_t slice = first + bits_lowest(rest);
        if (!owner_is_slab_of(window_owner(slice), arena->id)) {
            continue;
        }
        *wanted &= ~(rest & (0 - rest));
        struct slab *slab = window_slab_metadata(slice);
        if (slab->slices_back == 0) {
            cost = hak__slab_purge(&arena->slabs, slab, passes);
        }
    }
    return cost;
}

/* The same for all arenas with slabs in the superslab. */
static size_t pages_of_superslab(size_t index, uint32_t passes)
{
    size_t first = index * SUPERSLAB_SLICES, cost = SLICE_SIZE;
    uint64_t wanted = 0, owners = 0; /* slices; bit I % 64 for each arena I that may have some */
    for (uint32_t i = 0; i < SUPERSLAB_SLICES; i++) {
        uint32_t owner = window_owner(first + i);
        if (owner_is_slab(owner)) {
            wanted |= UINT64_C(1) << i;
            owners |= UINT64_C(1) << (owner >> OWNER_CODE_BITS) % 64;
        }
    }
    struct arena *arena = hak__arena_first();
    for (; arena != NULL && wanted != 0; arena = arena->next) {
        size_t more = (owners >> arena->id % 64 & 1) != 0 ? SIZE_MAX : 0;
        while (more != 0 &&
               (passes == 0 ? lock_acquire_soon(&arena->lock) : lock_try(&arena->lock))) {
            more = pages_of_arena(arena, first, &wanted, passes);
            lock_release(&arena->lock);
            cost += more;
        }
    }
    return cost;
}

/* Says after which growth a thread does the next part. */
static void pages_set_growth(void)
{
    /* The parts of the heap. Half: a program whose sizes change has up to a third more memory
     * (docs/decisions/0105). */
    size_t part = hak__superslab_bytes_touched() / 16;
    part = part > PURGE_BYTES_AT_ONCE ? part : PURGE_BYTES_AT_ONCE;
    hak__superslab_set_growth(hak__arena_pages_are_under_way() ? SUPERSLAB_SIZE : part);
}

static void pages_begin(uint32_t passes)
{
    if (!hak__arena_pages_are_under_way()) {
        atomic_store_relaxed(&shared_pages_passes, passes);
        atomic_store_relaxed(&shared_pages_next, (size_t)0);
    }
}

static void pages_part(size_t bytes)
{
    size_t next = atomic_load_relaxed(&shared_pages_next);
    for (size_t cost = 0; next != SIZE_MAX && cost < bytes;) {
        size_t after = next + 1 < pages_superslabs() ? next + 1 : SIZE_MAX;
        /* Two threads may take turns; the order of a pass matters little: acquire pairs with
         * nothing. */
        if (!atomic_cas_acquire(&shared_pages_next, &next, after)) {
            continue;
        }
        cost += pages_of_superslab(next, atomic_load_relaxed(&shared_pages_passes));
        next = after;
    }
    pages_set_growth();
}

void hak__arena_pages_part(bool begin, size_t bytes)
{
    if (begin) {
        pages_begin(PAGES_PASSES);
    }
    pages_part(bytes);
}

void hak__arena_pages_grew(void)
{
    pages_set_growth(); /* first: other threads need not come as well */
    if (atomic_load_relaxed(&hak__knobs.purge_delay_ms) != UINT32_MAX && !watched()) {
        /* One pass must have seen a list unchanged. Without waiting: up to twice the page
         * faults. */
        pages_begin(1);
        pages_part(PURGE_BYTES_AT_ONCE);
    }
}

void hak__arena_pages_now(void)
{
    size_t count = pages_superslabs();
    for (size_t index = 0; index < count && hak__gate_let_pass(); index++) {
        (void)pages_of_superslab(index, 0);
    }
    pages_set_growth();
}
