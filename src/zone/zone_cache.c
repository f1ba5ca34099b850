/* SPDX-License-Identifier: MIT */
/* zone_cache.c: the caches that threads have for zones. See zone.h.
 *
 * A bin's limit begins at ZONE_BIN_START_BYTES of objects. Each refill and each overflow doubles
 * it, up to the zone's bin_bytes, or an eighth of that for objects that share cache lines. A refill
 * brings half the limit, an overflow at the largest limit returns half of it. So a bin of a thread
 * that only allocates, only frees, or does both in turn takes the lock once for many objects.
 *
 * When a thread ends, the listener returns the objects of all its caches, and the caches wait to be
 * used again. A destroyed zone takes its caches away from their threads. */
#include "zone/zone.h"

#include "base/list.h"
#include "heap/heap.h"

#include <errno.h>
#include <string.h>

const struct zone_thread hak__zone_thread_none = {
    .table = (struct zone_slot *)(uintptr_t)hak__zone_thread_none.slots};
HAK_TLS struct zone_thread *hak__zone_thread =
    (struct zone_thread *)(uintptr_t)&hak__zone_thread_none;

struct lock HAK_LOCK_LINE hak__zones_lock = LOCK_INITIAL(LOCK_RANK_ZONES);
static struct zone_thread *zone_threads_free; /* these two under ZONES */
static struct zone_cache *zone_caches_free;

static bool zone_thread_is_none(void)
{
    return hak__zone_thread == &hak__zone_thread_none;
}

/* The largest limit of a bin, objects. */
static uint32_t bin_limit_max(const struct hak_heap *zone, uint32_t class_index)
{
    size_t bytes = zone->bin_bytes;
    bytes >>= size_class_has_own_lines(class_index) ? 0 : ZONE_BIN_SMALL_SHIFT;
    size_t objects = bytes / size_class_bytes(class_index);
    return objects < BIN_OBJECTS_MAX ? (uint32_t)objects : BIN_OBJECTS_MAX;
}

static uint32_t bin_limit_next(const struct hak_heap *zone, uint32_t class_index, uint32_t limit)
{
    uint32_t most = bin_limit_max(zone, class_index);
    uint32_t start = ZONE_BIN_START_BYTES / size_class_bytes(class_index);
    uint32_t next = limit == 0 ? start : 2 * limit;
    next = next == 0 ? 1 : next;
    return next < most ? next : most;
}

static void bin_raise_limit(struct zone_cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    uint32_t next = bin_limit_next(cache->zone, class_index, bin->limit);
    if (next > bin->limit) {
        bin->room += (int32_t)(next - bin->limit);
        bin->limit = next;
    }
}

uint32_t hak__zone_cache_wants(const struct zone_cache *cache, uint32_t class_index)
{
    uint32_t limit = bin_limit_next(cache->zone, class_index, cache->bins[class_index].limit);
    return limit / 2 + 1;
}

void hak__zone_cache_fill(struct zone_cache *cache, uint32_t class_index, struct object_list list)
{
    struct bin *bin = &cache->bins[class_index];
    HAK_ASSERT(bin->head == NULL);
    bin_raise_limit(cache, class_index);
    bin->head = list.head;
    bin->room -= (int32_t)list.count;
}

struct object *hak__zone_bin_pop(const struct zone_cache *cache, struct bin *bin)
{
    struct object *object = zone_bin_pop(cache, bin);
    if (HAK_UNLIKELY(object == NULL)) {
        hak__object_is_wrong(bin->head);
    }
    return object;
}

/* The slab of an object from a bin of the class. Under the zone's lock. */
static struct zone_page *bin_slab_of(const struct hak_heap *zone, const struct object *object,
                                     uint32_t class_index)
{
    struct zone_chunk *chunk = zone_chunk_of(zone, object);
    struct zone_page *page = zone_page_of(zone, chunk, object);
    if (page != NULL) {
        zone_check_chunk(zone, chunk);
        page = zone_page_first(zone, chunk, page);
    }
    if (HAK_UNLIKELY(page == NULL || page->kind != PAGE_SLAB || page->class_index != class_index)) {
        hak__object_is_wrong(object);
    }
    (void)hak__zone_pages(zone, chunk, page);
    return page;
}

/* Returns up to `most` of the first objects of a bin, as far as they are of the same slab: they are
 * linked already. Returns how many. Under the zone's lock. */
static uint32_t bin_return_run(struct zone_cache *cache, uint32_t class_index, uint32_t most)
{
    struct bin *bin = &cache->bins[class_index];
    struct object *first = bin->head, *last, *object = first;
    struct zone_page *slab = bin_slab_of(cache->zone, first, class_index);
    uintptr_t start = (uintptr_t)zone_page_start(zone_chunk_of(cache->zone, first), slab);
    size_t length = slab->capacity * size_class_bytes(class_index);
    uint64_t reciprocal = hak__size_reciprocals[class_index];
    uint32_t count = 0;
    do {
        bool starts = size_class_starts((uintptr_t)object - start, reciprocal, slab->carved_count);
        if (HAK_UNLIKELY(!starts || !zone_object_is_marked(object, cache->mark) ||
                         count == slab->used_count)) {
            hak__object_is_wrong(object);
        }
        zone_object_set_free(object, object->next, hak__window.mark);
        last = object;
        object = object->next;
        count++;
    } while (count < most && (uintptr_t)object - start < length);
    bin->head = object;
    bin->room += (int32_t)count;
    hak__zone_slab_return(cache->zone, slab, (struct object_list){first, count}, last);
    return count;
}

