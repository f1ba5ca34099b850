/* SPDX-License-Identifier: MIT */
/* collect.c: how free memory moves: from one arena to another, from arenas to the region, and from
 * the region and the huge cache to the OS. Ticks, the scavenger, trims and failed allocations call
 * it. */
#include "arena/arena.h"

#include "core/knobs.h"
#include "core/watched.h"
#include "large/emergency.h"
#include "large/huge.h"
#include "os/os.h"
#include "region/superslab.h"

static uint32_t shared_purged_ms; /* clock when the last purge pass of the process began */
static uint32_t shared_pressed;   /* 1: tasks wait for memory (hak__arena_set_pressed) */

static void collect_from(struct arena *arena, bool everything, bool slabs)
{
    /* refused: a stopped thread has the lock */
    if (!lock_acquire_soon(&arena->lock)) {
        return;
    }
    hak__slab_drain(&arena->slabs);
    hak__span_cache_trim(&arena->spans, everything);
    if (slabs) {
        hak__slab_give_kept(&arena->slabs, UINT32_MAX);
    }
    if (HAK_SECURE && everything) {
        hak__slab_end_quarantine(&arena->slabs);
    }
    if (HAK_LEVEL >= 2 && everything) {
        hak__slab_set_check(&arena->slabs);
    }
    lock_release(&arena->lock);
}

void hak__arena_collect(struct arena *arena, bool everything)
{
    collect_from(arena, everything, everything);
}

void hak__arena_rest(struct arena *arena)
{
    collect_from(arena, true, !HAK_SECURE);
}

void hak__arena_help(struct thread *thread)
{
    struct slab_set *set = thread->cache.lagging;
    thread->cache.lagging = NULL;
    struct arena *owner = arena_of_slabs(set);
    if (lock_try(&owner->lock)) { /* else another thread works on this arena */
        hak__slab_drain(set);
        lock_release(&owner->lock);
    }
}

/* False: the lock is taken and the caller does not want to wait, or this thread was refused, which
 * does not concern the allocation: its own arena comes next. */
static bool arena_lock(struct arena *arena, bool wait)
{
    if (wait ? hak__gate_acquire(&arena->lock) : lock_try(&arena->lock)) {
        return true;
    }
    hak__own.refused = false;
    return false;
}

/* True if the arena should ask now. Asking reads several cache lines of each other arena, and while
 * all arenas grow no one has anything to lend: after the first vain round the next refill that
 * grows the arena does not ask, after each further one the next three. */
static bool arena_may_borrow(struct arena *own)
{
    if (own->apart) {
        return false; /* a long-lived object would hold a slab of the lender */
    }
    uint32_t silent = atomic_load_relaxed(&own->shared_silent);
    if (silent != 0) {
        atomic_store_relaxed(&own->shared_silent, silent - 1);
    }
    return silent == 0;
}

/* Notes what a round found, and where the next one begins. */
static void arena_note_borrowed(struct arena *own, struct arena *next, bool vain)
{
    uint32_t rounds = atomic_load_relaxed(&own->shared_vain);
    /* 2 to this power, less one: the most refills of a growing arena that do not ask after one that
     * asked in vain. One more: an arena takes up to 7 slabs for each 8 arenas before it
     * finds the one that could have spared it. One less: it asks in vain twice as often while many
     * arenas grow, and the lines that it reads move (lab/README.md). */
    rounds = !vain ? 0 : rounds < (HAK_TINY_LIMITS ? 1u : 2u) ? rounds + 1 : rounds;
    atomic_store_relaxed(&own->shared_vain, rounds);
    atomic_store_relaxed(&own->shared_silent, (1u << rounds) - 1);
    atomic_store_release(&own->shared_lender, next);
}

