/* gate.h: how fork finds the heaps at rest, and who never waits.
 *
 * A slow operation begins in one of two ways. With the lock of a heap (gate_lock), or, if its first
 * lock is another one, at the gate (hak__gate_enter), which counts those inside. Fork closes the
 * gate, waits until nobody is inside, and takes the heaps' locks: then every lock is free and all
 * that locks guard is whole. No thread inside ever waits for a lock of the C library, so fork does
 * not wait long.
 *
 * Fork then waits for locks of the C library, which others may hold while they allocate. So nobody
 * waits long for fork: whoever comes meanwhile sleeps GATE_WAIT_MS at most and is then refused. Who
 * is refused does without: large/emergency.h.
 *
 * Also refused, at once, is a thread that is inside already: its signal handler interrupted a slow
 * operation, which may hold any lock; it is inside fork itself; or it has reported a fatal error.
 *
 * Functions that begin a slow operation are those of front/, and of heap/ where heap.h says so.
 * Everything below them takes its locks plainly.
 */
#ifndef HAK_CORE_GATE_H
#define HAK_CORE_GATE_H

#include "core/lock.h"

/* What this thread is inside of: bits. */
#define INSIDE_LOCK 1u   /* an operation that began with a heap's lock */
#define INSIDE_GATE 2u   /* one that began at the gate */
#define INSIDE_FORK 4u   /* between fork's handlers */
#define INSIDE_REPORT 8u /* a fatal error was reported */
/* Seen by a function that may begin an operation: a signal handler has interrupted one, or this
 * thread has reported a fatal error. Any lock may be this thread's. */
#define INSIDE_OPERATION (INSIDE_LOCK | INSIDE_GATE | INSIDE_REPORT)
HAK_HIDDEN extern HAK_TLS uint32_t hak__inside;

/* False: refused. */
HAK_HIDDEN bool hak__gate_enter(void);
/* Waits for the end of any fork: for those who hold no lock of the C library. False: this thread is
 * inside already. */
HAK_HIDDEN bool hak__gate_enter_patiently(void);
/* By a thread that entered; does nothing for others. */
HAK_HIDDEN void hak__gate_leave(void);
/* For long operations, between two of their parts: lets a fork that waits go first. False: it did,
 * and this thread was refused and is no longer inside. */
HAK_HIDDEN bool hak__gate_let_pass(void);

/* Notes a refusal of this thread; always false. */
HAK_HIDDEN HAK_COLD bool hak__gate_refuse(void);
/* Is one noted? The second forgets it. */
HAK_HIDDEN bool hak__gate_is_refusal_noted(void);
HAK_HIDDEN bool hak__gate_was_refused(void);

/* Takes a lock that was found taken. False: refused. By a thread that is inside. */
HAK_HIDDEN bool hak__gate_wait_for(struct lock *lock);

/* Fork only: close returns when nobody is inside, open also in the child. */
HAK_HIDDEN void hak__gate_close(void);
HAK_HIDDEN void hak__gate_open(void);
/* In the child of a signal handler that interrupted an operation: nobody else is inside. */
HAK_HIDDEN void hak__gate_reset(void);

/* The first half of gate_lock. False: refused. */
HAK_INLINE bool gate_begin(void)
{
    if (HAK_UNLIKELY(hak__inside != 0)) {
        return hak__gate_refuse();
    }
    hak__inside = INSIDE_LOCK; /* before the lock: a signal handler must see it while it is held */
    atomic_fence_signal();
    return true;
}

/* The end of an operation that began with gate_lock, after its lock was released. */
HAK_INLINE void gate_end(void)
{
    atomic_fence_signal();
    hak__inside &= ~INSIDE_LOCK; /* who borrowed a thread struct is inside the gate until later */
}

/* The second half: takes a heap's lock. False: refused, and the operation is over. */
HAK_INLINE bool gate_finish(struct lock *lock)
{
    HAK_ASSERT((hak__lock_held >> lock->rank) == 0); /* ranks rise */
    if (HAK_LIKELY(lock_try(lock)) || hak__gate_wait_for(lock)) {
        return true;
    }
    gate_end();
    return false;
}

/* Begins an operation with a heap's lock. False: refused. */
HAK_INLINE bool gate_lock(struct lock *lock)
{
    return gate_begin() && gate_finish(lock);
}

#endif
