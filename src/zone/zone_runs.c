/* SPDX-License-Identifier: MIT */
/* zone_runs.c: chunks of a zone, and the free runs of pages in them. See zone.h.
 *
 * A free run's length stands in its first and its last page, so a run that becomes free finds the
 * free runs before and behind it (boundary tags: D. Knuth, The Art of Computer Programming 1, 2.5).
 * The lists are searched from the shortest length that may fit; a bit for each list says if it has
 * any. */
#include "zone/zone.h"

#include "base/bits.h"
#include "base/list.h"
#include "region/window.h"

#include <string.h>

/* Lists of lengths 1 to RUN_EXACT; then RUN_QUARTERS lists for each doubling. */
#define RUN_EXACT 16u
#define RUN_EXACT_SHIFT 4u
#define RUN_QUARTERS_SHIFT 2u

HAK_STATIC_ASSERT(HAK_HEAP_MEMORY_MAX >> ZONE_PAGE_SHIFT == UINT64_C(1) << 31 &&
                      RUN_EXACT + (32 - RUN_EXACT_SHIFT) * 4 == ZONE_RUN_LISTS,
                  "every length has a list");
HAK_STATIC_ASSERT(ZONE_CHUNK_SIZE == HAK_HEAP_CHUNK_SIZE &&
                      (ZONE_CHUNK_PAGES + 1) * sizeof(struct zone_page) == ZONE_PAGE_SIZE,
                  "header and entries of a chunk fill its first page");
HAK_STATIC_ASSERT(HAK_HEAP_ALIGNMENT_MAX < ZONE_CHUNK_SIZE, "a huge block's page has an entry");

static uint32_t zone_run_list_of(size_t pages)
{
    if (pages <= RUN_EXACT) {
        return (uint32_t)pages - 1;
    }
    uint32_t doubling = bits_log2(pages);
    uint32_t quarter = (uint32_t)(pages >> (doubling - RUN_QUARTERS_SHIFT)) & 3u;
    return RUN_EXACT + ((doubling - RUN_EXACT_SHIFT) << RUN_QUARTERS_SHIFT) + quarter;
}

static void zone_run_insert(struct hak_heap *zone, struct zone_page *first, size_t pages)
{
    uint32_t list = zone_run_list_of(pages);
    struct zone_page *last = first + pages - 1;
    last->kind = first->kind = PAGE_FREE;
    last->class_index = first->class_index = 0;
    last->pages = first->pages = pages;
    LIST_PUSH(zone->runs[list], first);
    zone->run_map[list / 64] |= UINT64_C(1) << list % 64;
    zone->free_pages += pages;
}

/* Returns the run's pages. */
static size_t zone_run_remove(struct hak_heap *zone, struct zone_page *first)
{
    const struct zone_chunk *chunk = zone_chunk_of(zone, first);
    zone_check_chunk(zone, chunk);
    size_t pages = hak__zone_pages(zone, chunk, first);
    const struct zone_page *last = first + pages - 1;
    if (HAK_UNLIKELY(first->kind != PAGE_FREE || last->kind != PAGE_FREE || last->pages != pages)) {
        hak__zone_corrupt(zone, first);
    }
    uint32_t list = zone_run_list_of(pages);
    hak__zone_check_links(zone, zone->runs[list], first);
    LIST_REMOVE(zone->runs[list], first);
    if (zone->runs[list] == NULL) {
        zone->run_map[list / 64] &= ~(UINT64_C(1) << list % 64);
    }
    zone->free_pages -= pages;
    return pages;
}

/* The first list from `list` on that has a run; ZONE_RUN_LISTS: none has. */
static uint32_t zone_run_list_from(const struct hak_heap *zone, uint32_t list)
{
    for (uint32_t word = list / 64; word < ZONE_RUN_LISTS / 64; word++) {
        uint64_t map = zone->run_map[word];
        map &= word == list / 64 ? ~UINT64_C(0) << list % 64 : ~UINT64_C(0);
        if (map != 0) {
            return word * 64 + bits_lowest(map);
        }
    }
    return ZONE_RUN_LISTS;
}