struct object_list hak__arena_borrow(struct arena *own, uint32_t class_index, uint32_t most)
{
    struct object_list list = {NULL, 0};
    if (!arena_may_borrow(own)) {
        return list;
    }
    uint32_t slices = hak__size_classes[class_index].slab_slices;
    /* Smaller objects share cache lines, so arenas do not exchange them. */
    bool lendable = size_class_has_own_lines(class_index);
    /* Without enough free slices for a slab the process must map memory, which takes longer than a
     * wait. The thread that holds another arena's lock may be preempted, and its arena may have
     * what is needed. */
    bool wait = hak__superslab_bytes_claimed() < (hak__superslab_taken() + slices) * SLICE_SIZE;
    /* acquire: pairs with the release in arena_note_borrowed. The words of the arena are visible,
     * as in hak__arena_first. */
    struct arena *start = atomic_load_acquire(&own->shared_lender);
    start = start != NULL ? start : hak__arena_first();
    struct arena *arena = start;
    struct arena *keeper = NULL;
    bool busy = false; /* an arena that could not be asked */
    /* The most arenas that a refill goes through for free objects before the process grows; it
     * skips its own. That takes some 100 ns, and a new slab at least 8 microseconds
     * (docs/decisions/0059). Twice as many: a process of more than 8 arenas grows less often, but
     * the refills that grow it are slower. Half: it grows more often. */
    for (uint32_t asked = 0; asked < (HAK_TINY_LIMITS ? 2u : 8u); asked++) {
        /* Its memory is on the same node. Secure form: and not from before a fork. */
        bool near = arena != own && arena->node == own->node && !(HAK_SECURE && arena->apart);
        keeper = near && slab_keeps(&arena->slabs) ? arena : keeper;
        if (near && lendable && arena->id != ARENA_ID_SAMPLES &&
            slab_may_lend(&arena->slabs, class_index)) {
            if (arena_lock(arena, wait)) {
                list = hak__slab_lend(&arena->slabs, class_index, most);
                lock_release(&arena->lock);
            } else {
                busy = true;
            }
        }
        if (list.count != 0) {
            break;
        }
        arena = arena->next != NULL ? arena->next : hak__arena_first();
        if (arena == start) {
            break;
        }
    }
    bool vain = list.count == 0 && keeper == NULL && !busy;
    if (list.count == 0 && keeper != NULL && arena_lock(keeper, wait)) {
        hak__slab_give_kept(&keeper->slabs, slices);
        lock_release(&keeper->lock);
    }
    arena_note_borrowed(own, arena, vain);
    return list;
}

/* Drains every arena with notifications, and trims what it keeps, or gives back `everything` that
 * it keeps, if its lock is free. An arena without threads, or whose threads sleep, does not do so
 * itself. */
static void collect_arenas(bool everything)
{
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        bool has = atomic_load_relaxed(&arena->slabs.shared_notified) != 0 ||
                   (everything && atomic_load_relaxed(&arena->spans.slices) != 0);
        if ((has || slab_keeps(&arena->slabs)) && lock_try(&arena->lock)) {
            hak__slab_drain(&arena->slabs);
            if (everything) {
                hak__slab_give_kept(&arena->slabs, UINT32_MAX);
                hak__span_cache_trim(&arena->spans, true);
            }
            hak__slab_trim_kept(&arena->slabs);
            lock_release(&arena->lock);
        }
    }
}

/* True for one thread when half a delay has passed since the last purge pass began: that thread
 * begins the next pass. A pass purges slices that were free at the pass before, so each slice goes
 * back between half a delay and one delay after it was freed. `*slept`: no pass began for a whole
 * delay, so the process has hardly called malloc, and what is free was free for that long. */
static bool collect_is_due(uint32_t delay, bool *slept)
{
    /* acquire: the clock is read after it, so no pass has begun later than now */
    uint32_t last = atomic_load_acquire(&shared_purged_ms);
    uint32_t now = hak__os_clock_ms(), ago = now - last;
    *slept = last != 0 && ago >= delay && ago >= 2 * TICK_MS;
    return ago >= delay / 2 && atomic_cas_acquire(&shared_purged_ms, &last, now);
}

/* Before a pass: makes empty slabs free slices, and unmaps huge blocks that were freed half a delay
 * ago. */
static void collect_for_purge(uint32_t delay, bool slept)
{
    collect_arenas(slept);
    hak__huge_cache_trim(delay / 2);
    hak__os_discard_again();
}

/* The purge delay in force, in milliseconds: shorter above the soft limit and under memory
 * pressure. */
