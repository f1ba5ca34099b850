/* SPDX-License-Identifier: MIT */
/* heap_cache.c: the caches that threads have for heaps. See heap.h.
 *
 * A bin's limit begins at HEAP_BIN_START_BYTES of objects. Each refill and each overflow doubles
 * it, up to the heap's bin_bytes, or an eighth of that for objects that share cache lines. A refill
 * brings half the limit, an overflow at the largest limit returns half of it. So a bin of a thread
 * that only allocates, only frees, or does both in turn takes the lock once for many objects.
 *
 * When a thread ends, the listener returns the objects of all its caches, and the caches wait to be
 * used again. A destroyed heap takes its caches away from their threads. */
#include "heap/heap.h"

#include "arena/arena.h"
#include "base/list.h"

#include <errno.h>
#include <string.h>

const struct heap_thread hak__heap_thread_none = {
    .table = (struct heap_slot *)(uintptr_t)hak__heap_thread_none.slots};
HAK_TLS struct heap_thread *hak__heap_thread =
    (struct heap_thread *)(uintptr_t)&hak__heap_thread_none;

struct lock HAK_LOCK_LINE hak__heaps_lock = LOCK_INITIAL(LOCK_RANK_HEAPS);
static struct heap_thread *heap_threads_free; /* these two under HEAPS */
static struct heap_cache *heap_caches_free;

static bool heap_thread_is_none(void)
{
    return hak__heap_thread == &hak__heap_thread_none;
}

/* The largest limit of a bin, objects. */
static uint32_t bin_limit_max(const struct hak_heap *heap, uint32_t class_index)
{
    size_t bytes = heap->bin_bytes;
    bytes >>= size_class_has_own_lines(class_index) ? 0 : HEAP_BIN_SMALL_SHIFT;
    size_t objects = bytes / size_class_bytes(class_index);
    return objects < BIN_OBJECTS_MAX ? (uint32_t)objects : BIN_OBJECTS_MAX;
}

static uint32_t bin_limit_next(const struct hak_heap *heap, uint32_t class_index, uint32_t limit)
{
    uint32_t most = bin_limit_max(heap, class_index);
    uint32_t start = HEAP_BIN_START_BYTES / size_class_bytes(class_index);
    uint32_t next = limit == 0 ? start : 2 * limit;
    next = next == 0 ? 1 : next;
    return next < most ? next : most;
}

static void bin_raise_limit(struct heap_cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    uint32_t next = bin_limit_next(cache->heap, class_index, bin->limit);
    if (next > bin->limit) {
        bin->room += (int32_t)(next - bin->limit);
        bin->limit = next;
    }
}

uint32_t hak__heap_cache_wants(const struct heap_cache *cache, uint32_t class_index)
{
    uint32_t limit = bin_limit_next(cache->heap, class_index, cache->bins[class_index].limit);
    return limit / 2 + 1;
}

void hak__heap_cache_fill(struct heap_cache *cache, uint32_t class_index, struct object_list list)
{
    struct bin *bin = &cache->bins[class_index];
    HAK_ASSERT(bin->head == NULL);
    bin_raise_limit(cache, class_index);
    bin->head = list.head;
    bin->room -= (int32_t)list.count;
}

struct object *hak__heap_bin_pop(const struct heap_cache *cache, struct bin *bin)
{
    struct object *object = heap_bin_pop(cache, bin);
    if (HAK_UNLIKELY(object == NULL)) {
        hak__object_is_wrong(bin->head);
    }
    return object;
}

/* The slab of an object from a bin of the class. Under the heap's lock. */
static struct heap_page *bin_slab_of(const struct hak_heap *heap, const struct object *object,
                                     uint32_t class_index)
{
    struct heap_chunk *chunk = heap_chunk_of(heap, object);
    struct heap_page *page = heap_page_of(heap, chunk, object);
    if (page != NULL) {
        heap_check_chunk(heap, chunk);
        page = heap_page_first(heap, chunk, page);
    }
    if (HAK_UNLIKELY(page == NULL || page->kind != PAGE_SLAB || page->class_index != class_index)) {
        hak__object_is_wrong(object);
    }
    (void)hak__heap_pages(heap, chunk, page);
    return page;
}

/* Returns up to `most` of the first objects of a bin, as far as they are of the same slab: they are
 * linked already. Returns how many. Under the heap's lock. */
static uint32_t bin_return_run(struct heap_cache *cache, uint32_t class_index, uint32_t most)
{
    struct bin *bin = &cache->bins[class_index];
    struct object *first = bin->head, *last, *object = first;
    struct heap_page *slab = bin_slab_of(cache->heap, first, class_index);
    uintptr_t start = (uintptr_t)heap_page_start(heap_chunk_of(cache->heap, first), slab);
    size_t length = slab->capacity * size_class_bytes(class_index);
    uint64_t reciprocal = hak__size_reciprocals[class_index];
    uint32_t count = 0;
    do {
        bool starts = size_class_starts((uintptr_t)object - start, reciprocal, slab->carved_count);
        if (HAK_UNLIKELY(!starts || !heap_object_is_marked(object, cache->mark) ||
                         count == slab->used_count)) {
            hak__object_is_wrong(object);
        }
        heap_object_set_free(object, object->next, hak__window.mark);
        last = object;
        object = object->next;
        count++;
    } while (count < most && (uintptr_t)object - start < length);
    bin->head = object;
    bin->room += (int32_t)count;
    hak__heap_slab_return(cache->heap, slab, (struct object_list){first, count}, last);
    return count;
}

