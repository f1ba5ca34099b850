/* SPDX-License-Identifier: MIT */
/* gate.c: see gate.h. */
#include "core/gate.h"

#include "base/probe.h"
#include "os/os.h"

/* Milliseconds that a thread waits for a fork before it is refused. A small process forks faster,
 * so nobody is refused there. Twice: fork beside a thread that holds a lock of the C library takes
 * longer. Half: more blocks come from emergency memory, which takes at least an OS page each. */
#define GATE_WAIT_MS 1u
/* Milliseconds after which a thread that waits at the gate, or for a lock that nobody holds for
 * long, looks again for a fork. Fork wakes the waiters, but a thread that is just falling asleep
 * misses that. Twice: such a thread may hold up a fork for longer. With one millisecond, thousands
 * of waiters leave no time for the lock's holder. */
#define GATE_LOOK_MS 1000u
/* Waits of GATE_WAIT_MS, in all, that a thread makes for forks once it hurries. Twice: _exit takes
 * up to 0.2 seconds longer if a fork waits for a lock that this thread holds. Half: a report at
 * _exit is lost if another thread's fork takes 0.1 seconds. */
#define GATE_HURRY_WAITS 200u

/* The gate's word: bit 0 says that the gate is closed; the other bits count the threads inside. */
#define GATE_CLOSED 1u
#define GATE_THREAD 2u

HAK_TLS uint32_t hak__inside;
/* What the thread's signals were when it came in. While it is inside the gate. */
static HAK_TLS uint64_t gate_signals;
HAK_STATIC_ASSERT(GATE_HURRY_WAITS <= UINT8_MAX, "the waits fit");
static uint32_t shared_gate;
/* 1: a thread has waited GATE_WAIT_MS for this fork in vain, so others are refused at once.
 * Relaxed: a hint. */
static uint32_t shared_gate_slow;
/* Forks by signal handlers that interrupted an operation. Its thread may hold an arena's lock, and
 * the fork waits for locks of the C library, so nobody may wait for it either. Relaxed: a thread
 * that sees a change late waits until it looks again. */
static uint32_t shared_gate_inner;

bool hak__gate_refuse(void)
{
    probe_hakmem_gate_refused(hak__inside);
    hak__own.refused = true;
    return false;
}

bool hak__gate_is_refusal_noted(void)
{
    return hak__own.refused;
}

bool hak__gate_was_refused(void)
{
    bool refused = hak__own.refused;
    hak__own.refused = false;
    return refused;
}

void hak__gate_note_refusal(bool refused)
{
    hak__own.refused = refused;
}

void hak__gate_pin(bool pinned)
{
    hak__own.pinned = pinned;
}

bool hak__gate_is_pinned(void)
{
    return hak__own.pinned;
}

static bool gate_lets_in(uint32_t gate)
{
    return (gate & GATE_CLOSED) == 0 && atomic_load_relaxed(&shared_gate_inner) == 0;
}

static bool gate_is_closed(void)
{
    return !gate_lets_in(atomic_load_relaxed(&shared_gate));
}

/* Sleeps while *word == value, but no longer than `look_ms`. False: a fork is under way, and
 * threads have waited for it as long as they may. */
static bool gate_sleep(uint32_t *word, uint32_t value, uint32_t look_ms)
{
    bool closed = gate_is_closed();
    if (closed && atomic_load_relaxed(&shared_gate_slow) != 0) {
        return false;
    }
    if (hak__os_wait_ms(word, value, closed ? GATE_WAIT_MS : look_ms) || !closed ||
        !gate_is_closed()) {
        return true;
    }
    atomic_store_relaxed(&shared_gate_slow, 1u);
    return false;
}

bool hak__gate_wait_for(struct lock *lock)
{
    if (hak__lock_spin(lock)) {
        return true;
    }
    bool may_stick = lock_may_get_stuck(lock);
    uint32_t sleeps = 0;
    /* acquire, and 2 as the new state: see hak__lock_wait */
    while (atomic_exchange_acquire(&lock->shared_state, 2u) != 0) {
        if (may_stick && hak__lock_give_up(lock)) {
            return hak__gate_refuse();
        }
        uint32_t look_ms = may_stick ? hak__lock_sleep_ms(sleeps++) : GATE_LOOK_MS;
        if (!gate_sleep(&lock->shared_state, 2, look_ms)) {
            return hak__gate_refuse();
        }
    }
    if (may_stick) {
        atomic_store_relaxed(&lock->shared_since_ms, 0u);
    }
    lock_note_held(lock);
    return true;
}

/* Takes one of the waits that a patient thread has left. False: there is none. */
static bool gate_may_wait(void)
{
    bool may = !hak__own.hurries || hak__own.waits_left != 0;
    if (may && hak__own.hurries) {
        hak__own.waits_left--;
    }
    return may;
}

