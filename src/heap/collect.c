/* collect.c: free memory on its way: from a heap to another, from heaps to the region, from the
 * region and the whales to the OS. */
#include "heap/heap.h"

#include "core/knobs.h"
#include "large/emergency.h"
#include "large/whale.h"
#include "os/os.h"
#include "region/superslab.h"

static uint32_t shared_purged_ms;  /* of the last purge pass by any thread */
static uint32_t shared_pressed;    /* 1: memory is short */
static struct heap *shared_lender; /* the next to be asked for objects; NULL: the first */

void hak__heap_collect(struct heap *heap, bool everything)
{
    lock_acquire(&heap->lock);
    hak__slab_drain(&heap->slabs);
    hak__span_cache_trim(&heap->spans, everything);
    if (HAK_LEVEL >= 2 && everything) {
        hak__slab_set_check(&heap->slabs);
    }
    lock_release(&heap->lock);
}

void hak__heap_help(struct thread *thread)
{
    struct slab_set *set = thread->cache.lagging;
    thread->cache.lagging = NULL;
    struct heap *owner = heap_of_slabs(set);
    if (lock_try(&owner->lock)) { /* else somebody is at it */
        hak__slab_drain(set);
        lock_release(&owner->lock);
    }
}

static bool heap_lock(struct heap *heap, bool wait)
{
    return lock_try(&heap->lock) || (wait && hak__gate_wait_for(&heap->lock));
}

struct object_list hak__heap_borrow(const struct heap *own, uint32_t class_index, uint32_t most)
{
    struct object_list list = {NULL, 0};
    /* Where nothing is free address space would have to be had, which takes longer than a wait. And
     * a heap whose lock a preempted thread holds may have most of what others could use. */
    bool wait =
        hak__superslab_bytes_free() < hak__size_classes[class_index].slab_slices * SLICE_SIZE;
    /* acquire: pairs with the release below; the heap's own words are seen as in hak__heap_first */
    struct heap *start = atomic_load_acquire(&shared_lender);
    start = start != NULL ? start : hak__heap_first();
    struct heap *heap = start;
    for (uint32_t asked = 0; asked < LENDERS_MAX; asked++) {
        if (heap != own && slab_may_lend(&heap->slabs, class_index) && heap_lock(heap, wait)) {
            list = hak__slab_lend(&heap->slabs, class_index, most);
            lock_release(&heap->lock);
        }
        if (list.count != 0) {
            break;
        }
        heap = heap->next != NULL ? heap->next : hak__heap_first();
        if (heap == start) {
            break;
        }
    }
    atomic_store_release(&shared_lender, heap);
    return list;
}

/* Heaps without a thread, or with one that sleeps, do not take their notifications. */
static void collect_notified(void)
{
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        if (atomic_load_relaxed(&heap->slabs.shared_notified) != 0 && lock_try(&heap->lock)) {
            hak__slab_drain(&heap->slabs);
            lock_release(&heap->lock);
        }
    }
}

/* Half a period has passed since the last pass began; one thread is told so. Which one does not
 * matter. Slices are due at the second pass that sees them. */
static bool collect_is_due(uint32_t now, uint32_t delay)
{
    uint32_t last = atomic_load_relaxed(&shared_purged_ms);
    return now - last >= delay / 2 && atomic_cas_acquire(&shared_purged_ms, &last, now);
}

/* What is to be free in superslabs before a pass, and whales; both go between half a period and one
 * after they were freed. The soft limit counts addresses: above it they go back, too, a part at a
 * time. */
static void collect_for_purge(uint32_t delay)
{
    collect_notified();
    hak__whale_cache_trim(delay / 2);
    if (hak__limit_is_exceeded()) {
        hak__superslab_release(PURGE_BYTES_AT_ONCE);
    }
}

static uint32_t collect_delay(void)
{
    uint32_t delay = hak__knobs.purge_delay_ms;
    bool short_of_memory = hak__limit_is_exceeded() || atomic_load_relaxed(&shared_pressed) != 0;
    return short_of_memory && delay > LIMIT_DELAY_MS ? LIMIT_DELAY_MS : delay;
}

void hak__heap_set_pressed(bool pressed)
{
    atomic_store_relaxed(&shared_pressed, (uint32_t)pressed);
}

uint32_t hak__heap_tick_period_ms(void)
{
    uint32_t half = collect_delay() / 2;
    if (half < PURGE_TICK_MS || hak__superslab_purge_is_under_way()) {
        return PURGE_TICK_MS;
    }
    return half < TICK_MS ? half : TICK_MS;
}

/* A thread that comes by seldom gives back more at once. */
static size_t collect_part(uint32_t elapsed)
{
    uint32_t parts = 1 + elapsed / TICK_MS;
    return (parts < PURGE_PARTS_MAX ? parts : PURGE_PARTS_MAX) * PURGE_BYTES_AT_ONCE;
}

void hak__heap_tick(struct thread *thread)
{
    uint32_t delay = collect_delay();
    uint32_t now = hak__os_clock_ms(), elapsed = now - thread->ticked_ms;
    thread->ticked_ms = now;
    thread->operations = 0;
    /* A thread that does other things frees less remotely: what it has gathered is not to keep
     * others' slabs from getting empty. */
    hak__remote_flush(&thread->cache);
    struct heap *heap = thread->heap;
    /* At every tick, whatever the time: what a vector left behind while it grew is wanted for other
     * things long before a period is over (docs/decisions/0020). */
    if (atomic_load_relaxed(&heap->spans.slices) != 0) {
        lock_acquire(&heap->lock);
        hak__span_cache_trim(&heap->spans, false);
        lock_release(&heap->lock);
    }
    hak__whale_cache_trim(UINT32_MAX); /* small blocks may need the room of freed whales by now */
    if (delay == UINT32_MAX) {
        return;
    }
    if (now - thread->trimmed_ms >= delay / 2) {
        thread->trimmed_ms = now;
        counter_add(&thread->cache.counters, COUNTER_TICKS, 1);
        lock_acquire(&heap->lock);
        hak__slab_drain(&heap->slabs);
        hak__cache_trim(&thread->cache);
        lock_release(&heap->lock);
        hak__remote_flush(&thread->cache);
    }
    bool due = collect_is_due(now, delay);
    if (due) {
        collect_for_purge(delay);
    }
    if (due || hak__superslab_purge_is_under_way()) {
        hak__superslab_purge_part(due, collect_part(elapsed));
    }
}

void hak__heap_scavenge(void)
{
    if (!hak__gate_enter()) {
        return;
    }
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        hak__heap_collect(heap, false);
    }
    uint32_t delay = collect_delay();
    if (collect_is_due(hak__os_clock_ms(), delay)) {
        collect_for_purge(delay);
        hak__superslab_purge(false);
    }
    hak__gate_leave();
}

size_t hak__heap_reclaim(bool unmap)
{
    if (!hak__gate_enter()) {
        return 0;
    }
    hak__emergency_settle();
    struct thread *own = hak__thread;
    if (own->heap != NULL) {
        hak__thread_flush(own);
    }
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        hak__heap_collect(heap, true);
    }
    size_t bytes = hak__os_discard_again() + hak__whale_cache_trim(0);
    bytes += unmap ? hak__superslab_release(SIZE_MAX) : hak__superslab_purge(true);
    hak__gate_leave();
    return bytes;
}
