/* fork.c: fork in a threaded program.
 *
 * prepare closes the gate and takes the heaps' locks, so that all that locks guard is at rest and
 * whole in the child's copy (core/gate.h). Other locks are then free, or held by threads that only
 * read. Until parent or child opens the gate again, other threads wait a moment and then do without
 * (large/emergency.h): fork itself may be waiting for a lock of the C library that they hold.
 *
 * Bins and remote buffers of other threads are guarded by nothing. They are abandoned in the child:
 * their objects (at most those threads' caches, in pages shared with the parent) stay out of use.
 * Heaps are whole and go on. The child touches the heaps and no struct of another thread.
 *
 * Several threads may fork at once: they hold the heaps together, and the last one lets go. A
 * second one waits a moment first, so that forks in a row do not keep the gate closed.
 *
 * A fork inside a fork of the same thread (by a handler) finds all at rest already. One inside a
 * slow operation (by a signal handler that interrupted it) cannot wait for that: it changes
 * nothing, and in its child the thread stays inside until the handler returns.
 */
#include "heap/heap.h"

#include "large/emergency.h"
#include "os/os.h"

#define FORK_WAIT_MS 1u

static struct lock fork_lock = LOCK_INITIAL(LOCK_RANK_FORK);
static uint32_t shared_fork_count;  /* threads that hold the heaps; written under the lock */
static HAK_TLS uint32_t fork_inner; /* forks of this thread that found it inside */

static void fork_wait_for_others(void)
{
    uint32_t count = atomic_load_relaxed(&shared_fork_count);
    if (count != 0) {
        hak__os_wait_ms(&shared_fork_count, count, FORK_WAIT_MS);
    }
}

static void fork_hold(void)
{
    hak__gate_close();
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        lock_acquire_another(&heap->lock);
        if (!alone()) { /* who waits for it is to wait no longer than GATE_WAIT_MS from now on */
            hak__os_wake_all(&heap->lock.shared_state);
        }
    }
}

static void fork_let_go(void)
{
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        lock_release(&heap->lock);
    }
    hak__gate_open();
}

static void fork_settle(void)
{
    if (hak__emergency_waits() && hak__gate_enter()) {
        hak__emergency_settle();
        hak__gate_leave();
    }
}

void hak__fork_prepare(void)
{
    if (hak__inside != 0) {
        fork_inner++;
        return;
    }
    fork_wait_for_others();
    uint64_t signals = hak__os_block_signals(); /* a handler's fork finds all held, or nothing */
    hak__inside = INSIDE_FORK;
    lock_acquire(&fork_lock);
    if (shared_fork_count == 0) {
        fork_hold();
    }
    atomic_store_relaxed(&shared_fork_count, shared_fork_count + 1);
    lock_release(&fork_lock);
    hak__lock_held = 0; /* the heaps belong to all that fork */
    hak__os_restore_signals(signals);
}

void hak__fork_parent(void)
{
    if (fork_inner != 0) {
        fork_inner--;
        return;
    }
    if (hak__inside != INSIDE_FORK) {
        return; /* the child of an inner fork has let go of all */
    }
    uint64_t signals = hak__os_block_signals();
    lock_acquire(&fork_lock);
    uint32_t left = shared_fork_count - 1;
    atomic_store_relaxed(&shared_fork_count, left);
    if (left == 0) {
        fork_let_go();
    }
    lock_release(&fork_lock);
    hak__inside = 0;
    hak__os_restore_signals(signals);
    if (left == 0 && !alone()) {
        hak__os_wake_all(&shared_fork_count);
    }
    fork_settle();
}

/* The only thread: whoever held a lock is gone, and changed nothing under it. */
static void fork_free_lock(struct lock *lock)
{
    if (atomic_load_relaxed(&lock->shared_state) != 0) {
        atomic_store_relaxed(&lock->shared_state, 0u);
    }
}

void hak__fork_child(void)
{
    fork_inner = 0;
    if ((hak__inside & ~INSIDE_FORK) != 0) {
        hak__gate_reset();
        return;
    }
    struct thread *own = hak__thread;
    hak__thread_abandon_others(own);
    hak__heap_part_all_but(own->heap);
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        fork_free_lock(&heap->lock);
    }
    fork_free_lock(&hak__whale_lock); /* looks take it while the gate is closed */
    fork_free_lock(&fork_lock);
    atomic_store_relaxed(&shared_fork_count, 0u);
    hak__gate_open();
    hak__inside = 0; /* what waits is settled at a tick: the child may not live so long */
}
