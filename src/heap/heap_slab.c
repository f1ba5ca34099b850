/* SPDX-License-Identifier: MIT */
/* heap_slab.c: slabs of a heap: runs of pages that hold objects of one class. See heap.h.
 *
 * A slab with room is in its class's list. An empty one becomes a free run, unless it is the last
 * of its list: then the next refill of the class would have to make it again. */
#include "heap/heap_secure.h"

#include "base/bits.h"
#include "base/list.h"

/* Ends the process unless the slab, an item of its class's list, is one. Returns its pages. */
static size_t heap_slab_check(const struct hak_heap *heap, const struct heap_page *slab)
{
    const struct heap_chunk *chunk = heap_chunk_of(heap, slab);
    heap_check_chunk(heap, chunk);
    size_t pages = hak__heap_pages(heap, chunk, slab);
    if (HAK_UNLIKELY(slab->kind != PAGE_SLAB)) {
        hak__heap_corrupt(heap, slab);
    }
    return pages;
}

static void heap_slab_unlist(struct hak_heap *heap, struct heap_page *slab)
{
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    hak__heap_check_links(heap, heap_class->first, slab);
    LIST_REMOVE(heap_class->first, slab);
}

/* Objects that a new slab should hold. */
static size_t heap_slab_objects(const struct hak_heap *heap, size_t bytes)
{
    if (heap->slab_bytes < HEAP_SLAB_BYTES) { /* a small heap: its pages are scarce */
        return bytes < heap->slab_bytes ? heap->slab_bytes / bytes : 1;
    }
    size_t least = bytes <= HEAP_SLAB_MANY_SIZE ? HEAP_SLAB_MANY : HEAP_SLAB_FEW;
    return bytes * least < heap->slab_bytes ? heap->slab_bytes / bytes : least;
}

/* Makes a slab of the class, if need be of a single object. NULL: no run of pages fits. */
static struct heap_page *heap_slab_make(struct hak_heap *heap, uint32_t class_index)
{
    size_t bytes = size_class_bytes(class_index);
    size_t pages = heap_pages_for(heap_slab_objects(heap, bytes) * bytes);
    struct heap_page *slab = hak__heap_run_take(heap, pages, 1);
    if (slab == NULL) {
        pages = heap_pages_for(bytes);
        slab = hak__heap_run_take(heap, pages, 1);
        if (slab == NULL) {
            return NULL;
        }
    }
    for (size_t i = 1; i < pages; i++) {
        slab[i].kind = PAGE_INSIDE;
        slab[i].class_index = (uint8_t)class_index;
        slab[i].back = (uint32_t)i;
    }
    struct heap_class *heap_class = &heap->classes[class_index];
    slab->kind = PAGE_SLAB;
    slab->class_index = (uint8_t)class_index;
    slab->capacity = (uint16_t)((pages << HEAP_PAGE_SHIFT) / bytes);
    slab->free_list = NULL;
    slab->used_count = 0;
    slab->carved_count = 0;
    LIST_PUSH(heap_class->first, slab);
    heap_class->slabs_count++;
    heap_class->slab_bytes += pages << HEAP_PAGE_SHIFT;
    return slab;
}

/* Makes an empty slab's pages free. */
static void heap_slab_release(struct hak_heap *heap, struct heap_page *slab)
{
    size_t pages = heap_slab_check(heap, slab);
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    heap_slab_unlist(heap, slab);
    for (size_t i = 1; i < pages; i++) {
        slab[i].class_index = 0;
    }
    heap_class->slabs_count--;
    heap_class->slab_bytes -= pages << HEAP_PAGE_SHIFT;
    hak__heap_run_give(heap, slab, pages);
}

/* Takes up to `most` free objects of the slab's list, before those of `list`, and gives them
 * `mark`. */
static void heap_slab_cut(const struct hak_heap *heap, struct heap_page *slab, uint32_t most,
                          struct object_list *list, uintptr_t mark)
{
    struct object *first = slab->free_list, *last = NULL, *object = first;
    uintptr_t start = (uintptr_t)heap_page_start(heap_chunk_of(heap, slab), slab);
    size_t length = slab->carved_count * size_class_bytes(slab->class_index);
    uint32_t count = 0;
    for (; object != NULL && count < most; count++) {
        if (HAK_UNLIKELY((uintptr_t)object - start >= length ||
                         !heap_object_is_marked(object, hak__window.mark))) {
            hak__object_is_wrong(object);
        }
        heap_object_set_free(object, object->next, mark);
        last = object;
        object = object->next;
    }
    if (last != NULL) {
        slab->free_list = object;
        heap_object_set_free(last, list->head, mark);
        *list = (struct object_list){first, list->count + count};
    }
}

