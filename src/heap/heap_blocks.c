/* SPDX-License-Identifier: MIT */
/* heap_blocks.c: the slow paths of allocation and free in a heap.
 *
 *   allocate   refill of a bin, or a block of whole pages, from the heap's free pages
 *                none fits -> a chunk of the provider
 *                  none    -> this thread's bins and empty slabs go back, and one more try
 *                    none  -> the event function, which may say: again
 *   free       object    -> this thread's bin, or its slab if the thread has no cache
 *              block     -> free pages
 *              anything else is reported */
#include "heap/heap.h"

#include "core/diagnose.h"

#include <errno.h>

/* What an allocation needs. */
struct request {
    uint32_t class_index; /* 0: whole pages */
    size_t size;
    size_t pages;             /* one object needs at least */
    size_t alignment;         /* pages */
    struct heap_cache *cache; /* NULL: this thread has none */
};

/* Pages from the start of a new chunk to the request's. Chunks are aligned to more. */
static size_t request_ahead(const struct hak_heap *heap, const struct request *request)
{
    return heap_first_page(heap) * request->alignment;
}

/* True: no other chunk than one of its own has room for it. */
static bool request_is_huge(const struct hak_heap *heap, const struct request *request)
{
    return !heap->fixed && request_ahead(heap, request) + request->pages > HEAP_CHUNK_PAGES;
}

/* Makes the run a block. Under the heap's lock. */
static void *block_begin(struct hak_heap *heap, struct heap_run *run, size_t pages)
{
    run->class_index = 0;
    run->pages = pages;
    run->chunk->pages[heap_run_index(run)].kind = PAGE_BLOCK;
    heap->blocks_count++;
    heap->blocks_bytes += pages << HEAP_PAGE_SHIFT;
    return heap_run_start(run);
}

/* Under the heap's lock. */
static void block_end(struct hak_heap *heap, struct heap_run *run)
{
    heap->blocks_count--;
    heap->blocks_bytes -= run->pages << HEAP_PAGE_SHIFT;
    if (!heap->fixed && run->chunk->size > HEAP_CHUNK_SIZE) { /* it has no other block */
        hak__heap_chunk_release(heap, run->chunk);
    } else {
        hak__heap_run_give(heap, run, run->pages);
    }
}

/* One try under the heap's lock, without new chunks. */
static void *allocate_try(struct hak_heap *heap, const struct request *request)
{
    uint32_t class_index = request->class_index;
    if (class_index == 0) {
        struct heap_run *run = request_is_huge(heap, request)
                                   ? NULL
                                   : hak__heap_run_take(heap, request->pages, request->alignment);
        return run != NULL ? block_begin(heap, run, request->pages) : NULL;
    }
    struct heap_cache *cache = request->cache;
    uint32_t most = cache == NULL ? 1 : hak__heap_cache_limit(cache, class_index) / 2 + 1;
    uintptr_t mark = cache == NULL ? hak__window.mark : cache->mark;
    struct object_list list = hak__heap_slab_take(heap, class_index, most, mark);
    struct object *object = list.head;
    if (object != NULL && cache != NULL) {
        struct bin *bin = &cache->bins[class_index];
        HAK_ASSERT(bin->head == NULL);
        bin->head = object->next;
        bin->room -= (int32_t)list.count - 1;
    }
    if (object != NULL) {
        (void)heap_object_set_used(object, mark);
    }
    return object;
}

/* Bytes that a chunk of so many pages takes, with what describes it. */
static size_t chunk_bytes(size_t pages)
{
    size_t entries = pages < HEAP_CHUNK_PAGES ? pages : HEAP_CHUNK_PAGES;
    return (pages << HEAP_PAGE_SHIFT) + heap_chunk_bytes(entries);
}

/* Reserves memory for a chunk of `pages`; `least` will do. Returns how many the limit allows; 0:
 * not even that. Under the heap's lock. */