/* The runs of the first list may be too short; those of all later ones are long enough. */
static struct zone_page *zone_run_find(const struct hak_heap *zone, size_t pages)
{
    uint32_t list = zone_run_list_of(pages);
    for (struct zone_page *run = zone->runs[list]; run != NULL; run = hak__zone_next(zone, run)) {
        if (run->pages >= pages) {
            return run;
        }
    }
    list = zone_run_list_from(zone, list + 1);
    return list < ZONE_RUN_LISTS ? zone->runs[list] : NULL;
}

struct zone_page *hak__zone_run_take(struct hak_heap *zone, size_t pages, size_t alignment)
{
    size_t most = HAK_HEAP_MEMORY_MAX >> ZONE_PAGE_SHIFT;
    struct zone_page *run = pages < most ? zone_run_find(zone, pages + alignment - 1) : NULL;
    if (run == NULL) {
        return NULL;
    }
    size_t length = zone_run_remove(zone, run);
    if (HAK_UNLIKELY(length < pages + alignment - 1)) { /* it was in the list of longer ones */
        hak__zone_corrupt(zone, run);
    }
    const struct zone_chunk *chunk = zone_chunk_of(zone, run);
    size_t number = (uintptr_t)zone_page_start(chunk, run) >> ZONE_PAGE_SHIFT;
    size_t before = bits_align_up(number, alignment) - number;
    size_t behind = length - before - pages;
    if (before != 0) {
        zone_run_insert(zone, run, before);
    }
    if (behind != 0) {
        zone_run_insert(zone, run + before + pages, behind);
    }
    return run + before;
}

void hak__zone_run_give(struct hak_heap *zone, struct zone_page *first, size_t pages)
{
    struct zone_chunk *chunk = zone_chunk_of(zone, first);
    size_t index = zone_page_index(chunk, first);
    first->kind = PAGE_FREE; /* inside a longer run it stays so, and is no slab or block */
    first->class_index = 0;
    if (index + pages < chunk->pages_count && first[pages].kind == PAGE_FREE) {
        pages += zone_run_remove(zone, first + pages);
    }
    if (index > zone->head_pages && first[-1].kind == PAGE_FREE) {
        size_t before = first[-1].pages;
        if (HAK_UNLIKELY(before > index - zone->head_pages ||
                         zone_run_remove(zone, first - before) != before)) {
            hak__zone_corrupt(zone, first - 1);
        }
        first -= before;
        pages += before;
    }
    if (pages == chunk->pages_count - zone->head_pages && !zone->fixed) {
        hak__zone_chunk_release(zone, chunk);
    } else {
        zone_run_insert(zone, first, pages);
    }
}

/* A value that a block of the program does not have at this place by chance. */
static uintptr_t chunk_cookie(const struct zone_chunk *chunk)
{
    uint64_t seed = zone_chunk_secret(chunk) ^ (uintptr_t)chunk->zone << 16;
    return (uintptr_t)(bits_mix(seed) >> 16 | 1);
}

bool hak__zone_chunk_has_cookie(const struct zone_chunk *chunk)
{
    return chunk->cookie == chunk_cookie(chunk);
}

void hak__zone_chunk_init(struct hak_heap *zone, void *memory, size_t size)
{
    struct zone_chunk *chunk = memory;
    size_t pages = size >> ZONE_PAGE_SHIFT;
    pages = zone->fixed || pages < ZONE_CHUNK_PAGES ? pages : ZONE_CHUNK_PAGES;
    memset(memory, 0, (pages + 1) * sizeof(struct zone_page));
    chunk->zone = zone;
    chunk->size = size;
    chunk->pages_count = pages;
    chunk->size_check = size ^ zone_chunk_secret(chunk);
    chunk->pages_check = pages ^ zone_chunk_secret(chunk);
    chunk->cookie = zone->own_pages ? chunk_cookie(chunk) : 0;
}

