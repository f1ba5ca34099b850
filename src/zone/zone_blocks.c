/* SPDX-License-Identifier: MIT */
/* zone_blocks.c: the slow paths of allocation and free in a zone.
 *
 *   allocate   refill of a bin, or a block of whole pages, from the zone's free runs
 *                none fits -> a chunk of the provider
 *                  none    -> this thread's bins and empty slabs go back, and one more try
 *                    none  -> the event function, which may say: again
 *   free       object    -> this thread's bin, or its slab if the thread has no cache
 *              block     -> free runs
 *              anything else is reported */
#include "zone/zone.h"

#include "base/bits.h"
#include "core/diagnose.h"
#include "large/span.h"
#include "large/whale.h"
#include "os/os.h"

#include <errno.h>

/* What an allocation needs. */
struct request {
    uint32_t class_index; /* 0: whole pages */
    size_t size;
    size_t pages;             /* one object needs at least */
    size_t alignment;         /* pages */
    struct zone_cache *cache; /* NULL: this thread has none */
};

/* Pages from a chunk's start to a huge block in it. */
static size_t request_ahead(const struct hak_heap *zone, const struct request *request)
{
    return request->alignment > zone->head_pages ? request->alignment : zone->head_pages;
}

static bool request_is_huge(const struct hak_heap *zone, const struct request *request)
{
    return request->pages + request->alignment - 1 + zone->head_pages > ZONE_CHUNK_PAGES;
}

/* Makes `first` a block. Under the zone's lock. */
static void *block_begin(struct hak_heap *zone, struct zone_page *first, size_t pages)
{
    struct zone_chunk *chunk = zone_chunk_of(zone, first);
    if (pages > 1 && !zone_chunk_is_huge(zone, chunk)) { /* a huge one's last page has no entry */
        first[pages - 1].kind = PAGE_INSIDE;
        first[pages - 1].class_index = 0;
    }
    first->kind = PAGE_BLOCK;
    first->class_index = 0;
    first->pages = pages;
    zone->blocks_count++;
    zone->blocks_bytes += pages << ZONE_PAGE_SHIFT;
    return zone_page_start(chunk, first);
}

/* Under the zone's lock. */
static void block_end(struct hak_heap *zone, struct zone_page *first)
{
    struct zone_chunk *chunk = zone_chunk_of(zone, first);
    zone->blocks_count--;
    zone->blocks_bytes -= first->pages << ZONE_PAGE_SHIFT;
    if (zone_chunk_is_huge(zone, chunk)) {
        first->kind = PAGE_INSIDE;
        hak__zone_chunk_release(zone, chunk);
    } else {
        hak__zone_run_give(zone, first, first->pages);
    }
}

/* One try under the zone's lock, without new chunks. What the bin gets is put into *list. */
static void *allocate_try(struct hak_heap *zone, const struct request *request,
                          struct object_list *list)
{
    *list = (struct object_list){NULL, 0};
    if (request->class_index == 0) {
        struct zone_page *first = hak__zone_run_take(zone, request->pages, request->alignment);
        return first != NULL ? block_begin(zone, first, request->pages) : NULL;
    }
    const struct zone_cache *cache = request->cache;
    uint32_t most = cache == NULL ? 1 : hak__zone_cache_wants(cache, request->class_index);
    uintptr_t mark = cache == NULL ? hak__window.mark : cache->mark;
    *list = hak__zone_slab_take(zone, request->class_index, most, mark);
    struct object *object = list->head;
    if (object != NULL) {
        list->head = object->next;
        list->count--;
        (void)zone_object_set_used(object, mark);
    }
    return object;
}

/* Reserves memory for a chunk of `size` bytes; `least` will do. Returns what is allowed; 0: the
 * limit forbids even that. Under the zone's lock. */
static size_t chunk_reserve(struct hak_heap *zone, size_t size, size_t least)
{
    size_t room = zone->limit > zone->mapped ? zone->limit - zone->mapped : 0;
    if (room < size) {
        size = bits_align_down(room, ZONE_PAGE_SIZE);
        if (size < least) {
            return 0;
        }
    }
    zone->mapped += size;
    zone->mapped_peak = zone->mapped_peak > zone->mapped ? zone->mapped_peak : zone->mapped;
    return size;
}

static void chunk_unreserve(struct hak_heap *zone, size_t size)
{
    if (hak__zone_enter(zone)) {
        zone->mapped -= size;
        hak__zone_leave(zone);
    }
}

