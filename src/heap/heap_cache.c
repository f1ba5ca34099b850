/* SPDX-License-Identifier: MIT */
/* heap_cache.c: the caches that threads have for heaps. See heap.h.
 *
 * A bin may hold the heap's bin_bytes of objects, or an eighth of that if objects share cache
 * lines. A refill brings up to half of it, an overflow returns half of it. So a bin of a thread
 * that only allocates, only frees, or does both in turn takes the lock once for many objects.
 *
 * When a thread ends, the listener returns the objects of all its caches, and the caches wait to be
 * used again. A destroyed heap takes its caches away from their threads. */
#include "heap/heap.h"

#include "arena/arena.h"
#include "base/list.h"

#include <errno.h>
#include <string.h>

struct heap_slot hak__heap_no_slot; /* never written */
HAK_TLS struct heap_slots hak__heap_slots = {&hak__heap_no_slot, 0};

static struct heap_spare *spare_caches;
static struct heap_spare *spare_slots[64] HAK_SELDOM; /* by the logarithm of their count */

/* --- bins --- */

uint32_t hak__heap_cache_limit(struct heap_cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    if (bin->limit == 0) {
        size_t bytes = cache->heap->bin_bytes;
        bytes >>= size_class_has_own_lines(class_index) ? 0 : 3;
        size_t objects = bytes / size_class_bytes(class_index);
        bin->limit = objects < BIN_OBJECTS_MAX ? (uint32_t)objects : BIN_OBJECTS_MAX;
        bin->room += (int32_t)bin->limit;
    }
    return bin->limit;
}

/* Returns the `count` objects that were freed last. Those of a slab that follow each other are
 * linked already. Under the heap's lock. */
static void bin_return(struct heap_cache *cache, uint32_t class_index, uint32_t count)
{
    struct bin *bin = &cache->bins[class_index];
    while (count != 0 && bin->head != NULL) {
        struct object *first = bin->head, *last;
        struct heap_run *slab = hak__heap_locate(cache->heap, first).run;
        if (HAK_UNLIKELY(slab == NULL || slab->class_index != class_index)) {
            hak__object_is_wrong(first);
        }
        uint32_t part =
            hak__heap_slab_cut(slab, &bin->head, count, cache->mark, hak__window.mark, &last);
        if (HAK_UNLIKELY(part > slab->used_count)) {
            hak__object_is_wrong(first);
        }
        bin->room += (int32_t)part;
        count -= part;
        hak__heap_slab_return(cache->heap, slab, (struct object_list){first, part}, last);
    }
}

void hak__heap_cache_overflow(struct heap_cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    if (class_index == 0) { /* hak_heap_free_sized of a block, or of an object of size 0 */
        void *pointer = bin->head;
        *bin = (struct bin){NULL, 0, 0};
        hak__heap_free(cache->heap, pointer);
        return;
    }
    uint32_t limit = hak__heap_cache_limit(cache, class_index);
    if (bin->room >= 0) {
        return;
    }
    int saved = errno;
    if (hak__heap_enter(cache->heap)) { /* if refused, the next free tries again */
        bin_return(cache, class_index, limit / 2 + 1);
        hak__heap_leave(cache->heap);
    }
    errno = saved;
}

void hak__heap_cache_flush(struct heap_cache *cache)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        bin_return(cache, class_index, UINT32_MAX);
    }
}

/* --- the caches of a heap; all under HEAPS --- */

/* False: the cache's thread existed in fork's parent only, and may have been changing a bin. */
static bool cache_is_whole(const struct heap_cache *cache)
{
    return cache->epoch == hak__thread_epoch();
}

bool hak__heap_cache_flush_all(struct hak_heap *heap)
{
    bool whole = true;
    for (struct heap_cache *cache = heap->caches; cache != NULL; cache = cache->next) {
        if (cache_is_whole(cache)) {
            hak__heap_cache_flush(cache);
        } else {
            whole = false;
        }
    }
    return whole;
}

/* A bin that its thread is changing may seem to hold less than nothing. */
static HAK_RACY_READER size_t cache_objects(const struct heap_cache *cache, uint32_t class_index)
{
    const struct bin *bin = &cache->bins[class_index];
    int32_t count = (int32_t)bin->limit - bin->room;
    return count > 0 ? (size_t)count : 0;
}

size_t hak__heap_cache_objects(const struct hak_heap *heap, uint32_t class_index)
{
    size_t count = 0;
    for (const struct heap_cache *cache = heap->caches; cache != NULL; cache = cache->next) {
        count += cache_is_whole(cache) ? cache_objects(cache, class_index) : 0;
    }
    return count;
}

static void cache_retire(struct heap_cache *cache)
{
    LIST_REMOVE(cache->heap->caches, cache);
    cache->id = 0;
    cache->spare.next = spare_caches;
    spare_caches = &cache->spare;
}

void hak__heap_cache_drop_all(struct hak_heap *heap)
{
    while (heap->caches != NULL) {
        cache_retire(heap->caches);
    }
}

/* --- slots --- */

