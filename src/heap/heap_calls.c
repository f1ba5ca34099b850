/* SPDX-License-Identifier: MIT */
/* heap_calls.c: the functions of hakmem/heap.h that use a heap. Allocation and free begin with a
 * fast path: the thread's cache for the heap, then a bin. Everything else is in heap_blocks.c. */
#include "heap/heap_secure.h"

#include "core/diagnose.h"
#include "core/knobs.h"

#include <errno.h>
#include <string.h>

/* Takes an object from the bin at `offset` of this thread's cache. NULL: there is no cache, or the
 * bin has none, or the first is corrupt. */
HAK_INLINE void *call_pop(const struct hak_heap *heap, size_t offset)
{
    const struct heap_slot *slot = heap_slot(heap);
    if (HAK_UNLIKELY(slot->id != heap->id)) {
        return NULL;
    }
    struct bin *bin = heap_bin_at(slot->cache, offset);
    return HAK_LIKELY(bin->head != NULL) ? heap_bin_pop(slot->cache, bin) : NULL;
}

/* The offset of the bin for `size`. 0, whose bin passes on what it gets: for size 0, or a block. */
HAK_INLINE size_t call_offset_of(size_t size)
{
    if (HAK_LIKELY(size <= TINY_SIZE_MAX)) {
        return size_class_round_tiny(size);
    }
    return HAK_LIKELY(size <= MID_SIZE_MAX) ? bin_offset(size_class_of_mid(size)) : 0;
}

static HAK_NOINLINE void *call_malloc_slow(struct hak_heap *heap, size_t size)
{
    uint32_t class_index = (uint32_t)(call_offset_of(size) / sizeof(struct bin));
    return hak__heap_allocate(heap, class_index, size, 1);
}

HAK_INLINE void *call_malloc(struct hak_heap *heap, size_t size)
{
    void *object = call_pop(heap, call_offset_of(size));
    return HAK_LIKELY(object != NULL) ? object : call_malloc_slow(heap, size);
}

/* An object of the size and whatever alignment it has; the secure form aligns the pointer. */
HAK_INLINE void *call_hand_out(struct hak_heap *heap, size_t alignment, size_t size)
{
    void *object = call_malloc(heap, heap_object_size(size, alignment));
    return heap_hand_out(heap, object, alignment, size);
}

HAK_FAST_PATH void *hak_heap_malloc(hak_heap *heap, size_t size)
{
    return call_hand_out(heap, 1, size);
}

void *hak_heap_calloc(hak_heap *heap, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        total = SIZE_MAX; /* fails as any other request does */
    }
    void *object = hak_heap_malloc(heap, total);
    return HAK_LIKELY(object != NULL) ? memset(object, 0, total) : NULL;
}

/* The class that serves a request aligned to more than OBJECT_ALIGNMENT; 0: whole pages do. Slabs
 * begin at pages of 4 KiB. */
HAK_INLINE uint32_t call_class_of(size_t size, size_t alignment)
{
    uint32_t class_index =
        alignment <= HEAP_PAGE_SIZE ? size_class_of_aligned(size, alignment) : CLASS_COUNT;
    return class_index < CLASS_COUNT ? class_index : 0;
}

void *hak_heap_aligned_alloc(hak_heap *heap, size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment) || alignment > HAK_HEAP_ALIGNMENT_MAX)) {
        errno = EINVAL;
        return NULL;
    }
    if (HAK_SECURE || alignment <= OBJECT_ALIGNMENT) {
        return call_hand_out(heap, alignment, size);
    }
    uint32_t class_index = call_class_of(size, alignment);
    void *object = call_pop(heap, bin_offset(class_index));
    return HAK_LIKELY(object != NULL) ? object
                                      : hak__heap_allocate(heap, class_index, size, alignment);
}

/* Debug builds: is it an object of the class? */
static void call_check(struct hak_heap *heap, uint32_t class_index, const void *pointer)
{
    hak__heap_check_alive(heap);
    struct heap_place place = hak__heap_locate(heap, pointer);
    if (place.run == NULL || place.run->class_index != class_index) {
        hak__diagnose_fatal("sized free with a size or pointer that is not the heap's", pointer,
                            place.bytes, 0);
    }
}

/* Frees an object of the class. False: the object was freed just before. */
HAK_INLINE bool call_push(struct heap_cache *cache, size_t offset, void *pointer)
{
    if (HAK_UNLIKELY(heap_bin_at(cache, offset)->head == pointer)) {
        return false;
    }
    heap_cache_push(cache, offset, pointer);
    return true;
}