static void gate_let_signals(void)
{
    atomic_fence_signal();
    hak__inside &= ~INSIDE_GATE;
    hak__os_restore_signals(gate_signals);
}

/* Goes in if the gate is open. Else `*now` is its word. */
static bool gate_try(uint32_t *now)
{
    gate_signals = hak__lock_block_signals(); /* before the thread counts: it must not be stopped */
    hak__inside = INSIDE_GATE;
    atomic_fence_signal();
    *now = atomic_load_relaxed(&shared_gate);
    while (gate_lets_in(*now)) {
        /* acquire: pairs with the release in hak__gate_open */
        if (atomic_cas_weak_acquire(&shared_gate, now, *now + GATE_THREAD)) {
            return true;
        }
    }
    gate_let_signals();
    return false;
}

static bool gate_enter(bool patiently)
{
    uint32_t now;
    if (hak__inside != 0) {
        return hak__gate_refuse();
    }
    while (!gate_try(&now)) {
        if (patiently && gate_may_wait()) {
            hak__os_wait_ms(&shared_gate, now, GATE_WAIT_MS);
        } else if (!gate_sleep(&shared_gate, now, GATE_LOOK_MS)) {
            return hak__gate_refuse();
        }
    }
    return true;
}

bool hak__gate_enter(void)
{
    return gate_enter(false);
}

bool hak__gate_enter_patiently(void)
{
    return gate_enter(true);
}

void hak__gate_hurry(bool hurries)
{
    hak__own.hurries = hurries;
    hak__own.waits_left = GATE_HURRY_WAITS;
}

void hak__gate_leave(void)
{
    if ((hak__inside & INSIDE_GATE) == 0) {
        return;
    }
    uint32_t now = atomic_load_relaxed(&shared_gate);
    /* release: pairs with the acquire in hak__gate_close. The count may be 0: hak__gate_reset. */
    while (now >= GATE_THREAD && !atomic_cas_weak_release(&shared_gate, &now, now - GATE_THREAD)) {
    }
    if (now == (GATE_THREAD | GATE_CLOSED)) {
        hak__os_wake_all(&shared_gate); /* wakes fork, and threads that are about to be refused */
    }
    gate_let_signals();
}

bool hak__gate_let_pass(void)
{
    if ((hak__inside & INSIDE_GATE) == 0 || (alone() && !gate_is_closed())) {
        return true;
    }
    hak__gate_leave();
    return hak__gate_enter();
}

static void gate_let_ending_signals(bool come)
{
    if ((hak__inside & INSIDE_GATE) != 0 && gate_signals != OS_SIGNALS_UNCHANGED) {
        hak__os_let_ending_signals(gate_signals, come);
    }
}

void hak__gate_begin_call(void)
{
    gate_let_ending_signals(true);
}

void hak__gate_end_call(void)
{
    gate_let_ending_signals(false);
}

void hak__gate_close(void)
{
    atomic_store_relaxed(&shared_gate_slow, 0u);
    atomic_or_relaxed(&shared_gate, GATE_CLOSED);
    uint32_t now;
    /* acquire: pairs with the release in hak__gate_leave of each thread that was inside */
    while ((now = atomic_load_acquire(&shared_gate)) != GATE_CLOSED) {
        hak__os_wait_ms(&shared_gate, now, GATE_WAIT_MS);
    }
}

void hak__gate_open(void)
{
    atomic_store_release(&shared_gate, 0u); /* pairs with the acquire in gate_enter */
    if (!alone()) {
        hak__os_wake_all(&shared_gate);
    }
}

void hak__gate_begin_inner(bool interrupts)
{
    hak__own.inner_forks++;
    if (interrupts) {
        atomic_store_relaxed(&shared_gate_slow, 0u);
        atomic_add_relaxed(&shared_gate_inner, 1u); /* pairs with nothing: see its declaration */
    }
}

bool hak__gate_end_inner(bool interrupts)
{
    if (hak__own.inner_forks == 0) {
        return false;
    }
    hak__own.inner_forks--;
    if (interrupts) {
        atomic_sub_relaxed(&shared_gate_inner, 1u); /* pairs with nothing: see its declaration */
    }
    return true;
}

void hak__gate_forget_inner(void)
{
    hak__own.inner_forks = 0;
    atomic_store_relaxed(&shared_gate_inner, 0u);
}

void hak__gate_reset(void)
{
    /* A signal may come just before or just after its thread is counted, so the count of the
     * interrupted operation is unknown. hak__gate_leave accepts 0. */
    atomic_store_relaxed(&shared_gate, 0u);
}