/* Returns the `count` objects that were freed last. Under the heap's lock. */
static void bin_return(struct heap_cache *cache, uint32_t class_index, uint32_t count)
{
    const struct bin *bin = &cache->bins[class_index];
    while (count != 0 && bin->head != NULL) {
        count -= bin_return_run(cache, class_index, count);
    }
}

void hak__heap_cache_overflow(struct heap_cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    bin_raise_limit(cache, class_index);
    if (bin->room >= 0) {
        return;
    }
    int saved = errno;
    if (hak__heap_enter(cache->heap)) { /* if refused, the next free tries again */
        bin_return(cache, class_index, bin->limit / 2 + 1);
        hak__heap_leave(cache->heap);
    }
    errno = saved;
}

void hak__heap_cache_flush(struct heap_cache *cache)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct bin *bin = &cache->bins[class_index];
        bin_return(cache, class_index, UINT32_MAX);
        bin->limit = 0;
        bin->room = 0;
    }
}

bool hak__heap_cache_holds(const struct heap_cache *cache, uint32_t class_index,
                           const void *pointer)
{
    const struct bin *bin = &cache->bins[class_index];
    const struct object *object = bin->head;
    for (uint32_t left = bin_count(bin); object != NULL && object != pointer; left--) {
        if (HAK_UNLIKELY(left == 0)) { /* the list may have no end */
            hak__object_is_wrong(object);
        }
        object = object->next;
    }
    return object != NULL;
}

/* False: the cache's thread existed in fork's parent only, and may have been changing a bin. */
static bool cache_is_whole(const struct heap_cache *cache)
{
    return cache->epoch == hak__thread_epoch();
}

void hak__heap_cache_flush_all(struct hak_heap *heap)
{
    for (struct heap_cache *cache = heap->caches; cache != NULL; cache = cache->next) {
        if (cache_is_whole(cache)) {
            hak__heap_cache_flush(cache);
        }
    }
}

