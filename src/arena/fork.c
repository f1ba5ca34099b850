/* SPDX-License-Identifier: MIT */
/* fork.c: the fork handlers (pthread_atfork), for programs with threads.
 *
 * prepare closes the gate and takes the locks of all arenas. All data that locks guard is then at
 * rest, and whole in the child's copy (core/gate.h). The other locks are free, or held by threads
 * that only read. Until the gate opens again, other threads wait a moment and then do without
 * hakmem's structures (large/emergency.h). They may not wait longer: fork itself may be waiting for
 * a lock of the C library that they hold.
 *
 * The child goes on with all arenas, and its thread with its struct. What other threads had cached
 * comes back later (hak__thread_settle_gone), so fork's own work in the child does not depend on
 * it. In the secure form the child begins with a struct and an arena of its own, so that what it
 * allocates has keys that neither its parent nor its siblings know. Older objects go back to their
 * slabs, which serve nobody any more.
 *
 * If a thread with an arena's lock is stopped by a signal (core/lock.h), fork waits until it goes
 * on. Meanwhile it opens the gate again and again, so that others work, and lets signals in.
 *
 * Several threads may fork at once. They hold the arenas together, and the last one releases them.
 * A second thread first waits a moment, so that forks in a row do not keep the gate closed.
 *
 * Fork handlers of the program may fork again in the same thread: all is at rest already. A signal
 * handler may fork inside a slow operation that it interrupted. That fork cannot wait, so it
 * changes no arena, and in its child the thread stays inside the operation until the handler
 * returns. Meanwhile other threads are refused as well. One that is inside waits for a lock that
 * the interrupted thread holds; if the C library's part of fork waits for that thread, they hang:
 * docs/guarantees.md. */
#include "arena/arena.h"

#include "large/emergency.h"
#include "os/os.h"

/* Longest wait of a fork for another thread's fork to end, before it joins that one. Doubled: such
 * a fork takes up to 1 ms longer. At 0: overlapping forks keep the gate closed as long as they
 * overlap. */
#define FORK_WAIT_MS 1u

static struct lock fork_lock = LOCK_INITIAL(LOCK_RANK_FORK);
static uint32_t shared_fork_count; /* threads that hold the arenas; written under fork_lock */

/* True: this fork is by a signal handler that interrupted an operation. */
static bool fork_interrupts(void)
{
    return (hak__inside & INSIDE_OPERATION) != 0;
}

/* Lets go of the arenas before `end`; NULL: of all. */
static void fork_let_go(const struct arena *end)
{
    for (struct arena *arena = hak__arena_first(); arena != end; arena = arena->next) {
        lock_release(&arena->lock);
    }
    hak__gate_open();
}

/* Brings the arenas to rest: nobody is inside the gate, and this thread has all arenas' locks.
 * False: a thread with an arena's lock seems to be stopped, and this thread holds nothing. A fork
 * that interrupts an operation only closes the gate. */
static bool fork_hold(void)
{
    hak__gate_close();
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        if (!fork_interrupts()) {
            if (!lock_acquire_soon(&arena->lock)) {
                fork_let_go(arena);
                return false;
            }
            hak__own.held = 0; /* all threads that fork hold the arenas together */
        }
        if (!alone()) { /* who waits for this lock waits GATE_WAIT_MS at most from now on */
            hak__os_wake_all(&arena->lock.shared_state);
        }
    }
    return true;
}

/* Joins the forks that are under way, or brings the arenas to rest. False: not yet. */
static bool fork_begin_outer(void)
{
    hak__inside = INSIDE_FORK;
    lock_acquire(&fork_lock);
    bool begun = shared_fork_count != 0 || fork_hold();
    if (begun) {
        atomic_store_relaxed(&shared_fork_count, shared_fork_count + 1);
    } else {
        hak__inside = 0;
    }
    lock_release(&fork_lock);
    return begun;
}

static bool fork_begin(void)
{
    uint64_t signals = hak__os_block_signals(); /* a handler's fork finds all of it done, or none */
    bool begun = true;
    if (hak__inside == 0) {
        begun = fork_begin_outer();
    } else {
        hak__own.inner_forks++;
        if (fork_interrupts()) {
            begun = fork_hold();
        }
    }
    hak__os_restore_signals(signals);
    return begun;
}

void hak__fork_prepare(void)
{
    if (HAK_SECURE) {
        (void)hak__secure_draw(); /* so that each child begins elsewhere */
    }
    uint32_t count = atomic_load_relaxed(&shared_fork_count);
    if (hak__inside == 0 && count != 0) {
        hak__os_wait_ms(&shared_fork_count, count, FORK_WAIT_MS);
    }
    while (!fork_begin()) {
        hak__os_sleep_ms(FORK_WAIT_MS); /* with signals: this thread may have to be stopped, too */
    }
}

static void fork_end_outer(void)
{
    lock_acquire(&fork_lock);
    uint32_t left = shared_fork_count - 1;
    atomic_store_relaxed(&shared_fork_count, left);
    if (left == 0) {
        fork_let_go(NULL);
    }
    lock_release(&fork_lock);
    hak__inside = 0;
    if (left == 0 && !alone()) {
        hak__os_wake_all(&shared_fork_count);
    }
}

void hak__fork_parent(void)
{
    uint64_t signals = hak__os_block_signals(); /* first: a handler's fork ends all in its child */
    if (hak__own.inner_forks != 0) {
        hak__own.inner_forks--;
        if (fork_interrupts()) {
            hak__gate_open();
        }
    } else if (hak__inside == INSIDE_FORK) { /* else an inner fork's child, which let go of all */
        fork_end_outer();
    }
    hak__os_restore_signals(signals);
}

/* In the child: frees a lock. Its holder is gone or has forked, and changed nothing under it. */
static void fork_free_lock(struct lock *lock)
{
    if (atomic_load_relaxed(&lock->shared_state) != 0) {
        atomic_store_relaxed(&lock->shared_state, 0u);
    }
}

void hak__fork_child(void)
{
    hak__own.inner_forks = 0;
    if (fork_interrupts()) {
        hak__gate_reset();
        return;
    }
    hak__thread_fork_child();
    if (hak__thread_listener != NULL) {
        hak__thread_listener->forked();
    }
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        fork_free_lock(&arena->lock);
    }
    fork_free_lock(&hak__huge_lock); /* threads that only read take it while the gate is closed */
    fork_free_lock(&fork_lock);
    atomic_store_relaxed(&shared_fork_count, 0u);
    hak__gate_reset();
    hak__inside = 0;
}