static size_t chunk_reserve(struct hak_heap *heap, size_t pages, size_t least)
{
    size_t room = heap->limit > heap->mapped ? heap->limit - heap->mapped : 0;
    while (chunk_bytes(pages) > room) {
        if (pages == least) {
            return 0;
        }
        pages--;
    }
    heap->mapped += chunk_bytes(pages);
    heap->mapped_peak = heap->mapped_peak > heap->mapped ? heap->mapped_peak : heap->mapped;
    return pages;
}

/* Asks the provider for a chunk of so many pages. NULL: no memory. No lock. */
static struct heap_chunk *chunk_map(struct hak_heap *heap, size_t pages)
{
    size_t size = pages << HEAP_PAGE_SHIFT;
    void *memory = heap->pages.map(heap->pages.argument, HEAP_CHUNK_SIZE, size);
    if (memory == NULL) {
        return NULL;
    }
    if (HAK_UNLIKELY(((uintptr_t)memory & (HEAP_CHUNK_SIZE - 1)) != 0)) {
        hak__diagnose_foreign("a heap's page provider returned memory that is not aligned", memory);
    }
    struct heap_chunk *chunk = hak__heap_chunk_make(heap, memory, size);
    if (chunk == NULL && heap->pages.unmap != NULL) {
        heap->pages.unmap(heap->pages.argument, memory, size);
    }
    return chunk;
}

/* Gets one more chunk for the request, and a huge block in it at once. Event 0: done. No lock. */
static enum hak_heap_event chunk_get(struct hak_heap *heap, const struct request *request,
                                     void **block)
{
    bool huge = request_is_huge(heap, request);
    size_t ahead = request_ahead(heap, request), least = ahead + request->pages;
    if (heap->fixed || !hak__heap_enter(heap)) {
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    size_t pages = chunk_reserve(heap, huge ? least : HEAP_CHUNK_PAGES, least);
    hak__heap_leave(heap);
    if (pages == 0) {
        return HAK_HEAP_OVER_LIMIT;
    }
    struct heap_chunk *chunk = chunk_map(heap, pages);
    if (!hak__heap_enter(heap)) { /* cannot happen: this thread was outside a moment ago */
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    if (chunk == NULL) {
        heap->mapped -= chunk_bytes(pages);
    } else {
        hak__heap_chunk_add(heap, chunk, huge ? chunk->shared_pages : heap_first_page(heap));
        if (huge) {
            *block = block_begin(heap, heap_run_at(chunk, ahead), request->pages);
        }
    }
    hak__heap_leave(heap);
    return chunk == NULL ? HAK_HEAP_OUT_OF_MEMORY : 0;
}

static HAK_COLD void *allocate_failed(struct hak_heap *heap)
{
    if (hak__heap_enter(heap)) {
        heap->failures_count++;
        hak__heap_leave(heap);
    }
    errno = ENOMEM;
    return NULL;
}

static void *allocate(struct hak_heap *heap, const struct request *request)
{
    void *object = NULL;
    enum hak_heap_event event = 0;
    bool gathered = false;
    for (;;) {
        if (!hak__heap_enter(heap)) {
            return allocate_failed(heap);
        }
        if (event != 0) { /* again after the event function, which may have filled a bin */
            gathered = true;
            hak__heap_gather(heap);
        }
        object = allocate_try(heap, request);
        hak__heap_leave(heap);
        if (object == NULL) {
            event = chunk_get(heap, request, &object);
        }
        if (object != NULL) {
            return object;
        }
        if (event != 0 && gathered && !hak__heap_event(heap, event, request->size, NULL)) {
            return allocate_failed(heap);
        }
    }
}

void *hak__heap_allocate(struct hak_heap *heap, uint32_t class_index, size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX - HAK_HEAP_ALIGNMENT_MAX)) {
        return allocate_failed(heap);
    }
    size = size == 0 ? 1 : size;
    class_index = size == 1 && alignment == 1 ? 1 : class_index;
    size_t pages = heap_pages_for(class_index != 0 ? size_class_bytes(class_index) : size);
    size_t aligned = alignment >> HEAP_PAGE_SHIFT;
    struct heap_cache *cache = class_index != 0 ? hak__heap_cache(heap) : NULL;
    if (cache != NULL && cache->bins[class_index].head != NULL) { /* of size 0, or it is corrupt */
        struct object *object = heap_bin_pop(cache, &cache->bins[class_index]);
        if (object == NULL) {
            hak__object_is_wrong(cache->bins[class_index].head);
        }
        return object;
    }
    struct request request = {class_index, size, pages, aligned == 0 ? 1 : aligned, cache};
    return allocate(heap, &request);
}