bool hak__heap_has_lost_caches(const struct hak_heap *heap)
{
    bool whole = true;
    for (struct heap_cache *cache = heap->caches; cache != NULL; cache = cache->next) {
        whole = whole && cache_is_whole(cache);
    }
    return !whole;
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

/* --- lists; all under HEAPS --- */

static void cache_link(struct heap_cache *cache)
{
    size_t *count = &cache->thread->shared_caches_count;
    atomic_store_relaxed(count, *count + 1);
    LIST_PUSH(cache->heap->caches, cache);
    LIST_PUSH_BY(cache->thread->caches, cache, next_in_thread, previous_in_thread);
}

static void cache_retire(struct heap_cache *cache)
{
    size_t *count = &cache->thread->shared_caches_count;
    atomic_store_relaxed(count, *count - 1);
    LIST_REMOVE(cache->heap->caches, cache);
    LIST_REMOVE_BY(cache->thread->caches, cache, next_in_thread, previous_in_thread);
    cache->next = heap_caches_free;
    heap_caches_free = cache;
}

void hak__heap_cache_drop_all(struct hak_heap *heap)
{
    while (heap->caches != NULL) {
        cache_retire(heap->caches);
    }
}

/* --- a thread's slots and table --- */

/* The table, to free it; NULL: none. */
static struct heap_slot *table_of(const struct heap_thread *thread)
{
    return thread->table_mask != 0 ? thread->table : NULL;
}

/* Empties the slots. `table` has `count` entries, a power of two, that are empty. */
static void table_set(struct heap_thread *thread, struct heap_slot *table, size_t count)
{
    memset(thread->slots, 0, sizeof thread->slots);
    thread->table = table;
    thread->table_mask = (count - 1) * sizeof *table;
    thread->table_room = count - count / 4 - 1;
}

/* Needs room in the table, unless the heap's slot is empty. */
static void table_put(struct heap_thread *thread, struct heap_cache *cache)
{
    struct heap_slot *slot = heap_slot_at(thread->slots, cache->heap->slot_offset), older = *slot;
    *slot = (struct heap_slot){cache->heap->id, cache};
    if (older.id != 0) {
        size_t offset = heap_table_offset(older.id);
        while ((slot = heap_slot_at(thread->table, offset & thread->table_mask))->id != 0) {
            offset += sizeof *slot;
        }
        *slot = older;
        thread->table_room--;
    }
}

/* Gives the thread a table that is at most half full, without heaps that were destroyed. No lock
 * held. False: no memory, or refused. */
static bool table_grow(struct heap_thread *thread)
{
    size_t count = HEAP_SLOTS, caches = atomic_load_relaxed(&thread->shared_caches_count);
    while (count < 2 * caches) { /* others only take some away meanwhile */
        count *= 2;
    }
    struct heap_slot *table = hak_calloc(count, sizeof *table), *old = table_of(thread);
    bool grows = table != NULL && hak__gate_enter();
    if (grows) {
        lock_acquire(&hak__heaps_lock);
        table_set(thread, table, count);
        for (struct heap_cache *cache = thread->caches; cache != NULL;
             cache = cache->next_in_thread) {
            table_put(thread, cache);
        }
        lock_release(&hak__heaps_lock);
        hak__gate_leave();
        table = old;
    }
    hak_free(table);
    return grows;
}

/* --- the end of a thread, and fork's child --- */

/* Chunks that become empty stay in the heap's `released` until its next operation: a provider is
 * called by those who use the heap, and never by a thread that just ends, perhaps after the program
 * has destroyed the heap and its provider. */
static void heap_thread_ended(void)
{
    struct heap_thread *thread = hak__heap_thread;
    if (heap_thread_is_none() || !hak__gate_enter_patiently()) {
        return;
    }
    hak__heap_thread = (struct heap_thread *)(uintptr_t)&hak__heap_thread_none;
    lock_acquire(&hak__heaps_lock); /* nobody destroys a heap meanwhile */
    while (thread->caches != NULL) {
        struct heap_cache *cache = thread->caches;
        if (!cache->inherited) {
            lock_acquire(&cache->heap->lock);
            hak__heap_cache_flush(cache);
            lock_release(&cache->heap->lock);
        }
        cache_retire(cache);
    }
    struct heap_slot *table = table_of(thread);
    thread->next_free = heap_threads_free;
    heap_threads_free = thread;
    lock_release(&hak__heaps_lock);
    hak__gate_leave();
    hak_free(table);
}

/* The caches of this thread go on; those of others stay as they were. Memory that is not hakmem's
 * may be shared with the parent, or not be there at all (MADV_DONTFORK): the child does not touch
 * it unless the program does. */
static void heap_thread_forked(void)
{
    for (struct heap_cache *cache = hak__heap_thread->caches; cache != NULL;
         cache = cache->next_in_thread) {
        cache->epoch = hak__thread_epoch();
        cache->inherited = !cache->heap->own_pages;
    }
}

static const struct thread_listener heap_listener = {heap_thread_ended, heap_thread_forked};

/* --- making caches --- */

/* This thread's struct, or one for it. Inside the gate, no lock held. NULL: no memory. */
static struct heap_thread *heap_thread_make(void)
{
    if (!heap_thread_is_none()) {
        return hak__heap_thread;
    }
    lock_acquire(&hak__heaps_lock);
    struct heap_thread *thread = heap_threads_free;
    if (thread != NULL) {
        heap_threads_free = thread->next_free;
    }
    lock_release(&hak__heaps_lock);
    thread = thread != NULL ? thread : hak__metadata_allocate(sizeof *thread);
    if (thread != NULL) {
        table_set(thread, hak__heap_thread_none.table, 1);
        hak__heap_thread = thread;
        /* relaxed: each thread that reads it in hak__thread_end has stored it here itself */
        atomic_store_relaxed(&hak__thread_listener, &heap_listener);
    }
    return thread;
}

/* Inside the gate, no lock held. NULL: no memory. */
static struct heap_cache *cache_make(struct hak_heap *heap)
{
    struct heap_thread *thread = heap_thread_make();
    if (thread == NULL) {
        return NULL;
    }
    lock_acquire(&hak__heaps_lock);
    struct heap_cache *cache = heap_caches_free;
    if (cache != NULL) {
        heap_caches_free = cache->next;
    }
    lock_release(&hak__heaps_lock);
    cache = cache != NULL ? cache : hak__metadata_allocate(sizeof *cache);
    if (cache != NULL) {
        memset(cache->bins, 0, sizeof cache->bins);
        cache->heap = heap;
        cache->thread = thread;
        cache->epoch = hak__thread_epoch();
        cache->inherited = false;
        cache->mark = hak__window.mark ^ (uintptr_t)cache;
        lock_acquire(&hak__heaps_lock);
        cache_link(cache);
        table_put(thread, cache);
        lock_release(&hak__heaps_lock);
    }
    return cache;
}

struct heap_cache *hak__heap_cache(struct hak_heap *heap)
{
    struct heap_cache *cache = NULL;
    if (HAK_LIKELY(heap_find(heap, &cache))) {
        return cache;
    }
    hak__heap_check_alive(heap);
    if (hak__thread_current() == NULL) { /* the thread's end would not be told */
        return NULL;
    }
    struct heap_thread *thread = hak__heap_thread;
    bool has_room = heap_slot(heap)->id == 0 || thread->table_room != 0 || table_grow(thread);
    if (has_room && hak__gate_enter()) {
        cache = cache_make(heap);
        hak__gate_leave();
    }
    return cache;
}