static uint32_t collect_delay(void)
{
    uint32_t delay = atomic_load_relaxed(&hak__knobs.purge_delay_ms);
    bool short_of_memory = hak__limit_is_exceeded() || atomic_load_relaxed(&shared_pressed) != 0;
    /* Above the soft limit (HAKMEM_LIMIT) and under memory pressure, free memory goes back after
     * this many milliseconds. Twice as many: the process stays above its limit longer. Half: memory
     * that is about to be used again is purged more often. */
    const uint32_t most = HAK_TINY_LIMITS ? 0 : 10;
    return short_of_memory && delay > most ? most : delay;
}

void hak__arena_set_pressed(bool pressed)
{
    atomic_store_relaxed(&shared_pressed, (uint32_t)pressed);
}

static bool collect_is_under_way(void)
{
    return hak__superslab_purge_is_under_way() || hak__arena_pages_are_under_way();
}

uint32_t hak__arena_tick_period_ms(void)
{
    uint32_t half = collect_delay() / 2;
    /* Milliseconds from one tick to the next while a purge pass is under way. Twice as many: free
     * memory goes back at half the rate. Half: the pauses follow each other more closely. */
    const uint32_t least = HAK_TINY_LIMITS ? 1 : 4;
    if (half < least || collect_is_under_way()) {
        return least;
    }
    return half < TICK_MS ? half : TICK_MS;
}

/* Does a tick's part of the pass, and further ones for a tenth of `elapsed` milliseconds, at most
 * `most`. Between parts a fork goes first, and so does a trim that waits for PURGE. */
static void collect_purge(bool begin, bool everything, uint32_t elapsed)
{
    /* Milliseconds that a call of malloc or free may pause. Twice: a server that slept answers its
     * first request 0.1 s late. Half: where 1 GiB of small pages waits, it takes more calls. */
    const uint32_t most = 50;
    uint32_t start = hak__os_clock_ms(), pause = elapsed / 10;
    pause = pause < most ? pause : most;
    bool works;
    do {
        works = hak__superslab_purge_part(begin, everything, PURGE_BYTES_AT_ONCE) != 0 ||
                !hak__superslab_purge_is_under_way();
        hak__arena_pages_part(begin, PURGE_BYTES_AT_ONCE);
        begin = false;
    } while (works && hak__os_clock_ms() - start < pause && collect_is_under_way() &&
             hak__gate_let_pass());
}

void hak__arena_give_back(void)
{
    if (collect_delay() == UINT32_MAX || watched()) {
        return;
    }
    hak__huge_cache_give_back();
    size_t kept = hak__superslab_expected();
    if (hak__superslab_bytes_dirty() <= kept) {
        return;
    }
    collect_arenas(false);
    /* Again for what other threads have freed meanwhile, which found this one purging. 1 GiB at
     * most: about 130 ms of small pages. Twice: a thread pauses for twice as long while others free
     * much. Half: more stays if all threads sleep right after. */
    size_t left = 8 * BURST_BYTES, some;
    do {
        some = hak__superslab_purge_beyond(kept - RESERVE_BYTES / 2, left);
        left -= some < left ? some : left;
    } while (some != 0 && left != 0 && (hak__inside & INSIDE_GATE) != 0 &&
             hak__superslab_bytes_dirty() > kept);
    if (left == 0) {
        superslab_note_freed_much(); /* the next operation of any thread goes on */
    }
}

/* The part of a tick that concerns one struct of the calling thread. It waits for a lock no longer
 * than a fork allows: the thread may hold a lock of the C library. */