/* Returns the `count` objects that were freed last. Under the zone's lock. */
static void bin_return(struct zone_cache *cache, uint32_t class_index, uint32_t count)
{
    const struct bin *bin = &cache->bins[class_index];
    while (count != 0 && bin->head != NULL) {
        count -= bin_return_run(cache, class_index, count);
    }
}

void hak__zone_cache_overflow(struct zone_cache *cache, uint32_t class_index)
{
    struct bin *bin = &cache->bins[class_index];
    bin_raise_limit(cache, class_index);
    if (bin->room >= 0) {
        return;
    }
    int saved = errno;
    if (hak__zone_enter(cache->zone)) { /* if refused, the next free tries again */
        bin_return(cache, class_index, bin->limit / 2 + 1);
        hak__zone_leave(cache->zone);
    }
    errno = saved;
}

void hak__zone_cache_flush(struct zone_cache *cache)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct bin *bin = &cache->bins[class_index];
        bin_return(cache, class_index, UINT32_MAX);
        bin->limit = 0;
        bin->room = 0;
    }
}

bool hak__zone_cache_holds(const struct zone_cache *cache, uint32_t class_index,
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
static bool cache_is_whole(const struct zone_cache *cache)
{
    return cache->epoch == hak__thread_epoch();
}

void hak__zone_cache_flush_all(struct hak_heap *zone)
{
    for (struct zone_cache *cache = zone->caches; cache != NULL; cache = cache->next) {
        if (cache_is_whole(cache)) {
            hak__zone_cache_flush(cache);
        }
    }
}

bool hak__zone_has_lost_caches(const struct hak_heap *zone)
{
    bool whole = true;
    for (struct zone_cache *cache = zone->caches; cache != NULL; cache = cache->next) {
        whole = whole && cache_is_whole(cache);
    }
    return !whole;
}

/* A bin that its thread is changing may seem to hold less than nothing. */
static HAK_RACY_READER size_t cache_objects(const struct zone_cache *cache, uint32_t class_index)
{
    const struct bin *bin = &cache->bins[class_index];
    int32_t count = (int32_t)bin->limit - bin->room;
    return count > 0 ? (size_t)count : 0;
}

size_t hak__zone_cache_objects(const struct hak_heap *zone, uint32_t class_index)
{
    size_t count = 0;
    for (const struct zone_cache *cache = zone->caches; cache != NULL; cache = cache->next) {
        count += cache_is_whole(cache) ? cache_objects(cache, class_index) : 0;
    }
    return count;
}

/* --- lists; all under ZONES --- */

static void cache_link(struct zone_cache *cache)
{
    size_t *count = &cache->thread->shared_caches_count;
    atomic_store_relaxed(count, *count + 1);
    LIST_PUSH(cache->zone->caches, cache);
    LIST_PUSH_BY(cache->thread->caches, cache, next_in_thread, previous_in_thread);
}

static void cache_retire(struct zone_cache *cache)
{
    size_t *count = &cache->thread->shared_caches_count;
    atomic_store_relaxed(count, *count - 1);
    LIST_REMOVE(cache->zone->caches, cache);
    LIST_REMOVE_BY(cache->thread->caches, cache, next_in_thread, previous_in_thread);
    cache->next = zone_caches_free;
    zone_caches_free = cache;
}

void hak__zone_cache_drop_all(struct hak_heap *zone)
{
    while (zone->caches != NULL) {
        cache_retire(zone->caches);
    }
}

/* --- a thread's slots and table --- */

/* The table, to free it; NULL: none. */
static struct zone_slot *table_of(const struct zone_thread *thread)
{
    return thread->table_mask != 0 ? thread->table : NULL;
}

/* Empties the slots. `table` has `count` entries, a power of two, that are empty. */
static void table_set(struct zone_thread *thread, struct zone_slot *table, size_t count)
{
    memset(thread->slots, 0, sizeof thread->slots);
    thread->table = table;
    thread->table_mask = (count - 1) * sizeof *table;
    thread->table_room = count - count / 4 - 1;
}

/* Needs room in the table, unless the zone's slot is empty. */
static void table_put(struct zone_thread *thread, struct zone_cache *cache)
{
    struct zone_slot *slot = zone_slot_at(thread->slots, cache->zone->slot_offset), older = *slot;
    *slot = (struct zone_slot){cache->zone->id, cache};
    if (older.id != 0) {
        size_t offset = zone_table_offset(older.id);
        while ((slot = zone_slot_at(thread->table, offset & thread->table_mask))->id != 0) {
            offset += sizeof *slot;
        }
        *slot = older;
        thread->table_room--;
    }
}

/* Gives the thread a table that is at most half full, without zones that were destroyed. No lock
 * held. False: no memory, or refused. */
static bool table_grow(struct zone_thread *thread)
{
    size_t count = ZONE_SLOTS, caches = atomic_load_relaxed(&thread->shared_caches_count);
    while (count < 2 * caches) { /* others only take some away meanwhile */
        count *= 2;
    }
    struct zone_slot *table = hak_calloc(count, sizeof *table), *old = table_of(thread);
    bool grows = table != NULL && hak__gate_enter();
    if (grows) {
        lock_acquire(&hak__zones_lock);
        table_set(thread, table, count);
        for (struct zone_cache *cache = thread->caches; cache != NULL;
             cache = cache->next_in_thread) {
            table_put(thread, cache);
        }
        lock_release(&hak__zones_lock);
        hak__gate_leave();
        table = old;
    }
    hak_free(table);
    return grows;
}

/* --- the end of a thread, and fork's child --- */

/* Chunks that become empty stay in the zone's `released` until its next operation: a provider is
 * called by those who use the heap, and never by a thread that just ends, perhaps after the program
 * has destroyed the heap and its provider. */
static void zone_thread_ended(void)
{
    struct zone_thread *thread = hak__zone_thread;
    if (zone_thread_is_none() || !hak__gate_enter_patiently()) {
        return;
    }
    hak__zone_thread = (struct zone_thread *)(uintptr_t)&hak__zone_thread_none;
    lock_acquire(&hak__zones_lock); /* nobody destroys a zone meanwhile */
    while (thread->caches != NULL) {
        struct zone_cache *cache = thread->caches;
        if (!cache->inherited) {
            lock_acquire(&cache->zone->lock);
            hak__zone_cache_flush(cache);
            lock_release(&cache->zone->lock);
        }
        cache_retire(cache);
    }
    struct zone_slot *table = table_of(thread);
    thread->next_free = zone_threads_free;
    zone_threads_free = thread;
    lock_release(&hak__zones_lock);
    hak__gate_leave();
    hak_free(table);
}

/* The caches of this thread go on; those of others stay as they were. Memory that is not hakmem's
 * may be shared with the parent, or not be there at all (MADV_DONTFORK): the child does not touch
 * it unless the program does. */
static void zone_thread_forked(void)
{
    for (struct zone_cache *cache = hak__zone_thread->caches; cache != NULL;
         cache = cache->next_in_thread) {
        cache->epoch = hak__thread_epoch();
        cache->inherited = !cache->zone->own_pages;
    }
}

static const struct thread_listener zone_listener = {zone_thread_ended, zone_thread_forked};

/* --- making caches --- */

/* This thread's struct, or one for it. Inside the gate, no lock held. NULL: no memory. */
static struct zone_thread *zone_thread_make(void)
{
    if (!zone_thread_is_none()) {
        return hak__zone_thread;
    }
    lock_acquire(&hak__zones_lock);
    struct zone_thread *thread = zone_threads_free;
    if (thread != NULL) {
        zone_threads_free = thread->next_free;
    }
    lock_release(&hak__zones_lock);
    thread = thread != NULL ? thread : hak__metadata_allocate(sizeof *thread);
    if (thread != NULL) {
        table_set(thread, hak__zone_thread_none.table, 1);
        hak__zone_thread = thread;
        /* relaxed: each thread that reads it in hak__thread_end has stored it here itself */
        atomic_store_relaxed(&hak__thread_listener, &zone_listener);
    }
    return thread;
}

/* Inside the gate, no lock held. NULL: no memory. */
static struct zone_cache *cache_make(struct hak_heap *zone)
{
    struct zone_thread *thread = zone_thread_make();
    if (thread == NULL) {
        return NULL;
    }
    lock_acquire(&hak__zones_lock);
    struct zone_cache *cache = zone_caches_free;
    if (cache != NULL) {
        zone_caches_free = cache->next;
    }
    lock_release(&hak__zones_lock);
    cache = cache != NULL ? cache : hak__metadata_allocate(sizeof *cache);
    if (cache != NULL) {
        memset(cache->bins, 0, sizeof cache->bins);
        cache->zone = zone;
        cache->thread = thread;
        cache->epoch = hak__thread_epoch();
        cache->inherited = false;
        cache->mark = hak__window.mark ^ (uintptr_t)cache;
        lock_acquire(&hak__zones_lock);
        cache_link(cache);
        table_put(thread, cache);
        lock_release(&hak__zones_lock);
    }
    return cache;
}

struct zone_cache *hak__zone_cache(struct hak_heap *zone)
{
    struct zone_cache *cache = NULL;
    if (HAK_LIKELY(zone_find(zone, &cache))) {
        return cache;
    }
    hak__zone_check_alive(zone);
    if (hak__thread_current() == NULL) { /* the thread's end would not be told */
        return NULL;
    }
    struct zone_thread *thread = hak__zone_thread;
    bool has_room = zone_slot(zone)->id == 0 || thread->table_room != 0 || table_grow(thread);
    if (has_room && hak__gate_enter()) {
        cache = cache_make(zone);
        hak__gate_leave();
    }
    return cache;
}
