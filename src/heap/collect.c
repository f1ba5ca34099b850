/* collect.c: free memory on its way back: from heaps to the region, from the region and the whales
 * to the OS. */
#include "heap/heap.h"

#include "core/knobs.h"
#include "large/whale.h"
#include "os/os.h"
#include "region/superslab.h"

static uint32_t shared_purged_ms; /* of the last purge pass by any thread */

void hak__heap_collect(struct heap *heap, bool everything)
{
    lock_acquire(&heap->lock);
    hak__slab_drain(&heap->cache.slabs);
    hak__span_cache_trim(&heap->spans, everything);
    lock_release(&heap->lock);
}

void hak__heap_help(struct heap *heap)
{
    struct slab_set *set = heap->cache.lagging;
    heap->cache.lagging = NULL;
    struct heap *owner = (struct heap *)(void *)((char *)set - offsetof(struct heap, cache.slabs));
    if (lock_try(&owner->lock)) { /* else somebody is at it */
        hak__slab_drain(set);
        lock_release(&owner->lock);
    }
}

/* Heaps without a thread, or with one that sleeps, do not take their notifications. */
static void collect_notified(void)
{
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        if (atomic_load_relaxed(&heap->cache.slabs.shared_notified) != 0 && lock_try(&heap->lock)) {
            hak__slab_drain(&heap->cache.slabs);
            lock_release(&heap->lock);
        }
    }
}

static void collect_purge_due(uint32_t now, uint32_t delay)
{
    uint32_t last = atomic_load_relaxed(&shared_purged_ms);
    /* One thread a period; which one does not matter. Slices are due at the second pass that sees
     * them. */
    if (now - last < delay / 2 || !atomic_cas_acquire(&shared_purged_ms, &last, now)) {
        return;
    }
    collect_notified();
    hak__slab_pool_empty();
    hak__superslab_purge(false);
    hak__whale_cache_trim(delay);
}

void hak__heap_tick(struct heap *heap)
{
    uint32_t delay = hak__knobs.purge_delay_ms;
    uint32_t now = hak__os_clock_ms();
    if (now - heap->sent_ms >= (delay < REMOTE_DELAY_MS ? delay : REMOTE_DELAY_MS)) {
        heap->sent_ms = now;
        hak__remote_flush(&heap->cache);
    }
    if (delay == UINT32_MAX) {
        return;
    }
    if (now - heap->trimmed_ms >= delay / 2) {
        heap->trimmed_ms = now;
        lock_acquire(&heap->lock);
        counter_add(&heap->cache.slabs.counters, COUNTER_TICKS, 1);
        hak__slab_drain(&heap->cache.slabs);
        hak__cache_trim(&heap->cache);
        hak__span_cache_trim(&heap->spans, false);
        lock_release(&heap->lock);
    }
    collect_purge_due(now, delay);
}

size_t hak__heap_reclaim(bool unmap)
{
    struct heap *own = hak__thread_heap;
    if (own != &hak__heap_none && own != &hak__heap_ended) {
        hak__remote_flush(&own->cache);
        lock_acquire(&own->lock);
        hak__cache_flush(&own->cache);
        lock_release(&own->lock);
    }
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        hak__heap_collect(heap, true);
    }
    hak__slab_pool_empty();
    size_t bytes = hak__whale_cache_trim(0);
    bytes += unmap ? hak__superslab_release() : hak__superslab_purge(true);
    return bytes;
}
