/* SPDX-License-Identifier: MIT */
/* heartbeat.c: when a thread does its periodic work.
 *
 *   look   The thread reads the coarse clock: when malloc's countdown of bytes has run out, and at
 *          every LOOK_OPERATIONS-th slow operation or remote batch.
 *   tick   A look that comes late enough: hak__arena_tick_period_ms after the last tick (TICK_MS,
 *          less during a purge pass). hak__arena_tick sends remote batches, trims bins and purges
 *          what is due.
 *   tidy   A look after TICK_OPERATIONS slow operations that comes too early for a tick: sends
 *          remote batches and gives back spans. It becomes a tick if work of the process waits.
 *   growth A slow operation finds that the heap has grown: a part of a pass over slabs in use
 *          (arena/pages.c), whatever the clock says.
 *
 * The countdown follows the clock. A look before the next tick is due doubles the countdown, up to
 * countdown_most. A late look shortens it in proportion. After much memory has become free, each of
 * the thread's next TICK_OPERATIONS mallocs and slow operations looks, and each further slow one
 * until a malloc ends the countdown, or a tick finds little that waits: the program may be about to
 * idle, and may make no other calls (docs/design/arena.md).
 *
 * The countdown also ends where the thread's next sample is due (arena/sampling.c).
 *
 * State: the calling thread's struct. No lock is held. A tick is an operation of its own at the
 * gate (core/gate.h), a tidy one that begins with the arena's lock. If it is refused, a later look
 * tries again. */
#include "arena/arena.h"

#include "core/knobs.h"
#include "large/emergency.h"
#include "os/os.h"
#include "region/huge_pages.h"
#include "region/superslab.h"

tick_listener *hak__tick_listener;

/* Moves a thread to another arena if it often finds its arena's lock taken and there is an arena to
 * spare. Objects in use stay where they are. */
static void thread_move_if_crowded(struct thread *thread)
{
    uint32_t now = hak__os_clock_ms();
    bool crowded = now - thread->waits_ms <= (HAK_TINY_LIMITS ? UINT32_MAX : 16u) && !thread->apart;
    thread->waits = 0;
    thread->waits_ms = now;
    if (crowded && atomic_load_relaxed(&thread->arena->threads_count) != 1 &&
        hak__arena_is_to_spare()) {
        hak__thread_move(thread);
    }
}

/* Moves a thread that has been on another memory node than its arena's for 250 ms, at each of its
 * ticks meanwhile, to an arena of that node. Twice: it gets memory of its old node for twice as
 * long. Half: a thread that the kernel moves for a moment empties its bins. */
static void thread_follow_node(struct thread *thread)
{
    if (hak__numa_look() == thread->arena->node || thread->apart || hak__knobs.arenas_max == 1) {
        thread->away_ms = 0;
    } else if (thread->away_ms == 0) {
        thread->away_ms = thread->ticked_ms | 1;
    } else if (thread->ticked_ms - thread->away_ms >= (HAK_TINY_LIMITS ? 2u : 250u)) {
        thread->away_ms = 0;
        hak__thread_move(thread);
    }
}

static void thread_tell_listener(struct thread *thread)
{
    tick_listener *listener = atomic_load_acquire(&hak__tick_listener);
    if (HAK_UNLIKELY(listener != NULL)) {
        listener(thread);
        if (thread->twin != NULL) {
            listener(thread->twin);
        }
    }
}

/* Inside the gate, where this thread may not be any more at the end. */
static void thread_do_what_is_due(struct thread *thread)
{
    hak__arena_tick(thread);
    if (HAK_UNLIKELY((hak__inside & INSIDE_GATE) == 0)) {
        return; /* refused between two parts of the purge; a later look does the rest */
    }
    thread_tell_listener(thread);
    thread_follow_node(thread);
    if (HAK_UNLIKELY(thread->waits >= CROWDED_WAITS)) {
        thread_move_if_crowded(thread);
    }
    if (thread->cache.lagging != NULL) {
        hak__arena_help(thread);
    }
    if (thread->twin != NULL && thread->twin->cache.lagging != NULL) { /* the tick found it */
        hak__arena_help(thread->twin);
    }
    if (hak__thread_settle_waits()) {
        (void)hak__thread_settle();
    }
}

/* A tick. The note of refusals stays as the operation left it: an allocation that was refused must
 * still take emergency memory, and one that was not must not. */
static HAK_NOINLINE void thread_tick(struct thread *thread)
{
    bool refused = hak__own.refused;
    if (hak__gate_enter(GATE_BRIEFLY)) {
        thread_do_what_is_due(thread);
        hak__gate_leave();
    }
    hak__own.refused = refused;
}

/* The heap has grown: a part of a pass over slabs in use. The note of refusals as in a tick. */
static HAK_NOINLINE void thread_grow(void)
{
    bool refused = hak__own.refused;
    if (hak__gate_enter(GATE_BRIEFLY)) {
        hak__arena_pages_grew();
        hak__gate_leave();
    }
    hak__own.refused = refused;
}

/* Gives back what became free, if that is a burst. The note of refusals as in a tick. */
static HAK_NOINLINE void thread_give_back(void)
{
    bool refused = hak__own.refused;
    if (hak__superslab_has_fallen() && hak__gate_enter(GATE_BRIEFLY)) {
        hak__arena_give_back();
        hak__gate_leave();
    }
    hak__own.refused = refused;
}