void hak__zone_chunk_add(struct hak_heap *zone, struct zone_chunk *chunk, bool huge)
{
    LIST_PUSH(zone->chunks, chunk);
    zone->chunks_count++;
    if (!huge) {
        size_t head = zone->head_pages;
        zone_run_insert(zone, zone_page_at(chunk, head), chunk->pages_count - head);
    }
}

void hak__zone_chunk_release(struct hak_heap *zone, struct zone_chunk *chunk)
{
    hak__zone_check_chunk_links(zone, chunk);
    LIST_REMOVE(zone->chunks, chunk);
    zone->chunks_count--;
    zone->mapped -= chunk->size;
    chunk->next = zone->released;
    zone->released = chunk;
}

struct zone_page *hak__zone_runs_detach(struct hak_heap *zone)
{
    struct zone_page *runs = NULL;
    for (uint32_t list = zone_run_list_from(zone, 0); list < ZONE_RUN_LISTS;
         list = zone_run_list_from(zone, list)) {
        struct zone_page *run = zone->runs[list];
        size_t pages = zone_run_remove(zone, run);
        run[pages - 1].kind = PAGE_INSIDE;
        run->kind = PAGE_INSIDE; /* no object starts there */
        run->next = runs;
        runs = run;
    }
    return runs;
}

void hak__zone_runs_attach(struct hak_heap *zone, struct zone_page *runs)
{
    while (runs != NULL) {
        struct zone_page *next = runs->next;
        const struct zone_chunk *chunk = zone_chunk_of(zone, runs);
        zone_check_chunk(zone, chunk);
        hak__zone_run_give(zone, runs, hak__zone_pages(zone, chunk, runs));
        runs = next;
    }
}

static void check_slab(const struct hak_heap *zone, struct zone_page *slab)
{
    size_t count = 0;
    for (const struct object *object = slab->free_list; object != NULL; object = object->next) {
        struct zone_place place = hak__zone_locate(zone, object);
        HAK_ASSERT(place.page == slab && zone_object_is_marked(object, hak__window.mark));
        count++;
    }
    HAK_ASSERT(count + slab->used_count == slab->carved_count);
}

void hak__zone_check(struct hak_heap *zone)
{
    size_t free_pages = 0, slabs = 0, slabs_expected = 0, blocks = 0, out = 0, out_expected = 0;
    for (struct zone_chunk *chunk = zone->chunks; chunk != NULL; chunk = chunk->next) {
        bool before_free = false;
        zone_check_chunk(zone, chunk);
        for (size_t index = zone->head_pages; index < chunk->pages_count;) {
            struct zone_page *page = zone_page_at(chunk, index);
            if (zone_chunk_is_huge(zone, chunk)) {
                blocks++;
                break;
            }
            if (page->kind == PAGE_INSIDE) {
                return; /* runs are detached: nothing can be counted now */
            }
            size_t pages = hak__zone_pages(zone, chunk, page);
            bool is_free = page->kind == PAGE_FREE;
            HAK_ASSERT(!(is_free && before_free)); /* neighbours would be one run */
            if (is_free) {
                HAK_ASSERT(page[pages - 1].pages == pages);
                free_pages += pages;
            } else if (page->kind == PAGE_SLAB) {
                check_slab(zone, page);
                slabs++;
                out += page->used_count;
            } else {
                blocks++;
            }
            before_free = is_free;
            index += pages;
        }
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        slabs_expected += zone->classes[class_index].slabs_count;
        out_expected += zone->classes[class_index].out_count;
    }
    HAK_ASSERT(free_pages == zone->free_pages && blocks == zone->blocks_count);
    HAK_ASSERT(slabs == slabs_expected && out == out_expected);
}
