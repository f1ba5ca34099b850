/* gate.c: see gate.h. */
#include "core/gate.h"

#include "os/os.h"

/* Longer than the fork of a small process takes: nobody is refused there. */
#define GATE_WAIT_MS 1u
/* While no fork is under way a lock is waited for without a look: fork wakes those who wait. One
 * that was just about to sleep misses that, and looks by itself after so long. Thousands of threads
 * that look every millisecond leave no time for the holder. */
#define GATE_LOOK_MS 1000u

/* The word: bit 0: closed; the rest: threads inside. */
#define GATE_CLOSED 1u
#define GATE_THREAD 2u

HAK_TLS uint32_t hak__inside;
static HAK_TLS bool gate_refused;
static uint32_t shared_gate;
/* 1: somebody waited for the fork under way in vain. Others need not try. Relaxed: a hint. */
static uint32_t shared_gate_slow;

bool hak__gate_refuse(void)
{
    gate_refused = true;
    return false;
}

bool hak__gate_is_refusal_noted(void)
{
    return gate_refused;
}

bool hak__gate_was_refused(void)
{
    bool refused = gate_refused;
    gate_refused = false;
    return refused;
}

static bool gate_is_closed(void)
{
    return (atomic_load_relaxed(&shared_gate) & GATE_CLOSED) != 0;
}

/* Sleeps while *word == value. False: a fork is under way and takes longer than others can wait. */
static bool gate_sleep(uint32_t *word, uint32_t value)
{
    bool closed = gate_is_closed();
    if (closed && atomic_load_relaxed(&shared_gate_slow) != 0) {
        return false;
    }
    if (hak__os_wait_ms(word, value, closed ? GATE_WAIT_MS : GATE_LOOK_MS) || !closed ||
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
    /* acquire, 2: as in hak__lock_wait */
    while (atomic_exchange_acquire(&lock->shared_state, 2u) != 0) {
        if (!gate_sleep(&lock->shared_state, 2)) {
            return hak__gate_refuse();
        }
    }
    lock_note_held(lock);
    return true;
}

static bool gate_enter(bool patiently)
{
    if (hak__inside != 0) {
        return hak__gate_refuse();
    }
    hak__inside = INSIDE_GATE;
    atomic_fence_signal();
    uint32_t now = atomic_load_relaxed(&shared_gate);
    for (;;) {
        if ((now & GATE_CLOSED) == 0) {
            /* acquire: pairs with the release in hak__gate_open */
            if (atomic_cas_weak_acquire(&shared_gate, &now, now + GATE_THREAD)) {
                return true;
            }
        } else if (patiently) {
            hak__os_wait_ms(&shared_gate, now, GATE_WAIT_MS);
            now = atomic_load_relaxed(&shared_gate);
        } else if (gate_sleep(&shared_gate, now)) {
            now = atomic_load_relaxed(&shared_gate);
        } else {
            hak__inside = 0;
            return hak__gate_refuse();
        }
    }
}

bool hak__gate_enter(void)
{
    return gate_enter(false);
}

bool hak__gate_enter_patiently(void)
{
    return gate_enter(true);
}

void hak__gate_leave(void)
{
    if ((hak__inside & INSIDE_GATE) == 0) {
        return;
    }
    uint32_t now = atomic_load_relaxed(&shared_gate);
    /* release: pairs with the acquire in hak__gate_close. 0: see hak__gate_reset. */
    while (now >= GATE_THREAD && !atomic_cas_weak_release(&shared_gate, &now, now - GATE_THREAD)) {
    }
    if (now == (GATE_THREAD | GATE_CLOSED)) {
        hak__os_wake_all(&shared_gate); /* fork, and who is about to be refused */
    }
    atomic_fence_signal();
    hak__inside &= ~INSIDE_GATE;
}

bool hak__gate_let_pass(void)
{
    if ((hak__inside & INSIDE_GATE) == 0 || !gate_is_closed()) {
        return true;
    }
    hak__gate_leave();
    return hak__gate_enter();
}

void hak__gate_close(void)
{
    atomic_store_relaxed(&shared_gate_slow, 0u);
    atomic_or_relaxed(&shared_gate, GATE_CLOSED);
    uint32_t now;
    /* acquire: pairs with the release in hak__gate_leave of each that was inside */
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

void hak__gate_reset(void)
{
    /* A signal may come just before or after an operation is counted, so this one is not. */
    atomic_store_relaxed(&shared_gate, 0u);
}