/* Work that needs only the lock of an arena. The gate would block signals, with three system calls:
 * one slow operation in 64 would take a microsecond longer. The note of refusals stays. */
static HAK_NOINLINE void thread_tidy(struct thread *thread, bool help)
{
    bool refused = hak__own.refused;
    if (!help) {
        hak__arena_tidy(thread);
    } else if (gate_begin()) {
        hak__arena_help(thread);
        gate_end();
    }
    hak__own.refused = refused;
}

/* One look, `elapsed_ms` after the last tick: ticks if it is late enough. */
static void thread_look(struct thread *thread, uint32_t elapsed_ms, uint32_t period_ms)
{
    if (elapsed_ms >= period_ms) {
        if (thread->interval == 0 &&
            hak__superslab_bytes_dirty() < SLABS_KEPT_SLICES * SLICE_SIZE) {
            thread->interval = 1; /* little waits: slow operations need not look any more */
        }
        thread_tick(thread);
    } else if (thread->operations >= TICK_OPERATIONS) {
        if (thread->waits >= CROWDED_WAITS || hak__thread_settle_waits() ||
            hak__huge_cache_exceeds()) {
            thread_tick(thread);
        } else {
            thread_tidy(thread, false);
        }
    }
}

static HAK_NOINLINE void thread_look_after_operations(struct thread *thread)
{
    thread_look(thread, hak__os_clock_ms() - thread->ticked_ms, hak__arena_tick_period_ms());
}

/* Much memory has become free: each of the thread's next TICK_OPERATIONS mallocs and slow
 * operations looks, and each further slow one until the thread takes it easier. */
static void thread_become_eager(struct thread *thread, uint32_t freed_much)
{
    thread->freed_much = freed_much;
    thread->eager_looks = TICK_OPERATIONS;
    thread->interval = 0;
    hak__sampling_set_countdown(thread, 0);
    thread_give_back();
}

/* The longest countdown after a malloc of `size` bytes: LOOK_BYTES, within LOOK_MALLOCS_LEAST to
 * 8 times as many mallocs of that size. */
static uint32_t countdown_most(uint32_t size)
{
    uint32_t least = LOOK_MALLOCS_LEAST * size, most = 8 * LOOK_MALLOCS_LEAST * size;
    most = most < LOOK_BYTES ? most : LOOK_BYTES;
    return most < least ? least : most;
}

uint64_t hak__thread_countdown_ended(struct thread *thread, size_t size)
{
    uint64_t sample_period = hak__sampling_count(thread, 0);
    uint32_t elapsed_ms = hak__os_clock_ms() - thread->ticked_ms;
    uint32_t period_ms = hak__arena_tick_period_ms();
    uint32_t bytes = size == 0 ? 1 : size < LOOK_BYTES ? (uint32_t)size : LOOK_BYTES;
    uint32_t most = countdown_most(bytes);
    uint32_t interval = thread->interval < most ? thread->interval : most;
    interval = elapsed_ms < period_ms
                   ? 2 * interval + bytes
                   : (uint32_t)((uint64_t)interval * period_ms / ((uint64_t)elapsed_ms + 1));
    thread->interval = interval < most ? interval : most;
    if (HAK_UNLIKELY(thread->eager_looks != 0)) {
        thread->eager_looks--;
        thread->interval = 0;
    }
    hak__sampling_set_countdown(thread, thread->interval);
    uint32_t freed_much = superslab_freed_much();
    if (HAK_UNLIKELY(freed_much != thread->freed_much)) {
        thread_become_eager(thread, freed_much);
    }
    thread_look(thread, elapsed_ms, period_ms);
    return sample_period;
}

void hak__thread_count_operation(void)
{
    hak__limit_notice(); /* at every slow operation: a single one may map any amount */
    struct thread *thread = hak__thread; /* the program's callback may have exchanged it */
    uint32_t freed_much = superslab_freed_much();
    if (HAK_UNLIKELY(freed_much != thread->freed_much)) {
        thread_become_eager(thread, freed_much);
    }
    if (HAK_UNLIKELY(superslab_has_grown())) {
        thread_grow();
    }
    /* interval 0: it may use spans and huge blocks only, or this may be its only call for long */
    if (HAK_UNLIKELY(++thread->operations % LOOK_OPERATIONS == 0 || thread->interval == 0)) {
        thread->eager_looks -= thread->eager_looks != 0;
        thread_look_after_operations(thread);
    }
    if (HAK_UNLIKELY(thread->cache.lagging != NULL)) {
        thread_tidy(thread, true);
    }
    if (HAK_UNLIKELY(huge_pages_are_begun())) {
        hak__huge_pages_look();
    }
}

void hak__thread_count_batch(struct thread *thread)
{
    if (HAK_UNLIKELY(++thread->batches % LOOK_OPERATIONS == 0)) {
        thread_look_after_operations(thread);
    }
    if (HAK_UNLIKELY(thread->cache.lagging != NULL)) {
        thread_tidy(thread, true);
        uint32_t freed_much = superslab_freed_much(); /* maybe by that */
        if (freed_much != thread->freed_much) {
            thread_become_eager(thread, freed_much);
        }
    }
}
