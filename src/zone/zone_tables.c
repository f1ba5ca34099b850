/* SPDX-License-Identifier: MIT */
/* zone_tables.c: checks what the tables of a chunk say, before it is used as an address or a
 * length.
 *
 * The tables lie before the objects of their chunk, where a program's stray write can reach them.
 * Each function ends the process if the tables cannot be as hakmem has written them. Then at worst
 * an object has the wrong size or a second owner; nothing is written outside of the heap. The check
 * of both neighbours is as glibc's ("corrupted double-linked list"). */
#include "zone/zone.h"

#include "base/bits.h"
#include "base/text.h"
#include "core/diagnose.h"
#include "region/window.h"

void hak__zone_corrupt(const struct hak_heap *zone, const void *place)
{
    char what[96 + HAK_HEAP_NAME_MAX];
    hak__text_make(what, sizeof what,
                   "the tables of heap \"%s\" were overwritten (by a write outside of an object)",
                   zone->name);
    hak__diagnose_fatal(what, place, 0, 0);
}

/* Ends the process unless `link`, of the entry of `page`, leads to where an entry can lie. The
 * chunk of `page` is right. */
static void check_link(const struct hak_heap *zone, const struct zone_page *page,
                       const struct zone_page *link)
{
    const struct zone_chunk *chunk = zone_chunk_of(zone, link);
    size_t offset = (uintptr_t)link - (uintptr_t)chunk;
    if (HAK_UNLIKELY(offset % sizeof *link != 0 || offset >= zone->tables_size ||
                     offset <= zone->head_pages * sizeof *link)) {
        hak__zone_corrupt(zone, page);
    }
    if (chunk != zone_chunk_of(zone, page)) {
        zone_check_chunk(zone, chunk);
    }
}

/* The next entry of a list, NULL at its end. */
struct zone_page *hak__zone_next(const struct hak_heap *zone, const struct zone_page *page)
{
    struct zone_page *next = page->next;
    if (next != NULL) {
        check_link(zone, page, next);
        if (HAK_UNLIKELY(next->previous != page)) {
            hak__zone_corrupt(zone, page);
        }
    }
    return next;
}

void hak__zone_check_links(const struct hak_heap *zone, const struct zone_page *list,
                           const struct zone_page *page)
{
    const struct zone_page *previous = page->previous;
    (void)hak__zone_next(zone, page);
    if (previous != NULL) {
        check_link(zone, page, previous);
    }
    if (HAK_UNLIKELY(previous != NULL ? previous->next != page : list != page)) {
        hak__zone_corrupt(zone, page);
    }
}

struct zone_chunk *hak__zone_chunk_next(const struct hak_heap *zone, const struct zone_chunk *chunk)
{
    struct zone_chunk *next = chunk->next;
    if (next != NULL) {
        if (HAK_UNLIKELY(zone_chunk_of(zone, next) != next || next->previous != chunk)) {
            hak__zone_corrupt(zone, chunk);
        }
        zone_check_chunk(zone, next);
    }
    return next;
}

void hak__zone_check_chunk_links(const struct hak_heap *zone, const struct zone_chunk *chunk)
{
    const struct zone_chunk *previous = chunk->previous;
    zone_check_chunk(zone, chunk);
    (void)hak__zone_chunk_next(zone, chunk);
    if (HAK_UNLIKELY(previous == NULL                            ? zone->chunks != chunk
                     : zone_chunk_of(zone, previous) != previous ? true
                                                                 : previous->next != chunk)) {
        hak__zone_corrupt(zone, chunk);
    }
}

size_t hak__zone_pages(const struct hak_heap *zone, const struct zone_chunk *chunk,
                       const struct zone_page *first)
{
    size_t index = zone_page_index(chunk, first), pages = first->pages;
    size_t end =
        zone_chunk_is_huge(zone, chunk) ? chunk->size >> ZONE_PAGE_SHIFT : chunk->pages_count;
    bool whole = index >= zone->head_pages && index < chunk->pages_count;
    if (first->kind == PAGE_SLAB) {
        uint32_t class_index = first->class_index;
        whole = whole && class_index != 0 && class_index < CLASS_COUNT && first->capacity != 0 &&
                first->capacity <= ZONE_SLAB_OBJECTS && first->carved_count <= first->capacity &&
                first->used_count <= first->carved_count;
        pages = whole ? zone_pages_for(first->capacity * size_class_bytes(class_index)) : 0;
    }
    if (HAK_UNLIKELY(!whole || pages == 0 || pages > end - index)) {
        hak__zone_corrupt(zone, first);
    }
    return pages;
}
