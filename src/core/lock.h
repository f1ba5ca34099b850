/* lock.h: a ranked mutex on a futex.
 *
 * State: 0 free, 1 held, 2 held and somebody may sleep (Drepper, "Futexes are tricky", 2011, mutex
 * 2). A waiter spins only a little and only on several processors' worth of luck: whoever holds a
 * lock here may have been preempted, and spinning on a preempted thread is the classic collapse
 * with more threads than cores.
 *
 * Ranks rise: a thread that holds a lock of rank r takes only locks of a higher rank. Heaps are all
 * of one rank; a thread holds two of them only in fork, which takes them in list order while the
 * gate is closed (core/gate.h). The order is checked at level 1.
 *
 * Held over a call into os/ are only GROWTH (a claim, a microsecond; an madvise that says which
 * pages there are to be; out of memory, or above the soft limit, the munmap of wholly free
 * superslabs), HUGE (a look at the pages of 2 MiB, a few microseconds), PURGE (at most 6 MiB at a
 * time; nobody waits for it but trims) and START (once).
 *
 * Fork never holds a lock that another thread waits for without an end: core/gate.h.
 */
#ifndef HAK_CORE_LOCK_H
#define HAK_CORE_LOCK_H

#include "base/alone.h"
#include "base/atomics.h"
#include "base/check.h"

enum lock_rank {
    LOCK_RANK_FORK = 1, /* heap/fork.c: one fork at a time */
    LOCK_RANK_HEAPS,    /* heap/heap.c: the list of heaps and the parked ones */
    LOCK_RANK_HEAP,     /* one heap's slow paths */
    LOCK_RANK_PURGE,    /* region/purge.c: slices on their way to the OS, one superslab at a time */
    LOCK_RANK_WHALES,   /* large/whale.c: registry and cache */
    LOCK_RANK_GROWTH,   /* region/: the window's frontier; held over the claim's system call */
    LOCK_RANK_HUGE,     /* region/huge.c: what speaks for huge pages */
    LOCK_RANK_REGION,   /* region/: free maps */
    LOCK_RANK_START     /* heap/start.c: first use; a leaf */
};

struct lock {
    uint32_t shared_state;
    uint32_t rank;
};

#define LOCK_INITIAL(lock_rank)                                                                    \
    {                                                                                              \
        0, (lock_rank)                                                                             \
    }

HAK_HIDDEN void hak__lock_wait(struct lock *lock);
/* Its first part: tries for about a microsecond. */
HAK_HIDDEN bool hak__lock_spin(struct lock *lock);
HAK_HIDDEN void hak__lock_wake(struct lock *lock);
/* Waits for locks since start, relaxed: contention as a figure. */
HAK_HIDDEN extern uint64_t hak__lock_waits;

/* Bit r: this thread holds a lock of rank r. Kept at level 1 and above only. */
HAK_HIDDEN extern HAK_TLS uint32_t hak__lock_held;

HAK_INLINE void lock_note_held(const struct lock *lock)
{
    if (HAK_LEVEL >= 1) {
        hak__lock_held |= 1u << lock->rank;
    }
}

/* Alone, nobody can hold a lock or want one, and no locked operation is needed, which would wait
 * until all that the program has stored is in the cache (docs/decisions/0040). States are the same
 * both ways: who takes a lock alone may release it beside others, and the other way round (fork).
 */
HAK_INLINE bool lock_try(struct lock *lock)
{
    if (alone()) {
        if (atomic_load_relaxed(&lock->shared_state) != 0) { /* in a signal handler */
            return false;
        }
        atomic_store_relaxed(&lock->shared_state, 1u);
        atomic_fence_signal();
    } else {
        uint32_t expected = 0;
        /* acquire: pairs with the release in lock_release of the last holder */
        if (!atomic_cas_acquire(&lock->shared_state, &expected, 1u)) {
            return false;
        }
    }
    lock_note_held(lock);
    return true;
}

/* True when it was found taken. */
HAK_INLINE bool lock_acquire(struct lock *lock)
{
    HAK_ASSERT((hak__lock_held >> lock->rank) == 0); /* ranks rise */
    if (HAK_UNLIKELY(!lock_try(lock))) {
        hak__lock_wait(lock);
        return true;
    }
    return false;
}

/* For fork, which takes all locks: no order check. */
HAK_INLINE void lock_acquire_another(struct lock *lock)
{
    if (!lock_try(lock)) {
        hak__lock_wait(lock);
    }
}

HAK_INLINE void lock_release(struct lock *lock)
{
    HAK_ASSERT(atomic_load_relaxed(&lock->shared_state) != 0);
    if (HAK_LEVEL >= 1) {
        hak__lock_held &= ~(1u << lock->rank);
    }
    if (alone()) {
        atomic_store_release(&lock->shared_state, 0u);
        /* release: pairs with the acquire of the next holder */
    } else if (HAK_UNLIKELY(atomic_exchange_release(&lock->shared_state, 0u) == 2)) {
        hak__lock_wake(lock);
    }
}

#endif
