/* SPDX-License-Identifier: MIT */
/* heap_slab.c: slabs of a heap: runs of pages that hold objects of one class. See heap.h.
 *
 * A slab with room is in its class's list. An empty one goes back, unless it is the last of its
 * list: then the next refill of the class would have to make it again. */
#include "heap/heap.h"

#include "base/list.h"

#include <string.h>

/* Objects that a new slab should hold. */
static size_t heap_slab_objects(const struct hak_heap *heap, size_t bytes)
{
    /* Objects in it. Twice as many: as a larger HEAP_SLAB_BYTES. */
    size_t least = bytes <= 8448 ? 8 : 4;
    if (heap->slab_bytes < HEAP_SLAB_BYTES) { /* a small heap: its pages are scarce */
        least = 1;
    }
    return bytes * least < heap->slab_bytes ? heap->slab_bytes / bytes : least;
}

/* Makes a slab of the class, if need be of a single object. NULL: no free run is long enough. */
static struct heap_run *heap_slab_make(struct hak_heap *heap, uint32_t class_index)
{
    size_t bytes = size_class_bytes(class_index);
    size_t pages = heap_pages_for(heap_slab_objects(heap, bytes) * bytes);
    struct heap_run *slab = hak__heap_run_take(heap, pages, 1);
    if (slab == NULL) {
        pages = heap_pages_for(bytes);
        slab = hak__heap_run_take(heap, pages, 1);
        if (slab == NULL) {
            return NULL;
        }
    }
    struct heap_page *page = &slab->chunk->pages[heap_run_index(slab)];
    for (size_t i = 0; i < pages; i++) {
        page[i] = (struct heap_page){(uint8_t)class_index, (uint8_t)i};
    }
    struct heap_class *heap_class = &heap->classes[class_index];
    slab->class_index = (uint8_t)class_index;
    slab->capacity = (uint16_t)((pages << HEAP_PAGE_SHIFT) / bytes);
    slab->free_list = NULL;
    slab->used_count = 0;
    slab->carved_count = 0;
    LIST_PUSH(heap_class->first, slab);
    heap_class->slab_bytes += pages << HEAP_PAGE_SHIFT;
    return slab;
}

static void heap_slab_release(struct hak_heap *heap, struct heap_run *slab)
{
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    size_t pages = heap_run_pages(slab);
    LIST_REMOVE(heap_class->first, slab);
    heap_class->slab_bytes -= pages << HEAP_PAGE_SHIFT;
    hak__heap_run_give(heap, slab, pages);
}

uint32_t hak__heap_slab_cut(const struct heap_run *slab, struct object **list, uint32_t most,
                            uintptr_t from, uintptr_t to, struct object **last)
{
    uintptr_t start = (uintptr_t)heap_run_start(slab);
    size_t length = slab->carved_count * (size_t)size_class_bytes(slab->class_index);
    uint64_t reciprocal = hak__size_reciprocals[slab->class_index];
    uint32_t count = 0;
    do {
        struct object *object = *list;
        bool starts = size_class_starts((uintptr_t)object - start, reciprocal, slab->carved_count);
        if (HAK_UNLIKELY(!starts || !heap_object_is_marked(object, from))) {
            hak__object_is_wrong(object);
        }
        heap_object_set_free(object, object->next, to);
        *last = object;
        *list = object->next;
        count++;
    } while (count < most && (uintptr_t)*list - start < length);
    return count;
}

/* Carves up to `most` objects and gives them `mark`: a page, or as many as were carved before, so
 * that at most half of what is touched is not in use. Their order is that of their addresses. */
static struct object_list heap_slab_carve(struct heap_run *slab, uint32_t most, uintptr_t mark)
{
    size_t bytes = size_class_bytes(slab->class_index);
    uint32_t left = (uint32_t)slab->capacity - slab->carved_count;
    uint32_t count = bytes < HEAP_PAGE_SIZE ? (uint32_t)(HEAP_PAGE_SIZE / bytes) : 1;
    count = count > slab->carved_count ? count : slab->carved_count;
    count = count < most ? count : most;
    count = count < left ? count : left;
    char *first = heap_run_start(slab) + slab->carved_count * bytes;
    for (uint32_t i = 0; i < count; i++) {
        char *object = first + i * bytes, *next = i + 1 < count ? object + bytes : NULL;
        if (HAK_SECURE) {
            memset(object, 0, bytes);
        }
        heap_object_set_free((struct object *)(void *)object, (struct object *)(void *)next, mark);
    }
    slab->carved_count = (uint16_t)(slab->carved_count + count);
    return (struct object_list){(struct object *)(void *)first, count};
}

void hak__heap_slab_pop(struct hak_heap *heap, struct heap_run *slab, uint32_t most,
                        struct object_list *list, uintptr_t mark)
{
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    uint32_t before = list->count;
    if (slab->free_list != NULL) {
        struct object *first = slab->free_list, *last;
        list->count +=
            hak__heap_slab_cut(slab, &slab->free_list, most, hak__window.mark, mark, &last);
        heap_object_set_free(last, list->head, mark);
        list->head = first;
    } else {
        *list = heap_slab_carve(slab, most, mark);
    }
    heap_class->out_count += list->count - before;
    slab->used_count = (uint16_t)(slab->used_count + list->count - before);
    if (slab->used_count == slab->capacity) {
        LIST_REMOVE(heap_class->first, slab);
    }
}

struct object_list hak__heap_slab_take(struct hak_heap *heap, uint32_t class_index, uint32_t most,
                                       uintptr_t mark)
{
    struct object_list list = {NULL, 0};
    struct heap_run **first = &heap->classes[class_index].first;
    if (*first == NULL) {
        (void)heap_slab_make(heap, class_index);
    }
    /* New objects are carved only for who would get none: their pages may be untouched. */
    while (*first != NULL && list.count < most &&
           (list.count == 0 || (*first)->free_list != NULL)) {
        hak__heap_slab_pop(heap, *first, most - list.count, &list, mark);
    }
    return list;
}

void hak__heap_slab_return(struct hak_heap *heap, struct heap_run *slab, struct object_list list,
                           struct object *last)
{
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    HAK_ASSERT(slab->used_count >= list.count);
    heap_object_set_free(last, slab->free_list, hak__window.mark);
    slab->free_list = list.head;
    heap_class->out_count -= list.count;
    if (slab->used_count == slab->capacity) {
        LIST_PUSH(heap_class->first, slab);
    }
    slab->used_count = (uint16_t)(slab->used_count - list.count);
    if (slab->used_count == 0 && (slab->next != NULL || slab->previous != NULL)) {
        heap_slab_release(heap, slab);
    }
}

void hak__heap_gather(struct hak_heap *heap)
{
    const struct heap_slot *slot = heap_slot(heap);
    if (slot->id == heap->id) {
        hak__heap_cache_flush(slot->cache);
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct heap_run *slab = heap->classes[class_index].first;
        while (slab != NULL && slab->used_count != 0) {
            slab = slab->next;
        }
        if (slab != NULL) { /* there is no second one */
            heap_slab_release(heap, slab);
        }
    }
}

struct heap_run *hak__heap_slab_fuller(struct hak_heap *heap, const struct heap_run *slab)
{
    struct heap_run *best = NULL, *other = heap->classes[slab->class_index].first;
    for (uint32_t looks = 0; other != NULL && looks < LOOKS_MAX; looks++) {
        bool fuller = other != slab && other->used_count >= slab->used_count;
        if (fuller && (best == NULL || other->used_count > best->used_count)) {
            best = other;
        }
        other = other->next;
    }
    return best;
}
