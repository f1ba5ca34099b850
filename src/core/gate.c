/* SPDX-License-Identifier: MIT */
/* gate.c: see gate.h. */
#include "core/gate.h"

#include "base/probe.h"
#include "os/os.h"

/* Milliseconds that a thread waits for a fork before it is refused. A small process forks faster,
 * so nobody is refused there. Twice: fork beside a thread that holds a lock of the C library takes
 * longer. Half: more blocks come from emergency memory, which takes at least an OS page each. */
#define GATE_WAIT_MS 1u
/* The gate's word: the low bits count the forks that keep it closed, the others the threads inside.
 * Linux has ids for that many threads. With more forks at once, the gate looks open now and then:
 * they wait a little longer. */
#define GATE_THREAD 1024u

HAK_TLS uint32_t hak__inside;
/* What the thread's signals were when it came in. While it is inside the gate. */
static HAK_TLS uint64_t gate_signals;
static uint32_t shared_gate;
/* 1: a thread has waited GATE_WAIT_MS for this fork in vain, so others are refused at once.
 * Relaxed: a hint. */
static uint32_t shared_gate_slow;

bool hak__gate_refuse(void)
{
    probe_hakmem_gate_refused(hak__inside);
    hak__own.refused = true;
    return false;
}

static bool gate_is_closed(void)
{
    return atomic_load_relaxed(&shared_gate) % GATE_THREAD != 0;
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

bool hak__gate_acquire(struct lock *lock)
{
    HAK_ASSERT((hak__own.held >> lock->rank) == 0); /* ranks rise */
    return lock_try(lock) || hak__lock_wait(lock, gate_sleep) || hak__gate_refuse();
}

/* False: the thread hurries, and has waited as often as it may. */
static bool gate_is_patient(void)
{
    if (hak__own.hurry > 1) {
        hak__own.hurry--;
    }
    return hak__own.hurry != 1;
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
    while (*now % GATE_THREAD == 0) {
        /* acquire: pairs with the release in hak__gate_open and hak__gate_reset */
        if (atomic_cas_weak_acquire(&shared_gate, now, *now + GATE_THREAD)) {
            return true;
        }
    }
    gate_let_signals();
    return false;
}

bool hak__gate_enter(enum gate_wait wait)
{
    uint32_t now;
    if (hak__inside != 0) {
        return hak__gate_refuse();
    }
    while (!gate_try(&now)) {
        if (wait == GATE_PATIENTLY && gate_is_patient()) {
            hak__os_wait_ms(&shared_gate, now, GATE_WAIT_MS);
        } else if (!gate_sleep(&shared_gate, now, GATE_WAIT_MS)) {
            return hak__gate_refuse();
        }
    }
    return true;
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
    if (now > GATE_THREAD && now < 2 * GATE_THREAD) { /* the last one, while it is closed */
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
    return hak__gate_enter(GATE_BRIEFLY);
}

void hak__gate_let_ending_signals(bool come)
{
    if ((hak__inside & INSIDE_GATE) != 0 && gate_signals != OS_SIGNALS_UNCHANGED) {
        hak__os_let_ending_signals(gate_signals, come);
    }
}

void hak__gate_close(void)
{
    atomic_store_relaxed(&shared_gate_slow, 0u);
    atomic_add_relaxed(&shared_gate, 1u);
    uint32_t now;
    /* acquire: pairs with the release in hak__gate_leave of each thread that was inside */
    while ((hak__inside & INSIDE_OPERATION) == 0 &&
           (now = atomic_load_acquire(&shared_gate)) >= GATE_THREAD) {
        hak__os_wait_ms(&shared_gate, now, GATE_WAIT_MS);
    }
}

void hak__gate_open(void)
{
    atomic_sub_release(&shared_gate, 1u); /* pairs with the acquire in gate_try */
    if (!alone()) {
        hak__os_wake_all(&shared_gate);
    }
}

void hak__gate_reset(void)
{
    /* A signal may come just before or just after its thread is counted, so the count of the
     * interrupted operation is unknown. hak__gate_leave accepts 0. */
    atomic_store_release(&shared_gate, 0u); /* pairs with the acquire in gate_try */
}
