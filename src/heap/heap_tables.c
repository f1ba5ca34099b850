/* SPDX-License-Identifier: MIT */
/* heap_tables.c: checks what the tables of a chunk say, before it is used as an address or a
 * length.
 *
 * The tables lie before the objects of their chunk, where a program's stray write can reach them.
 * Each function ends the process if the tables cannot be as hakmem has written them. Then at worst
 * an object has the wrong size or a second owner; nothing is written outside of the heap. The check
 * of both neighbours is as glibc's ("corrupted double-linked list"). */
#include "heap/heap.h"

#include "base/bits.h"
#include "base/text.h"
#include "core/diagnose.h"
#include "region/window.h"

void hak__heap_corrupt(const struct hak_heap *heap, const void *place)
{
    char what[96 + HAK_HEAP_NAME_MAX];
    hak__text_make(what, sizeof what,
                   "the tables of heap \"%s\" were overwritten (by a write outside of an object)",
                   heap->name);
    hak__diagnose_fatal(what, place, 0, 0);
}

/* Ends the process unless `link`, of the entry of `page`, leads to where an entry can lie. The
 * chunk of `page` is right. */
static void check_link(const struct hak_heap *heap, const struct heap_page *page,
                       const struct heap_page *link)
{
    const struct heap_chunk *chunk = heap_chunk_of(heap, link);
    size_t offset = (uintptr_t)link - (uintptr_t)chunk;
    if (HAK_UNLIKELY(offset % sizeof *link != 0 || offset >= heap->tables_size ||
                     offset <= heap->head_pages * sizeof *link)) {
        hak__heap_corrupt(heap, page);
    }
    if (chunk != heap_chunk_of(heap, page)) {
        heap_check_chunk(heap, chunk);
    }
}

/* The next entry of a list, NULL at its end. */
struct heap_page *hak__heap_next(const struct hak_heap *heap, const struct heap_page *page)
{
    struct heap_page *next = page->next;
    if (next != NULL) {
        check_link(heap, page, next);
        if (HAK_UNLIKELY(next->previous != page)) {
            hak__heap_corrupt(heap, page);
        }
    }
    return next;
}

void hak__heap_check_links(const struct hak_heap *heap, const struct heap_page *list,
                           const struct heap_page *page)
{
    const struct heap_page *previous = page->previous;
    (void)hak__heap_next(heap, page);
    if (previous != NULL) {
        check_link(heap, page, previous);
    }
    if (HAK_UNLIKELY(previous != NULL ? previous->next != page : list != page)) {
        hak__heap_corrupt(heap, page);
    }
}

struct heap_chunk *hak__heap_chunk_next(const struct hak_heap *heap, const struct heap_chunk *chunk)
{
    struct heap_chunk *next = chunk->next;
    if (next != NULL) {
        if (HAK_UNLIKELY(heap_chunk_of(heap, next) != next || next->previous != chunk)) {
            hak__heap_corrupt(heap, chunk);
        }
        heap_check_chunk(heap, next);
    }
    return next;
}

void hak__heap_check_chunk_links(const struct hak_heap *heap, const struct heap_chunk *chunk)
{
    const struct heap_chunk *previous = chunk->previous;
    heap_check_chunk(heap, chunk);
    (void)hak__heap_chunk_next(heap, chunk);
    if (HAK_UNLIKELY(previous == NULL                            ? heap->chunks != chunk
                     : heap_chunk_of(heap, previous) != previous ? true
                                                                 : previous->next != chunk)) {
        hak__heap_corrupt(heap, chunk);
    }
}

size_t hak__heap_pages(const struct hak_heap *heap, const struct heap_chunk *chunk,
                       const struct heap_page *first)
{
    size_t index = heap_page_index(chunk, first), pages = first->pages;
    size_t end =
        heap_chunk_is_huge(heap, chunk) ? chunk->size >> HEAP_PAGE_SHIFT : chunk->pages_count;
    bool whole = index >= heap->head_pages && index < chunk->pages_count;
    if (first->kind == PAGE_SLAB) {
        uint32_t class_index = first->class_index;
        whole = whole && class_index != 0 && class_index < CLASS_COUNT && first->capacity != 0 &&
                first->capacity <= HEAP_SLAB_OBJECTS && first->carved_count <= first->capacity &&
                first->used_count <= first->carved_count;
        pages = whole ? heap_pages_for(first->capacity * size_class_bytes(class_index)) : 0;
    }
    if (HAK_UNLIKELY(!whole || pages == 0 || pages > end - index)) {
        hak__heap_corrupt(heap, first);
    }
    return pages;
}