/* --- free --- */

struct heap_place hak__heap_around(struct hak_heap *heap, const void *pointer)
{
    struct heap_place place = {NULL, NULL, 0};
    const struct heap_chunk *chunk = hak__heap_chunk_of(heap, pointer);
    size_t index = chunk != NULL ? heap_page_index(chunk, pointer) : 0;
    while (index != 0 && chunk->pages[index].kind == 0) { /* inside a block, or free */
        index--;
    }
    if (chunk == NULL || chunk->pages[index].kind == 0) {
        return place;
    }
    struct heap_page page = chunk->pages[index];
    struct heap_run *run = &chunk->runs[index - page.back];
    bool is_block = page.kind == PAGE_BLOCK;
    size_t bytes = is_block ? run->pages << HEAP_PAGE_SHIFT : size_class_bytes(page.kind);
    size_t number = (uintptr_t)((const char *)pointer - heap_run_start(run)) / bytes;
    if (number < (is_block ? 1 : run->capacity)) {
        place = (struct heap_place){run, heap_run_start(run) + number * bytes, bytes};
    }
    return place;
}

struct heap_place hak__heap_locate(struct hak_heap *heap, const void *pointer)
{
    struct heap_place place = hak__heap_around(heap, pointer);
    place.run = place.object == pointer ? place.run : NULL;
    return place;
}

struct hak_heap *hak__heap_of(const void *pointer)
{
    const struct heap_chunk *chunk = hak__heap_chunk_find(pointer);
    bool is_own = chunk != NULL && heap_chunk_has(chunk, pointer) && chunk->heap->own_pages;
    return is_own ? chunk->heap : NULL;
}

void hak__heap_return(struct hak_heap *heap, void *pointer)
{
    struct heap_run *run = hak__heap_locate(heap, pointer).run;
    if (run == NULL || (run->class_index != 0 && run->used_count == 0)) {
        hak__object_is_wrong(pointer); /* it was one when it was freed */
    }
    if (run->class_index == 0) {
        block_end(heap, run);
    } else {
        heap_object_set_free(pointer, NULL, hak__window.mark);
        hak__heap_slab_return(heap, run, (struct object_list){pointer, 1}, pointer);
    }
}

/* This thread can take no lock now: it is in a signal handler that interrupted an operation. The
 * heap's next operation takes the object in. */
static HAK_COLD void heap_free_late(struct hak_heap *heap, void *pointer)
{
    struct object *object = pointer, *first = atomic_load_relaxed(&heap->shared_late);
    do {
        heap_object_set_free(object, first, hak__window.mark);
        /* release: pairs with the acquire in heap_settle */
    } while (!atomic_cas_weak_release(&heap->shared_late, &first, object));
}

void hak__heap_free(struct hak_heap *heap, void *pointer)
{
    hak__heap_check_alive(heap);
    if (pointer == NULL) {
        return;
    }
    struct heap_run *run = hak__heap_locate(heap, pointer).run;
    if (HAK_UNLIKELY(run == NULL)) {
        hak__heap_no_object(heap, pointer);
        return;
    }
    int saved = errno;
    uint32_t class_index = run->class_index;
    struct heap_cache *cache = class_index != 0 ? hak__heap_cache(heap) : NULL;
    if (cache != NULL) {
        if (cache->bins[class_index].head == pointer) {
            hak__heap_bad_pointer(heap, pointer, "double free");
        } else {
            heap_cache_push(cache, bin_offset(class_index), pointer);
        }
    } else if (hak__heap_enter(heap)) {
        hak__heap_return(heap, pointer);
        hak__heap_leave(heap);
    } else {
        heap_free_late(heap, pointer);
    }
    errno = saved;
}