static void tick_struct(struct thread *thread, uint32_t now, uint32_t delay)
{
    thread->ticked_ms = now;
    thread->operations = 0;
    uint32_t turns = atomic_load_acquire(&hak__knobs_turns); /* pairs with knobs_turned */
    if (HAK_UNLIKELY(turns != thread->turns)) {
        thread->turns = turns;
        hak__cache_lower_limits(&thread->cache);
    }
    /* The thread may make no remote frees for a while. Objects that wait in its remote buffer keep
     * slabs of other arenas from becoming empty, so all of them are sent now. */
    hak__remote_flush(&thread->cache);
    struct arena *arena = thread->arena;
    /* At every tick, whatever the time. The spans that a growing vector leaves behind are wanted
     * for other allocations long before half a delay is over (docs/decisions/0020). */
    if (atomic_load_relaxed(&arena->spans.slices) != 0 && hak__gate_acquire(&arena->lock)) {
        hak__span_cache_trim(&arena->spans, false);
        lock_release(&arena->lock);
    }
    if (delay != UINT32_MAX && now - thread->trimmed_ms >= delay / 2) {
        thread->trimmed_ms = now;
        counter_add(&thread->cache.counters, COUNTER_TICKS, 1);
        if (hak__gate_acquire(&arena->lock)) {
            hak__slab_drain(&arena->slabs);
            hak__cache_trim(&thread->cache);
            lock_release(&arena->lock);
        }
        hak__remote_flush(&thread->cache);
    }
}

void hak__arena_tidy(struct thread *thread)
{
    struct arena *arena = thread->arena;
    thread->operations = 0;
    hak__remote_flush(&thread->cache);
    if (atomic_load_relaxed(&arena->spans.slices) != 0 && gate_lock(&arena->lock)) {
        hak__span_cache_trim(&arena->spans, false);
        lock_release(&arena->lock);
        gate_end();
    }
}

void hak__arena_tick(struct thread *thread)
{
    uint32_t delay = collect_delay();
    uint32_t now = hak__os_clock_ms(), elapsed = now - thread->ticked_ms;
    tick_struct(thread, now, delay);
    if (HAK_UNLIKELY(thread->twin != NULL)) {
        tick_struct(thread->twin, now, delay); /* it may not be in use for long */
    }
    hak__huge_cache_trim(UINT32_MAX); /* the more is in use, the fewer are kept */
    if (delay == UINT32_MAX) {
        return;
    }
    bool slept, due = collect_is_due(delay, &slept);
    if (due) {
        watched_forget();
    }
    if (HAK_UNLIKELY(watched())) { /* maybe by this thread, which would wait for itself */
        return;
    }
    if (due) {
        collect_for_purge(delay, slept);
    }
    bool under_way = collect_is_under_way();
    if (due || under_way) { /* the tick that begins a pass is late only after a sleep */
        collect_purge(due, slept, under_way || slept ? elapsed : 0);
    }
}

void hak__arena_scavenge(void)
{
    if (!hak__gate_enter(GATE_BRIEFLY)) {
        return;
    }
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        hak__arena_collect(arena, false);
    }
    uint32_t delay = collect_delay();
    bool slept;
    if (delay != UINT32_MAX && collect_is_due(delay, &slept)) {
        collect_for_purge(delay, false);
        bool begin = true;
        do {
            collect_purge(begin, false, 0);
            begin = false;
        } while (collect_is_under_way() && hak__gate_let_pass());
    }
    hak__gate_leave();
}

size_t hak__arena_reclaim(bool unmap)
{
    if (!hak__gate_enter(GATE_BRIEFLY) ||
        (!hak__thread_settle() && !hak__gate_enter(GATE_BRIEFLY))) {
        return 0;
    }
    hak__thread_settle_gone();
    struct thread *own = hak__thread;
    if (own->arena != NULL) {
        atomic_store_relaxed(&own->arena->shared_silent, 0u); /* the next attempt asks others */
        (void)hak__thread_flush(own);
    }
    if (own->twin != NULL) {
        (void)hak__thread_flush(own->twin);
    }
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        hak__arena_collect(arena, true);
    }
    size_t bytes = hak__os_discard_again() + hak__huge_cache_trim(0);
    bytes += hak__superslab_release();
    /* A failed allocation wants addresses only. Outside the gate: a fork has turned this thread
     * away. */
    if (!unmap && (hak__inside & INSIDE_GATE) != 0) {
        bytes += hak__superslab_purge();
    }
    if (!unmap && (hak__inside & INSIDE_GATE) != 0) {
        hak__arena_pages_now();
    }
    hak__gate_leave();
    return bytes;
}
