/* SPDX-License-Identifier: MIT */
/* gate.h: lets fork copy the process at a moment when no slow operation is under way, and makes
 * sure that no thread waits long for a fork.
 *
 * A slow operation begins in one of two ways. If its first lock is an arena's, it begins with that
 * lock (gate_lock). Otherwise it begins at the gate (hak__gate_enter), which counts the threads
 * inside. Fork closes the gate, waits until no thread is inside, and takes the locks of all arenas.
 * Then all other locks are free, and all data that locks guard is whole. Fork does not wait long,
 * because no thread inside waits for a lock of the C library.
 *
 * Fork then waits for locks of the C library. Other threads may hold these while they allocate, so
 * they must not wait for fork: a thread that comes to the closed gate sleeps at most GATE_WAIT_MS
 * and is then refused. A refused allocation or free uses large/emergency.h instead.
 *
 * A signal handler may fork inside an operation that it interrupted. That fork cannot close the
 * gate, because its own thread is inside. Meanwhile the gate refuses as if it were closed.
 *
 * The gate also refuses a thread at once that is inside already. There are four cases: a signal
 * handler has interrupted a slow operation, which may hold any lock; the operation has called a
 * function that follows mappings (os/bound.h); the thread is in fork itself; or it has reported a
 * fatal error.
 *
 * While a thread is inside the gate its signals are blocked, unless the process has one thread: no
 * handler stops it there, so it holds up neither a fork nor a thread that needs one of the locks
 * that are taken inside the gate only (core/lock.h). Every wait inside the gate has an end, but for
 * calls that wait for another thread of the program (hak__gate_begin_call). A long operation lets
 * signals in between its parts (hak__gate_let_pass).
 *
 * No function begins a slow operation while it holds a lock. The functions below the one that began
 * it take their locks without a look at the gate.
 */
#ifndef HAK_CORE_GATE_H
#define HAK_CORE_GATE_H

#include "core/lock.h"

/* What the calling thread is doing: a set of these bits. */
#define INSIDE_LOCK 1u   /* a slow operation that began with an arena's lock */
#define INSIDE_GATE 2u   /* a slow operation that began at the gate */
#define INSIDE_FORK 4u   /* fork: between its prepare handler and its parent or child handler */
#define INSIDE_REPORT 8u /* a fatal error was reported */
/* If a function that may begin an operation finds one of these bits, it runs in a signal handler
 * that interrupted an operation, or after a fatal report. The thread may hold any lock. */
#define INSIDE_OPERATION (INSIDE_LOCK | INSIDE_GATE | INSIDE_REPORT)
HAK_HIDDEN extern HAK_TLS uint32_t hak__inside;

/* Begins an operation at the gate. During a fork it sleeps at most GATE_WAIT_MS. False: refused. */
HAK_HIDDEN bool hak__gate_enter(void);
/* The same, but it waits until a fork is over. The caller must hold no lock of the C library, for
 * which fork may be waiting. False: this thread is inside already, or it hurries. */
HAK_HIDDEN bool hak__gate_enter_patiently(void);
/* While this thread hurries, hak__gate_enter_patiently waits 0.2 seconds in all, then refuses. For
 * signal handlers and _exit: fork may be waiting for a lock that the thread holds. */
HAK_HIDDEN void hak__gate_hurry(bool hurries);
/* Ends an operation that began at the gate. Does nothing if the thread is not inside the gate. */
HAK_HIDDEN void hak__gate_leave(void);
/* Between two parts of a long operation, with no lock held: lets a fork that waits go first, and
 * signals in. False: the fork takes long, and this thread was refused and is not inside now. */
HAK_HIDDEN bool hak__gate_let_pass(void);

/* Around a system call that may wait for another thread of the program, such as munmap, which waits
 * for the thread that reads a userfaultfd: the signals come in that end a process. Others would
 * wait in the kernel, and a handler that stops the thread would hold up forks. The thread may hold
 * an arena's lock or PURGE, and no other. */
HAK_HIDDEN void hak__gate_begin_call(void);
HAK_HIDDEN void hak__gate_end_call(void);

/* Notes that this thread was refused. Always returns false. */
HAK_HIDDEN HAK_COLD bool hak__gate_refuse(void);
/* Both return whether a refusal of this thread is noted; the second also clears the note. */
HAK_HIDDEN bool hak__gate_is_refusal_noted(void);
HAK_HIDDEN bool hak__gate_was_refused(void);
/* Sets the note. */
HAK_HIDDEN void hak__gate_note_refusal(bool refused);

/* While this thread is pinned, it keeps its struct (hak__thread_escape): for a callback in the
 * middle of an operation. */
HAK_HIDDEN void hak__gate_pin(bool pinned);
HAK_HIDDEN bool hak__gate_is_pinned(void);

/* Waits for a lock that another thread holds, and takes it. The calling thread is inside. False:
 * refused, because a fork takes too long, or the holder of an arena's lock seems to be stopped; the
 * lock is not taken. */
HAK_HIDDEN bool hak__gate_wait_for(struct lock *lock);

/* For fork only. Close returns when no thread is inside; open is also called in the child. */
HAK_HIDDEN void hak__gate_close(void);
HAK_HIDDEN void hak__gate_open(void);
/* Around a fork that begins inside another one or, if it `interrupts`, in a signal handler that
 * interrupted an operation. End: false: this thread has no such fork. The child, and that of a fork
 * beside it, forgets all such forks. */
HAK_HIDDEN void hak__gate_begin_inner(bool interrupts);
HAK_HIDDEN bool hak__gate_end_inner(bool interrupts);
HAK_HIDDEN void hak__gate_forget_inner(void);
/* For the child of such a fork: forgets the threads inside, none of which exists in the child. */
HAK_HIDDEN void hak__gate_reset(void);

/* The first half of gate_lock: marks the thread as inside. False: refused. */
HAK_INLINE bool gate_begin(void)
{
    if (HAK_UNLIKELY(hak__inside != 0)) {
        return hak__gate_refuse();
    }
    hak__inside = INSIDE_LOCK; /* first: a signal handler must see it while the lock is held */
    atomic_fence_signal();
    return true;
}

/* Ends an operation that began with gate_lock. The lock has been released. */
HAK_INLINE void gate_end(void)
{
    atomic_fence_signal();
    hak__inside &= ~INSIDE_LOCK; /* a thread with a borrowed struct stays inside the gate */
}

/* Takes a lock. The calling thread is inside. False: refused. */
HAK_INLINE bool gate_acquire(struct lock *lock)
{
    HAK_ASSERT((hak__own.held >> lock->rank) == 0); /* ranks rise */
    return HAK_LIKELY(lock_try(lock)) || hak__gate_wait_for(lock);
}

/* The second half of gate_lock: takes the arena's lock. False: refused, and the operation is over.
 */
HAK_INLINE bool gate_finish(struct lock *lock)
{
    if (gate_acquire(lock)) {
        return true;
    }
    gate_end();
    return false;
}

/* Begins an operation with an arena's lock. False: refused. */
HAK_INLINE bool gate_lock(struct lock *lock)
{
    return gate_begin() && gate_finish(lock);
}

#endif