/* Gets one more chunk for the request, and a huge block in it at once. Event 0: done. No lock. */
static enum hak_heap_event chunk_get(struct hak_heap *zone, const struct request *request,
                                     void **block)
{
    bool huge = request_is_huge(zone, request);
    size_t ahead = request_ahead(zone, request);
    size_t least = (request->pages + request->alignment - 1 + zone->head_pages) << ZONE_PAGE_SHIFT;
    if (huge) { /* longer than other chunks */
        least = (request->pages + ahead) << ZONE_PAGE_SHIFT;
        least = least > ZONE_CHUNK_SIZE ? least : ZONE_CHUNK_SIZE + ZONE_PAGE_SIZE;
    }
    if (zone->fixed || !hak__zone_enter(zone)) {
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    size_t size = chunk_reserve(zone, huge ? least : ZONE_CHUNK_SIZE, least);
    hak__zone_leave(zone);
    if (size == 0) {
        return HAK_HEAP_OVER_LIMIT;
    }
    void *memory = zone->pages.map(zone->pages.argument, size, ZONE_CHUNK_SIZE);
    if (memory == NULL) {
        chunk_unreserve(zone, size);
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    if (HAK_UNLIKELY(((uintptr_t)memory & (ZONE_CHUNK_SIZE - 1)) != 0)) {
        hak__diagnose_foreign("a heap's page provider returned memory that is not aligned", memory);
    }
    hak__zone_chunk_init(zone, memory, size);
    if (zone_closes_pages(zone)) {
        (void)hak__os_close_pages((char *)memory + ZONE_PAGE_SIZE, ZONE_PAGE_SIZE);
    }
    if (!hak__zone_enter(zone)) { /* cannot happen: this thread was outside a moment ago */
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    hak__zone_chunk_add(zone, memory, huge);
    if (huge) {
        *block = block_begin(zone, zone_page_at(memory, ahead), request->pages);
    }
    hak__zone_leave(zone);
    return 0;
}

/* Gives back what this thread and empty slabs keep, for a last try. */
static void *allocate_again(struct hak_heap *zone, const struct request *request,
                            struct object_list *list)
{
    struct zone_cache *cache = hak__zone_cache(zone);
    if (!hak__zone_enter(zone)) {
        return NULL;
    }
    if (cache != NULL) {
        hak__zone_cache_flush(cache);
    }
    hak__zone_slab_gather(zone);
    void *object = allocate_try(zone, request, list);
    hak__zone_leave(zone);
    return object;
}

static HAK_COLD void *allocate_failed(struct hak_heap *zone)
{
    if (hak__zone_enter(zone)) {
        zone->failures_count++;
        hak__zone_leave(zone);
    }
    errno = ENOMEM;
    return NULL;
}

static void *allocate(struct hak_heap *zone, const struct request *request,
                      struct object_list *list)
{
    void *object = NULL;
    bool again = true; /* the bins have not gone back yet */
    while (object == NULL) {
        if (request->class_index != 0 || !request_is_huge(zone, request) || zone->fixed) {
            if (!hak__zone_enter(zone)) {
                return allocate_failed(zone);
            }
            object = allocate_try(zone, request, list);
            hak__zone_leave(zone);
        }
        enum hak_heap_event event = object == NULL ? chunk_get(zone, request, &object) : 0;
        if (event != 0 && again) {
            again = false;
            object = allocate_again(zone, request, list);
        } else if (event != 0 && !hak__zone_event(zone, event, request->size, NULL)) {
            return allocate_failed(zone);
        }
    }
    return object;
}

void *hak__zone_allocate(struct hak_heap *zone, uint32_t class_index, size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX - HAK_HEAP_ALIGNMENT_MAX)) {
        return allocate_failed(zone);
    }
    size_t pages = zone_pages_for(class_index != 0 ? size_class_bytes(class_index) : size);
    size_t aligned = alignment >> ZONE_PAGE_SHIFT;
    struct zone_cache *cache = class_index != 0 ? hak__zone_cache(zone) : NULL;
    if (cache != NULL && cache->bins[class_index].head != NULL) {
        /* It is corrupt, which this reports. */
        return hak__zone_bin_pop(cache, &cache->bins[class_index]);
    }
    struct request request = {class_index, size, pages == 0 ? 1 : pages, aligned == 0 ? 1 : aligned,
                              cache};
    struct object_list list = {NULL, 0};
    void *object = allocate(zone, &request, &list);
    if (list.count != 0) {
        hak__zone_cache_fill(cache, class_index, list);
    }
    return object;
}

/* --- free --- */

struct zone_place hak__zone_locate(const struct hak_heap *zone, const void *pointer)
{
    struct zone_place place = {zone_chunk_of(zone, pointer), NULL, 0};
    struct zone_page *page = zone_page_of(zone, place.chunk, pointer);
    if (page == NULL || zone_page_index(place.chunk, page) < zone->head_pages) {
        return place;
    }
    zone_check_chunk(zone, place.chunk);
    page = zone_page_first(zone, place.chunk, page);
    size_t offset = (size_t)((const unsigned char *)pointer - zone_page_start(place.chunk, page));
    if (page->kind == PAGE_BLOCK && offset == 0) {
        place.page = page;
        place.bytes = hak__zone_pages(zone, place.chunk, page) << ZONE_PAGE_SHIFT;
    } else if (page->kind == PAGE_SLAB) { /* who changes the slab looks at the rest of it */
        if (HAK_UNLIKELY(page->class_index - 1u >= CLASS_COUNT - 1)) {
            hak__zone_corrupt(zone, page);
        }
        size_t bytes = size_class_bytes(page->class_index);
        if (offset < page->capacity * bytes && offset % bytes == 0) {
            place.page = page;
            place.bytes = bytes;
        }
    }
    return place;
}

struct hak_heap *hak__zone_of(const void *pointer)
{
    uintptr_t start = (uintptr_t)pointer & ~(ZONE_CHUNK_SIZE - 1);
    struct zone_chunk *chunk = (struct zone_chunk *)start;
    size_t slice = window_slice_of(chunk);
    bool is_span = window_contains_slice(slice) &&
                   (window_owner(slice) & OWNER_CODE_MASK) == OWNER_SPAN &&
                   hak__span_pointer(slice) == chunk;
    if (!is_span && (start == 0 || hak__whale_bytes(chunk) == 0)) {
        return NULL; /* no block of hakmem starts there */
    }
    return hak__zone_chunk_has_cookie(chunk) ? chunk->zone : NULL;
}

void hak__zone_return(struct hak_heap *zone, void *pointer)
{
    struct zone_page *page = hak__zone_locate(zone, pointer).page;
    if (page == NULL) {
        hak__object_is_wrong(pointer); /* it was one when it was freed */
    }
    if (page->kind == PAGE_BLOCK) {
        block_end(zone, page);
    } else {
        (void)hak__zone_pages(zone, zone_chunk_of(zone, page), page);
        zone_object_set_free(pointer, NULL, hak__window.mark);
        hak__zone_slab_return(zone, page, (struct object_list){pointer, 1}, pointer);
    }
}

/* This thread can take no lock now: it is in a signal handler that interrupted an operation. The
 * zone's next operation takes the object in. */
static HAK_COLD void zone_free_late(struct hak_heap *zone, void *pointer)
{
    struct object *object = pointer, *first = atomic_load_relaxed(&zone->shared_late);
    do {
        zone_object_set_free(object, first, hak__window.mark);
        /* release: pairs with the acquire in zone_settle */
    } while (!atomic_cas_weak_release(&zone->shared_late, &first, object));
}

void hak__zone_free(struct hak_heap *zone, void *pointer)
{
    hak__zone_check_alive(zone);
    if (pointer == NULL) {
        return;
    }
    struct zone_place place = hak__zone_locate(zone, pointer);
    if (HAK_UNLIKELY(place.page == NULL)) {
        hak__zone_no_object(zone, pointer);
        return;
    }
    int saved = errno;
    bool is_object = place.page->kind == PAGE_SLAB;
    struct zone_cache *cache = is_object ? hak__zone_cache(zone) : NULL;
    if (cache != NULL) {
        uint32_t class_index = place.page->class_index;
        if (cache->bins[class_index].head == pointer ||
            (HAK_LEVEL >= 2 && hak__zone_cache_holds(cache, class_index, pointer))) {
            hak__zone_bad_pointer(zone, pointer, "double free");
        } else {
            zone_cache_push(cache, bin_offset(class_index), pointer);
        }
    } else if (hak__zone_enter(zone)) {
        hak__zone_return(zone, pointer);
        hak__zone_leave(zone);
    } else {
        zone_free_late(zone, pointer);
    }
    errno = saved;
}
