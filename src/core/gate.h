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
 * A signal handler may fork inside an operation that it interrupted. That fork closes the gate as
 * well, but cannot wait, because its own thread is inside.
 *
 * The gate also refuses a thread at once that is inside already. There are four cases: a signal
 * handler has interrupted a slow operation, which may hold any lock; the operation has called a
 * function that follows mappings (os/bound.h); the thread is in fork itself; or it has reported a
 * fatal error.
 *
 * While a thread is inside the gate its signals are blocked, unless the process has one thread: no
 * handler stops it there, so it holds up neither a fork nor a thread that needs one of the locks
 * that are taken inside the gate only (core/lock.h). Every wait inside the gate has an end, but for
 * calls that wait for another thread of the program. A long operation lets signals in between its
 * parts (hak__gate_let_pass).
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

/* How long a thread waits at the closed gate: GATE_WAIT_MS, or until the fork is over. Who waits
 * patiently must hold no lock of the C library, for which fork may be waiting. */
enum gate_wait { GATE_BRIEFLY, GATE_PATIENTLY };
/* Patient waits, of GATE_WAIT_MS each, that a thread makes in all once it hurries (hak__own.hurry):
 * a signal handler or _exit, where it may hold a lock that fork waits for. Twice: _exit takes up to
 * 0.2 seconds longer then. Half: a report at _exit is lost if another thread's fork takes 0.1 s. */
#define GATE_HURRY 200u

/* Begins an operation at the gate. False: refused. */
HAK_HIDDEN bool hak__gate_enter(enum gate_wait wait);
/* Ends an operation that began at the gate. Does nothing if the thread is not inside the gate. */
HAK_HIDDEN void hak__gate_leave(void);
/* Between two parts of a long operation, with no lock held: lets a fork that waits go first, and
 * signals in. False: the fork takes long, and this thread was refused and is not inside now. */
HAK_HIDDEN bool hak__gate_let_pass(void);
/* Inside the gate, before a system call that may wait for another thread of the program, such as
 * munmap, which waits for the thread that reads a userfaultfd: lets the signals come that end a
 * process. Others would wait in the kernel, and a handler that stops the thread would hold up
 * forks. `come` false, after the call: blocks them again. The thread may hold an arena's lock or
 * PURGE, and no other. */
HAK_HIDDEN void hak__gate_let_ending_signals(bool come);

/* Takes a lock, and waits for it if necessary. The calling thread is inside. False: refused,
 * because a fork takes too long, or the holder of an arena's lock seems to be stopped. */
HAK_HIDDEN bool hak__gate_acquire(struct lock *lock);
/* Notes that this thread was refused (hak__own.refused). Each malloc forgets the note when it
 * begins; what is done beside it keeps or forgets it. Always returns false. */
HAK_HIDDEN HAK_COLD bool hak__gate_refuse(void);

/* For fork only. Close returns when no thread is inside, or at once if the calling thread is: a
 * signal handler interrupted it. Each close has its open. */
HAK_HIDDEN void hak__gate_close(void);
HAK_HIDDEN void hak__gate_open(void);
/* In the child: opens the gate, and forgets the threads inside, none of which exists here. */
HAK_HIDDEN void hak__gate_reset(void);

/* Marks the thread as inside an operation that begins with an arena's lock. False: refused. */
HAK_INLINE bool gate_begin(void)
{
    if (HAK_UNLIKELY(hak__inside != 0)) {
        return hak__gate_refuse();
    }
    hak__inside = INSIDE_LOCK; /* first: a signal handler must see it while the lock is held */
    atomic_fence_signal();
    return true;
}

/* Ends such an operation. The lock has been released. */
HAK_INLINE void gate_end(void)
{
    atomic_fence_signal();
    hak__inside &= ~INSIDE_LOCK; /* a thread with a borrowed struct stays inside the gate */
}

/* Begins such an operation, and takes the arena's lock. False: refused. */
HAK_INLINE bool gate_lock(struct lock *lock)
{
    if (!gate_begin()) {
        return false;
    }
    HAK_ASSERT((hak__own.held >> lock->rank) == 0); /* ranks rise */
    if (HAK_LIKELY(lock_try(lock)) || hak__gate_acquire(lock)) {
        return true;
    }
    gate_end();
    return false;
}

#endif
