/* SPDX-License-Identifier: MIT */
/* heap_blocks.c: the slow paths of allocation and free in a heap.
 *
 *   allocate   refill of a bin, or a block of whole pages, from the heap's free runs
 *                none fits -> a chunk of the provider
 *                  none    -> this thread's bins and empty slabs go back, and one more try
 *                    none  -> the event function, which may say: again
 *   free       object    -> this thread's bin, or its slab if the thread has no cache
 *              block     -> free runs
 *              anything else is reported */
#include "heap/heap.h"

#include "base/bits.h"
#include "core/diagnose.h"
#include "large/huge.h"
#include "large/span.h"
#include "os/os.h"

#include <errno.h>

/* What an allocation needs. */
struct request {
    uint32_t class_index; /* 0: whole pages */
    size_t size;
    size_t pages;             /* one object needs at least */
    size_t alignment;         /* pages */
    struct heap_cache *cache; /* NULL: this thread has none */
};

/* Pages from a chunk's start to a huge block in it. */
static size_t request_ahead(const struct hak_heap *heap, const struct request *request)
{
    return request->alignment > heap->head_pages ? request->alignment : heap->head_pages;
}

static bool request_is_huge(const struct hak_heap *heap, const struct request *request)
{
    return request->pages + request->alignment - 1 + heap->head_pages > HEAP_CHUNK_PAGES;
}

/* Makes `first` a block. Under the heap's lock. */
static void *block_begin(struct hak_heap *heap, struct heap_page *first, size_t pages)
{
    struct heap_chunk *chunk = heap_chunk_of(heap, first);
    if (pages > 1 && !heap_chunk_is_huge(heap, chunk)) { /* a huge one's last page has no entry */
        first[pages - 1].kind = PAGE_INSIDE;
        first[pages - 1].class_index = 0;
    }
    first->kind = PAGE_BLOCK;
    first->class_index = 0;
    first->pages = pages;
    heap->blocks_count++;
    heap->blocks_bytes += pages << HEAP_PAGE_SHIFT;
    return heap_page_start(chunk, first);
}

/* Under the heap's lock. */
static void block_end(struct hak_heap *heap, struct heap_page *first)
{
    struct heap_chunk *chunk = heap_chunk_of(heap, first);
    heap->blocks_count--;
    heap->blocks_bytes -= first->pages << HEAP_PAGE_SHIFT;
    if (heap_chunk_is_huge(heap, chunk)) {
        first->kind = PAGE_INSIDE;
        hak__heap_chunk_release(heap, chunk);
    } else {
        hak__heap_run_give(heap, first, first->pages);
    }
}

/* One try under the heap's lock, without new chunks. What the bin gets is put into *list. */
static void *allocate_try(struct hak_heap *heap, const struct request *request,
                          struct object_list *list)
{
    *list = (struct object_list){NULL, 0};
    if (request->class_index == 0) {
        struct heap_page *first = hak__heap_run_take(heap, request->pages, request->alignment);
        return first != NULL ? block_begin(heap, first, request->pages) : NULL;
    }
    const struct heap_cache *cache = request->cache;
    uint32_t most = cache == NULL ? 1 : hak__heap_cache_wants(cache, request->class_index);
    uintptr_t mark = cache == NULL ? hak__window.mark : cache->mark;
    *list = hak__heap_slab_take(heap, request->class_index, most, mark);
    struct object *object = list->head;
    if (object != NULL) {
        list->head = object->next;
        list->count--;
        (void)heap_object_set_used(object, mark);
    }
    return object;
}

/* Reserves memory for a chunk of `size` bytes; `least` will do. Returns what is allowed; 0: the
 * limit forbids even that. Under the heap's lock. */
static size_t chunk_reserve(struct hak_heap *heap, size_t size, size_t least)
{
    size_t room = heap->limit > heap->mapped ? heap->limit - heap->mapped : 0;
    if (room < size) {
        size = bits_align_down(room, HEAP_PAGE_SIZE);
        if (size < least) {
            return 0;
        }
    }
    heap->mapped += size;
    heap->mapped_peak = heap->mapped_peak > heap->mapped ? heap->mapped_peak : heap->mapped;
    return size;
}