static size_t slots_count(void)
{
    return hak__heap_slots.mask / sizeof(struct heap_slot) + 1;
}

static void slots_give(struct heap_slots slots)
{
    size_t count = slots.mask / sizeof(struct heap_slot) + 1;
    if (slots.first != &hak__heap_no_slot) {
        hak__heap_spare_give(&spare_slots[bits_log2(count)], slots.first,
                             count * sizeof(struct heap_slot));
    }
}

/* This thread's cache that the slot leads to. NULL: none, as that heap was destroyed. Under HEAPS,
 * or in fork's child: a cache has another id from the moment when it is another heap's. */
static struct heap_cache *slot_cache(size_t index)
{
    const struct heap_slot *slot = &hak__heap_slots.first[index];
    return slot->id != 0 && slot->cache->id == slot->id ? slot->cache : NULL;
}

/* Chunks that become empty stay in the heap's `released` until its next operation: a provider is
 * called by those who use the heap, and never by a thread that just ends, perhaps after the program
 * has destroyed the heap and its provider. */
static void slots_thread_ended(void)
{
    if (hak__heap_slots.mask == 0 || !hak__gate_enter(GATE_PATIENTLY)) {
        return;
    }
    lock_acquire(&hak__heaps_lock); /* nobody destroys a heap meanwhile */
    for (size_t i = 0; i < slots_count(); i++) {
        struct heap_cache *cache = slot_cache(i);
        if (cache != NULL && !cache->inherited) {
            lock_acquire(&cache->heap->lock);
            hak__heap_cache_flush(cache);
            lock_release(&cache->heap->lock);
        }
        if (cache != NULL) {
            cache_retire(cache);
        }
    }
    lock_release(&hak__heaps_lock);
    struct heap_slots slots = hak__heap_slots;
    hak__heap_slots = (struct heap_slots){&hak__heap_no_slot, 0};
    slots_give(slots);
    hak__gate_leave();
}

/* The caches of this thread go on; those of others stay as they were. Memory that is not hakmem's
 * may be shared with the parent, or not be there at all (MADV_DONTFORK): the child does not touch
 * it unless the program does. */
static void slots_thread_forked(void)
{
    for (size_t i = 0; i < slots_count(); i++) {
        struct heap_cache *cache = slot_cache(i);
        if (cache != NULL) {
            cache->epoch = hak__thread_epoch();
            cache->inherited = !cache->heap->own_pages;
        }
    }
}

static const struct thread_listener slots_listener = {slots_thread_ended, slots_thread_forked};

/* Gives this thread a slot for the heap. False: no memory. Inside the gate, no lock. */
static bool slots_reach(const struct hak_heap *heap)
{
    struct heap_slots old = hak__heap_slots;
    if (old.mask != 0 && heap->slot_offset <= old.mask) {
        return true;
    }
    /* The fewest slots of a thread that uses heaps. Twice: 2 KiB for each such thread, not 1. */
    size_t count = 64;
    while (heap->slot_offset >= count * sizeof(struct heap_slot)) {
        count *= 2;
    }
    size_t bytes = count * sizeof(struct heap_slot);
    struct heap_slot *slots = hak__heap_spare_take(&spare_slots[bits_log2(count)], bytes);
    if (slots == NULL) {
        return false;
    }
    memset(slots, 0, bytes);
    memcpy(slots, old.first, old.mask + sizeof *slots);
    hak__heap_slots = (struct heap_slots){slots, bytes - sizeof *slots};
    slots_give(old);
    /* relaxed: each thread that reads it in hak__thread_end has stored it here itself */
    atomic_store_relaxed(&hak__thread_listener, &slots_listener);
    return true;
}

/* Inside the gate, no lock. NULL: no memory. */
static struct heap_cache *cache_make(struct hak_heap *heap)
{
    struct heap_cache *cache =
        slots_reach(heap) ? hak__heap_spare_take(&spare_caches, sizeof *cache) : NULL;
    if (cache == NULL) {
        return NULL;
    }
    memset(cache->bins, 0, sizeof cache->bins);
    cache->heap = heap;
    cache->epoch = hak__thread_epoch();
    cache->inherited = false;
    cache->mark = hak__window.mark ^ (uintptr_t)cache;
    lock_acquire(&hak__heaps_lock);
    cache->id = heap->id;
    LIST_PUSH(heap->caches, cache);
    lock_release(&hak__heaps_lock);
    *heap_slot(heap) = (struct heap_slot){heap->id, cache};
    return cache;
}

struct heap_cache *hak__heap_cache(struct hak_heap *heap)
{
    const struct heap_slot *slot = heap_slot(heap);
    if (HAK_LIKELY(slot->id == heap->id)) {
        return slot->cache;
    }
    hak__heap_check_alive(heap);
    struct heap_cache *cache = NULL;
    /* Without a struct of its own the thread would not be told of its end. */
    if (hak__thread_current() != NULL && hak__heap_gate()) {
        cache = cache_make(heap);
        hak__gate_leave();
    }
    return cache;
}