/* Carves up to `most` objects, before those of `list`, and gives them `mark`. Their order is that
 * of their addresses. */
static void heap_slab_carve(const struct hak_heap *heap, struct heap_page *slab, uint32_t most,
                            struct object_list *list, uintptr_t mark)
{
    size_t bytes = size_class_bytes(slab->class_index);
    uint32_t left = (uint32_t)slab->capacity - slab->carved_count;
    uint32_t count = left < most ? left : most;
    unsigned char *start = heap_page_start(heap_chunk_of(heap, slab), slab);
    unsigned char *first = start + slab->carved_count * bytes, *last = first + (count - 1) * bytes;
    for (uint32_t i = 0; HAK_SECURE && i < count; i++) {
        *heap_last_word(first + i * bytes, bytes) = 0; /* not one that was freed and is clear */
    }
    for (unsigned char *at = first; at != last; at += bytes) {
        heap_object_set_free((struct object *)(void *)at, (struct object *)(void *)(at + bytes),
                             mark);
    }
    heap_object_set_free((struct object *)(void *)last, list->head, mark);
    list->head = (struct object *)(void *)first;
    slab->carved_count = (uint16_t)(slab->carved_count + count);
    list->count += count;
}

/* Takes up to `most` objects of a slab with room, at least one, before those of `list`. */
static void heap_slab_pop(struct hak_heap *heap, struct heap_page *slab, uint32_t most,
                          struct object_list *list, uintptr_t mark)
{
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    uint32_t before = list->count;
    if (slab->free_list != NULL) {
        heap_slab_cut(heap, slab, most, list, mark);
    } else if (HAK_UNLIKELY(slab->carved_count == slab->capacity)) { /* it has no room */
        hak__heap_corrupt(heap, slab);
    } else {
        heap_slab_carve(heap, slab, most, list, mark);
    }
    heap_class->out_count += list->count - before;
    slab->used_count = (uint16_t)(slab->used_count + list->count - before);
    if (slab->used_count == slab->capacity) {
        heap_slab_unlist(heap, slab);
    }
}

struct object_list hak__heap_slab_take(struct hak_heap *heap, uint32_t class_index, uint32_t most,
                                       uintptr_t mark)
{
    struct object_list list = {NULL, 0};
    struct heap_class *heap_class = &heap->classes[class_index];
    if (heap_class->first == NULL) { /* a refill may be short, and makes no second slab */
        (void)heap_slab_make(heap, class_index);
    }
    while (heap_class->first != NULL && list.count < most) {
        struct heap_page *slab = heap_class->first;
        (void)heap_slab_check(heap, slab);
        if (HAK_UNLIKELY(slab->class_index != class_index)) {
            hak__heap_corrupt(heap, slab);
        }
        heap_slab_pop(heap, slab, most - list.count, &list, mark);
    }
    return list;
}

void hak__heap_slab_return(struct hak_heap *heap, struct heap_page *slab, struct object_list list,
                           struct object *last)
{
    struct heap_class *heap_class = &heap->classes[slab->class_index];
    HAK_ASSERT(slab->kind == PAGE_SLAB && slab->used_count >= list.count);
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

void hak__heap_slab_gather(struct hak_heap *heap)
{
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        struct heap_page *slab = heap->classes[class_index].first;
        while (slab != NULL) {
            struct heap_page *next = hak__heap_next(heap, slab);
            if (slab->used_count == 0) {
                heap_slab_release(heap, slab);
            }
            slab = next;
        }
    }
}

struct object *hak__heap_slab_take_fuller(struct hak_heap *heap, struct heap_page *slab,
                                          bool really)
{
    struct heap_page *best = NULL, *other = heap->classes[slab->class_index].first;
    for (uint32_t looks = 0; other != NULL && looks < HEAP_MOVE_LOOKS; looks++) {
        bool fuller = other != slab && other->used_count >= slab->used_count;
        if (fuller && (best == NULL || other->used_count > best->used_count)) {
            best = other;
        }
        other = hak__heap_next(heap, other);
    }
    if (best == NULL) {
        return NULL;
    }
    struct object_list list = {NULL, 0};
    if (really) {
        (void)heap_slab_check(heap, best);
        if (HAK_UNLIKELY(best->class_index != slab->class_index)) {
            hak__heap_corrupt(heap, best);
        }
        heap_slab_pop(heap, best, 1, &list, hak__window.mark);
    }
    return really ? list.head : (struct object *)(void *)best;
}
