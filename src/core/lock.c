/* lock.c: the contended half of lock.h. */
#include "core/lock.h"

#include "base/arch.h"
#include "os/os.h"

/* Pauses of a waiter before it sleeps: about one microsecond, less than it takes to sleep and be
 * woken. A critical section takes some tens of nanoseconds. Twice as many: more processor time is
 * lost if the holder was preempted. Half: more threads sleep, at two system calls each. */
#define LOCK_SPINS 30
/* Milliseconds after which a waiter looks again. A signal handler may stop a thread that was just
 * woken, and may wait for a fork that waits for this lock. Twice: such a lock stays free, and all
 * others asleep, for twice as long. With one, thousands of waiters leave the holder no time. */
#define LOCK_LOOK_MS 1000u

uint64_t hak__lock_waits;
HAK_TLS uint32_t hak__lock_held;

bool hak__lock_spin(struct lock *lock)
{
    atomic_add_relaxed(&hak__lock_waits, UINT64_C(1)); /* a counter */
    for (int i = 0; i < LOCK_SPINS; i++) {
        if (atomic_load_relaxed(&lock->shared_state) == 0 && lock_try(lock)) {
            return true;
        }
        arch_relax();
    }
    return false;
}

void hak__lock_wait(struct lock *lock)
{
    if (hak__lock_spin(lock)) {
        return;
    }
    /* acquire: pairs with the release in lock_release. 2, because other threads may sleep, too. */
    while (atomic_exchange_acquire(&lock->shared_state, 2u) != 0) {
        hak__os_wait_ms(&lock->shared_state, 2, LOCK_LOOK_MS);
    }
    lock_note_held(lock);
}

void hak__lock_wake(struct lock *lock)
{
    hak__os_wake(&lock->shared_state);
}
