/* SPDX-License-Identifier: MIT */
/* lock.h: a mutex on a futex, with a rank that prevents deadlocks.
 *
 * State: 0 free, 1 held, 2 held and other threads may sleep on it (U. Drepper, "Futexes are
 * tricky", 2011, mutex 2). A waiter spins for about a microsecond and then sleeps. It does not spin
 * longer, because the holder may have been preempted, and then spinning takes processor time from
 * it.
 *
 * Ranks: a thread that holds a lock of rank r takes only locks of a higher rank. All arenas have
 * the same rank. Only fork holds the locks of several; it takes them in the order of the list of
 * arenas while the gate is closed (core/gate.h). Assertion level 1 checks the order.
 *
 * docs/design/locks.md lists the locks, and which of them are held over system calls.
 *
 * munmap, mremap and MADV_DONTNEED of memory that was the program's may wait for another thread of
 * it, which watches that memory by a userfaultfd and may allocate first. So no lock is held over
 * them that a malloc waits for without end: only ARENA and PURGE.
 *
 * A thread that waits for a lock that fork holds is refused after a while: core/gate.h.
 *
 * Stopped threads: a signal handler may stop a thread at any point and wait until the thread that
 * sent the signal goes on (a collector). If that one allocates, it must not wait for a lock of the
 * stopped thread. So there are two kinds of locks:
 *   ARENA, REGION
 *                 Signals may arrive while a thread holds them, because blocking signals costs
 *                 three system calls. Nobody waits for them without end: a waiter gives up when
 *                 nobody has released the lock for LOCK_STUCK_MS. It then leaves its work out,
 *                 puts it off, or is refused as beside a fork. A preempted holder looks the same,
 *                 so only one more waiter gives up in each LOCK_GIVE_UP_MS. That limit does not
 *                 hold for threads at the gate, nor for one that has given up within the last
 *                 second.
 *   all others    Whoever takes them has blocked signals, unless the process has one thread: the
 *                 gate does that (core/gate.h), or hak__lock_block_signals. So no holder is
 *                 stopped. Every wait of a holder ends, but of PURGE's, for which nobody waits. So
 *                 waits for these locks need no bound.
 */
#ifndef HAK_CORE_LOCK_H
#define HAK_CORE_LOCK_H

#include "base/alone.h"
#include "base/arch.h"
#include "base/atomics.h"
#include "base/check.h"

enum lock_rank {
    LOCK_RANK_FORK = 1,   /* arena/fork.c: one fork at a time */
    LOCK_RANK_HEAPS,      /* heap/: caches of heaps, and what waits to be used again */
    LOCK_RANK_HEAP,       /* heap/: one heap */
    LOCK_RANK_SAMPLES,    /* observe/samples.c: live samples and their stacks */
    LOCK_RANK_ARENAS,     /* arena/arena.c: the list of arenas and the parked ones */
    LOCK_RANK_ARENA,      /* one arena's slow paths */
    LOCK_RANK_PURGE,      /* region/purge.c: one thread at a time purges */
    LOCK_RANK_HUGE,       /* large/huge.c: the registry and the cache of huge blocks */
    LOCK_RANK_GROWTH,     /* region/: the window's frontier, where superslabs are claimed */
    LOCK_RANK_HUGE_PAGES, /* region/huge_pages.c: the evidence for huge pages */
    LOCK_RANK_REGION,     /* region/: the maps of free slices */
    LOCK_RANK_START,      /* arena/start.c: first use; only SEAL is taken under it */
    LOCK_RANK_SEAL        /* core/seal.c: writes of options; no lock is taken under it */
};

struct lock {
    uint32_t shared_state;
    uint32_t rank;
    uint32_t shared_since_ms; /* since when threads wait in vain; 0: unknown. Relaxed: a hint */
};

/* A lock that all threads take shares its cache line with nothing. */
#define HAK_LOCK_LINE __attribute__((section(".data.locks"), aligned(HAK_CACHE_LINE)))

#define LOCK_INITIAL(lock_rank)                                                                    \
    {                                                                                              \
        0, (lock_rank), 0                                                                          \
    }

