/* fork.c: fork in a threaded program.
 *
 * prepare takes every lock in rank order, so that all that locks guard is at rest and whole in the
 * child's copy. Bins and remote buffers of other threads are guarded by nothing: those threads go
 * on while the kernel copies page tables, one page at a time, so the child may see a bin's head
 * from after an operation and the object it points to from before. They are therefore abandoned in
 * the child: their objects (at most those threads' caches, in pages shared with the parent) stay
 * out of use. Heaps are whole and go on.
 */
#include "heap/heap.h"

#include "large/whale.h"
#include "region/huge.h"
#include "region/superslab.h"

static struct lock fork_lock = LOCK_INITIAL(LOCK_RANK_FORK);

void hak__fork_prepare(void)
{
    lock_acquire(&fork_lock);
    lock_acquire(&hak__heaps_lock);
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        lock_acquire_another(&heap->lock);
    }
    lock_acquire(&hak__purge_lock);
    lock_acquire(&hak__whale_lock);
    lock_acquire(&hak__growth_lock);
    lock_acquire(&hak__region_lock);
    atomic_store_relaxed(&hak__lock_fork_owner, &hak__lock_held);
}

void hak__fork_parent(void)
{
    atomic_store_relaxed(&hak__lock_fork_owner, NULL);
    lock_release(&hak__region_lock);
    lock_release(&hak__growth_lock);
    lock_release(&hak__whale_lock);
    lock_release(&hak__purge_lock);
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        lock_release(&heap->lock);
    }
    lock_release(&hak__heaps_lock);
    lock_release(&fork_lock);
}

void hak__fork_child(void)
{
    const struct thread *own = hak__thread;
    hak__thread_abandon_others(own);
    hak__heap_part_all_but(own->heap);
    hak__huge_forget(true);
    hak__fork_parent();
}