HAK_FAST_PATH void hak_heap_free(hak_heap *heap, void *pointer)
{
    pointer = heap_take_back(heap, pointer);
    const struct heap_slot *slot = heap_slot(heap);
    if (HAK_UNLIKELY(slot->id != heap->id || HAK_LEVEL >= 1)) {
        hak__heap_free(heap, pointer);
        return;
    }
    const struct heap_chunk *chunk = atomic_load_relaxed(heap_near(heap, (uintptr_t)pointer));
    size_t index = heap_page_index(chunk, pointer);
    size_t offset = index < heap_chunk_pages(chunk) ? bin_offset(chunk->pages[index].kind) : 0;
    if (HAK_UNLIKELY(offset - bin_offset(1) >= bin_offset(CLASS_COUNT - 1) ||
                     !call_push(slot->cache, offset, pointer))) {
        hak__heap_free(heap, pointer); /* a block, or no object, or freed just before */
    }
}

static void call_free_sized_checked(struct hak_heap *heap, void *pointer, size_t size)
{
    if (pointer != NULL && atomic_load_relaxed(&hak__knobs.abort_on_size)) {
        struct heap_owned owned = heap_find(heap, pointer);
        if (owned.object != NULL && owned.size != size) {
            hak__diagnose_fatal("free with another size than that of the allocation", pointer,
                                owned.size, 0);
        }
    }
    hak_heap_free(heap, pointer);
}

HAK_FAST_PATH void hak_heap_free_sized(hak_heap *heap, void *pointer, size_t alignment, size_t size)
{
    if (HAK_SECURE) {
        call_free_sized_checked(heap, pointer, size);
        return;
    }
    const struct heap_slot *slot = heap_slot(heap);
    size_t offset = HAK_LIKELY(alignment <= OBJECT_ALIGNMENT)
                        ? call_offset_of(size)
                        : bin_offset(call_class_of(size, alignment));
    if (HAK_LEVEL >= 1 && offset != 0 && pointer != NULL) {
        call_check(heap, (uint32_t)(offset / sizeof(struct bin)), pointer);
    }
    if (HAK_UNLIKELY(pointer == NULL || slot->id != heap->id || HAK_LEVEL >= 1 ||
                     !call_push(slot->cache, offset, pointer))) {
        hak__heap_free(heap, pointer);
    }
}

size_t hak_heap_usable_size(hak_heap *heap, const void *pointer)
{
    return pointer != NULL ? heap_find(heap, pointer).size : 0;
}

void *hak_heap_realloc(hak_heap *heap, void *pointer, size_t size)
{
    if (pointer == NULL) {
        return hak_heap_malloc(heap, size);
    }
    if (size == 0) {
        hak_heap_free(heap, pointer);
        return NULL;
    }
    struct heap_owned owned = heap_find(heap, pointer);
    if (owned.object == NULL) { /* a bad pointer that the event function has allowed */
        errno = EINVAL;
        return NULL;
    }
    if (size <= owned.room && (size >= owned.room / 2 || owned.room == OBJECT_ALIGNMENT)) {
        heap_resize(&owned, size);
        return pointer;
    }
    int saved = errno;
    void *object = hak_heap_malloc(heap, size);
    if (object == NULL) {
        if (size > owned.room) {
            return NULL;
        }
        errno = saved; /* to shrink never fails */
        heap_resize(&owned, size);
        return pointer;
    }
    memcpy(object, pointer, owned.size < size ? owned.size : size);
    hak_heap_free(heap, pointer);
    return object;
}

bool hak_heap_owns(hak_heap *heap, const void *pointer)
{
    bool found = false;
    if (hak__heap_enter(heap)) {
        const struct heap_chunk *chunk = NULL;
        while ((chunk = hak__heap_chunk_next(heap, chunk)) != NULL) {
            found = found || (uintptr_t)pointer - chunk->shared_start < chunk->size;
        }
        hak__heap_leave(heap);
    }
    return found;
}

const char *hak_heap_name(hak_heap *heap)
{
    hak__heap_check_alive(heap);
    return heap->name;
}

void hak_heap_limit_set(hak_heap *heap, size_t limit)
{
    if (!heap->fixed && hak__heap_enter(heap)) {
        heap->limit = limit != 0 ? limit : SIZE_MAX;
        hak__heap_leave(heap);
    }
}