/* Milliseconds without a release after which a lock is stuck: its holder may be stopped. Twice: a
 * collector that finds its arena's lock taken waits that much longer. Half: more waits for holders
 * that are only preempted are given up. */
#define LOCK_STUCK_MS 50u
/* Then one waiter of the process gives up, and the next one after this time. Twice: several threads
 * that run beside stopped ones wait longer for each other. Half: where a machine is overloaded,
 * twice as many threads change their arena or get emergency memory for nothing. */
#define LOCK_GIVE_UP_MS 100u

/* A lock that a stopped thread may hold. */
HAK_INLINE bool lock_may_get_stuck(const struct lock *lock)
{
    return lock->rank == LOCK_RANK_ARENA || lock->rank == LOCK_RANK_REGION;
}

/* True if the lock is taken and stuck. A hint. */
HAK_HIDDEN bool hak__lock_is_stuck(const struct lock *lock);
/* Blocks signals, unless the process has one thread. Returns the argument for
 * hak__os_restore_signals. */
HAK_HIDDEN uint64_t hak__lock_block_signals(void);
/* Assertion level 1: a lock that needs blocked signals is taken with blocked signals. */
HAK_HIDDEN void hak__lock_check_signals(const struct lock *lock);

/* Sleeps while *word == value, `longest_ms` at most. False: the thread is to wait no more. */
typedef bool lock_sleep(uint32_t *word, uint32_t value, uint32_t longest_ms);
/* Waits for a lock that another thread holds, and takes it: spins for about a microsecond, then
 * sleeps. NULL: as long as it takes. False: the holder of ARENA or REGION seems to be stopped, or
 * `sleep` says so. */
HAK_HIDDEN bool hak__lock_wait(struct lock *lock, lock_sleep *sleep);
/* Wakes one thread that sleeps on the lock. */
HAK_HIDDEN void hak__lock_wake(struct lock *lock);
/* How often a thread found a lock taken, since start. Relaxed: a counter. */
HAK_HIDDEN extern struct arch_own_line hak__lock_waits;

HAK_STATIC_ASSERT(LOCK_RANK_SEAL < 16, "hak__own.held has a bit for each rank");

HAK_INLINE void lock_note_held(const struct lock *lock)
{
    if (HAK_LEVEL >= 1) {
        hak__own.held = (uint16_t)(hak__own.held | 1u << lock->rank);
        hak__lock_check_signals(lock);
    }
}

/* Takes the lock if it is free. If the process has only one thread, it needs no atomic operation:
 * that would wait until all earlier stores of the program are in the cache (docs/decisions/0040).
 * Both ways use the same states, because a thread may be alone when it takes a lock and not alone
 * when it releases it, or the reverse (fork). */
HAK_INLINE bool lock_try(struct lock *lock)
{
    if (alone()) {
        if (atomic_load_relaxed(&lock->shared_state) != 0) { /* a signal handler interrupted it */
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

/* Takes the lock, unless it is ARENA or REGION and its holder seems to be stopped (false). */
HAK_INLINE bool lock_acquire_soon(struct lock *lock)
{
    HAK_ASSERT((hak__own.held >> lock->rank) == 0); /* ranks rise */
    return HAK_LIKELY(lock_try(lock)) || hak__lock_wait(lock, NULL);
}

/* Takes any other lock. */
HAK_INLINE void lock_acquire(struct lock *lock)
{
    HAK_ASSERT(!lock_may_get_stuck(lock));
    (void)lock_acquire_soon(lock);
}

HAK_INLINE void lock_release(struct lock *lock)
{
    HAK_ASSERT(atomic_load_relaxed(&lock->shared_state) != 0);
    if (HAK_LEVEL >= 1) {
        hak__own.held = (uint16_t)(hak__own.held & ~(1u << lock->rank));
    }
    if (alone()) {
        atomic_store_release(&lock->shared_state, 0u);
        /* release: pairs with the acquire of the next holder */
    } else if (HAK_UNLIKELY(atomic_exchange_release(&lock->shared_state, 0u) == 2)) {
        hak__lock_wake(lock);
    }
}

#endif
