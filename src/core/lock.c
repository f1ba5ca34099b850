/* SPDX-License-Identifier: MIT */
/* lock.c: the contended half of lock.h. */
#include "core/lock.h"

#include "base/arch.h"
#include "core/gate.h"
#include "os/os.h"

/* Milliseconds after which a waiter looks again. A signal handler may stop a thread that was just
 * woken, and may wait for a fork that waits for this lock. A fork wakes waiters, but misses one
 * that is just falling asleep. Twice: such a lock stays free, and all others asleep, for twice as
 * long. With one, thousands of waiters leave the holder no time. */
#define LOCK_LOOK_MS 1000u
struct arch_own_line hak__lock_waits;
HAK_TLS struct own hak__own;

/* Spins for about a microsecond. True: the lock is taken. */
static bool lock_spin(struct lock *lock)
{
    atomic_add_relaxed(&hak__lock_waits.word, UINT64_C(1)); /* a counter */
    /* Pauses of a waiter before it sleeps: about one microsecond, less than it takes to sleep and
     * be woken. A critical section takes some tens of nanoseconds. Twice as many: more processor
     * time is lost if the holder was preempted. Half: more threads sleep, at two system calls
     * each. */
    for (int i = 0; i < 30; i++) {
        if (atomic_load_relaxed(&lock->shared_state) == 0 && lock_try(lock)) {
            return true;
        }
        arch_relax();
    }
    return false;
}

/* The count begins anew at each release that wakes a waiter. Nobody gives up with a state other
 * than 2, so the release after that is such a one. A store that is late or lost only makes one
 * thread give up too early, or wait a little longer. */
void hak__lock_wake(struct lock *lock)
{
    atomic_store_relaxed(&lock->shared_since_ms, 0u);
    hak__os_wake(&lock->shared_state);
}

/* Milliseconds from `since` to now. The clock wraps, and `since` may be 1 ms ahead of it. */
static uint32_t lock_waited_ms(uint32_t since)
{
    int32_t waited_ms = (int32_t)(hak__os_clock_ms() - since);
    return waited_ms > 0 ? (uint32_t)waited_ms : 0;
}

bool hak__lock_is_stuck(const struct lock *lock)
{
    uint32_t since = atomic_load_relaxed(&lock->shared_since_ms);
    return since != 0 && lock_waited_ms(since) >= LOCK_STUCK_MS &&
           atomic_load_relaxed(&lock->shared_state) == 2;
}

/* For a thread that has just found the lock taken and set its state to 2: starts the count of
 * milliseconds if this is the first such thread. True: the thread should give up. */
static bool lock_give_up(struct lock *lock)
{
    static uint32_t shared_gave_up_ms; /* when a waiter last gave up. Relaxed: a hint */
    uint32_t since = atomic_load_relaxed(&lock->shared_since_ms), now = hak__os_clock_ms();
    if (since == 0 && atomic_cas_acquire(&lock->shared_since_ms, &since, now | 1u)) {
        return false; /* 0 would mean that it is unknown */
    }
    if (lock_waited_ms(since) < LOCK_STUCK_MS) {
        return false;
    }
    if ((hak__inside & INSIDE_GATE) != 0) { /* whoever wants to stop this thread waits for it */
        return true;
    }
    uint32_t last = atomic_load_relaxed(&shared_gave_up_ms);
    /* Milliseconds for which a thread that has given up does not wait for any stuck lock: several
     * threads may be stopped, each with a lock. Twice: after a holder that was only preempted, a
     * thread gives up others like it for longer. Half: a slow collector waits again. */
    if ((uint16_t)(now - hak__own.gave_up_ms) >= LOCK_LOOK_MS &&
        (now - last < LOCK_GIVE_UP_MS || !atomic_cas_acquire(&shared_gave_up_ms, &last, now))) {
        return false;
    }
    hak__own.gave_up_ms = (uint16_t)now;
    return true;
}

bool hak__lock_wait(struct lock *lock, lock_sleep *sleep)
{
    bool may_stick = lock_may_get_stuck(lock);
    if (lock_spin(lock)) {
        return true;
    }
    /* Looks twice soon, and then seldom: thousands of waiters that look often leave the lock's
     * holder no time. */
    uint32_t longest_ms = may_stick ? LOCK_STUCK_MS : LOCK_LOOK_MS;
    /* acquire: pairs with the release in lock_release. 2, because other threads may sleep, too. */
    while (atomic_exchange_acquire(&lock->shared_state, 2u) != 0) {
        if (may_stick && lock_give_up(lock)) {
            return false;
        }
        if (sleep == NULL) {
            hak__os_wait_ms(&lock->shared_state, 2, longest_ms);
        } else if (!sleep(&lock->shared_state, 2, longest_ms)) {
            return false;
        }
        longest_ms = longest_ms == LOCK_STUCK_MS ? LOCK_GIVE_UP_MS : LOCK_LOOK_MS;
    }
    atomic_store_relaxed(&lock->shared_since_ms, 0u);
    lock_note_held(lock);
    return true;
}

uint64_t hak__lock_block_signals(void)
{
    return alone() ? OS_SIGNALS_UNCHANGED : hak__os_block_signals();
}

void hak__lock_check_signals(const struct lock *lock)
{
    /* Outside of an operation only tests take locks, and the start. */
    HAK_ASSERT(lock_may_get_stuck(lock) || alone() || hak__inside == 0 || hak__os_is_filtered() ||
               hak__os_signals_are_blocked());
    (void)lock;
}