static void chunk_unreserve(struct hak_heap *heap, size_t size)
{
    if (hak__heap_enter(heap)) {
        heap->mapped -= size;
        hak__heap_leave(heap);
    }
}

/* Gets one more chunk for the request, and a huge block in it at once. Event 0: done. No lock. */
static enum hak_heap_event chunk_get(struct hak_heap *heap, const struct request *request,
                                     void **block)
{
    bool huge = request_is_huge(heap, request);
    size_t ahead = request_ahead(heap, request);
    size_t least = (request->pages + request->alignment - 1 + heap->head_pages) << HEAP_PAGE_SHIFT;
    if (huge) { /* longer than other chunks */
        least = (request->pages + ahead) << HEAP_PAGE_SHIFT;
        least = least > HEAP_CHUNK_SIZE ? least : HEAP_CHUNK_SIZE + HEAP_PAGE_SIZE;
    }
    if (heap->fixed || !hak__heap_enter(heap)) {
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    size_t size = chunk_reserve(heap, huge ? least : HEAP_CHUNK_SIZE, least);
    hak__heap_leave(heap);
    if (size == 0) {
        return HAK_HEAP_OVER_LIMIT;
    }
    void *memory = heap->pages.map(heap->pages.argument, HEAP_CHUNK_SIZE, size);
    if (memory == NULL) {
        chunk_unreserve(heap, size);
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    if (HAK_UNLIKELY(((uintptr_t)memory & (HEAP_CHUNK_SIZE - 1)) != 0)) {
        hak__diagnose_foreign("a heap's page provider returned memory that is not aligned", memory);
    }
    hak__heap_chunk_init(heap, memory, size);
    if (heap_closes_pages(heap)) {
        (void)hak__os_close_pages((char *)memory + HEAP_PAGE_SIZE, HEAP_PAGE_SIZE);
    }
    if (!hak__heap_enter(heap)) { /* cannot happen: this thread was outside a moment ago */
        return HAK_HEAP_OUT_OF_MEMORY;
    }
    hak__heap_chunk_add(heap, memory, huge);
    if (huge) {
        *block = block_begin(heap, heap_page_at(memory, ahead), request->pages);
    }
    hak__heap_leave(heap);
    return 0;
}

/* Gives back what this thread and empty slabs keep, for a last try. */
static void *allocate_again(struct hak_heap *heap, const struct request *request,
                            struct object_list *list)
{
    struct heap_cache *cache = hak__heap_cache(heap);
    if (!hak__heap_enter(heap)) {
        return NULL;
    }
    if (cache != NULL) {
        hak__heap_cache_flush(cache);
    }
    hak__heap_slab_gather(heap);
    void *object = allocate_try(heap, request, list);
    hak__heap_leave(heap);
    return object;
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

static void *allocate(struct hak_heap *heap, const struct request *request,
                      struct object_list *list)
{
    void *object = NULL;
    bool again = true; /* the bins have not gone back yet */
    while (object == NULL) {
        if (request->class_index != 0 || !request_is_huge(heap, request) || heap->fixed) {
            if (!hak__heap_enter(heap)) {
                return allocate_failed(heap);
            }
            object = allocate_try(heap, request, list);
            hak__heap_leave(heap);
        }
        enum hak_heap_event event = object == NULL ? chunk_get(heap, request, &object) : 0;
        if (event != 0 && again) {
            again = false;
            object = allocate_again(heap, request, list);
        } else if (event != 0 && !hak__heap_event(heap, event, request->size, NULL)) {
            return allocate_failed(heap);
        }
    }
    return object;
}

void *hak__heap_allocate(struct hak_heap *heap, uint32_t class_index, size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX - HAK_HEAP_ALIGNMENT_MAX)) {
        return allocate_failed(heap);
    }
    size_t pages = heap_pages_for(class_index != 0 ? size_class_bytes(class_index) : size);
    size_t aligned = alignment >> HEAP_PAGE_SHIFT;
    struct heap_cache *cache = class_index != 0 ? hak__heap_cache(heap) : NULL;
    if (cache != NULL && cache->bins[class_index].head != NULL) {
        /* It is corrupt, which this reports. */
        return hak__heap_bin_pop(cache, &cache->bins[class_index]);
    }
    struct request request = {class_index, size, pages == 0 ? 1 : pages, aligned == 0 ? 1 : aligned,
                              cache};
    struct object_list list = {NULL, 0};
    void *object = allocate(heap, &request, &list);
    if (list.count != 0) {
        hak__heap_cache_fill(cache, class_index, list);
    }
    return object;
}

/* --- free --- */

struct heap_place hak__heap_locate(const struct hak_heap *heap, const void *pointer)
{
    struct heap_place place = {heap_chunk_of(heap, pointer), NULL, 0};
    struct heap_page *page = heap_page_of(heap, place.chunk, pointer);
    if (page == NULL || heap_page_index(place.chunk, page) < heap->head_pages) {
        return place;
    }
    heap_check_chunk(heap, place.chunk);
    page = heap_page_first(heap, place.chunk, page);
    size_t offset = (size_t)((const unsigned char *)pointer - heap_page_start(place.chunk, page));
    if (page->kind == PAGE_BLOCK && offset == 0) {
        place.page = page;
        place.bytes = hak__heap_pages(heap, place.chunk, page) << HEAP_PAGE_SHIFT;
    } else if (page->kind == PAGE_SLAB) { /* who changes the slab looks at the rest of it */
        if (HAK_UNLIKELY(page->class_index - 1u >= CLASS_COUNT - 1)) {
            hak__heap_corrupt(heap, page);
        }
        size_t bytes = size_class_bytes(page->class_index);
        if (offset < page->capacity * bytes && offset % bytes == 0) {
            place.page = page;
            place.bytes = bytes;
        }
    }
    return place;
}

struct hak_heap *hak__heap_of(const void *pointer)
{
    uintptr_t start = (uintptr_t)pointer & ~(HEAP_CHUNK_SIZE - 1);
    struct heap_chunk *chunk = (struct heap_chunk *)start;
    size_t slice = window_slice_of(chunk);
    bool is_span = window_contains_slice(slice) &&
                   (window_owner(slice) & OWNER_CODE_MASK) == OWNER_SPAN &&
                   hak__span_pointer(slice) == chunk;
    if (!is_span && (start == 0 || hak__huge_bytes(chunk) == 0)) {
        return NULL; /* no block of hakmem starts there */
    }
    return hak__heap_chunk_has_cookie(chunk) ? chunk->heap : NULL;
}

void hak__heap_return(struct hak_heap *heap, void *pointer)
{
    struct heap_page *page = hak__heap_locate(heap, pointer).page;
    if (page == NULL) {
        hak__object_is_wrong(pointer); /* it was one when it was freed */
    }
    if (page->kind == PAGE_BLOCK) {
        block_end(heap, page);
    } else {
        (void)hak__heap_pages(heap, heap_chunk_of(heap, page), page);
        heap_object_set_free(pointer, NULL, hak__window.mark);
        hak__heap_slab_return(heap, page, (struct object_list){pointer, 1}, pointer);
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
    struct heap_place place = hak__heap_locate(heap, pointer);
    if (HAK_UNLIKELY(place.page == NULL)) {
        hak__heap_no_object(heap, pointer);
        return;
    }
    int saved = errno;
    bool is_object = place.page->kind == PAGE_SLAB;
    struct heap_cache *cache = is_object ? hak__heap_cache(heap) : NULL;
    if (cache != NULL) {
        uint32_t class_index = place.page->class_index;
        if (cache->bins[class_index].head == pointer ||
            (HAK_LEVEL >= 2 && hak__heap_cache_holds(cache, class_index, pointer))) {
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
