/* SPDX-License-Identifier: MIT */
/* heap_runs.c: chunks of a heap, and the free runs of pages in them. See heap.h.
 *
 * A free run's length stands in its first and its last page, so a run that becomes free finds the
 * free runs before and behind it (boundary tags: D. Knuth, The Art of Computer Programming 1, 2.5).
 * The lists are searched from the shortest length that may fit; a bit for each list says if it has
 * any. */
#include "heap/heap.h"

#include "base/bits.h"
#include "base/list.h"
#include "region/window.h"

#include <string.h>

/* Lists of lengths 1 to RUN_EXACT; then RUN_QUARTERS lists for each doubling. */
#define RUN_EXACT 16u
#define RUN_EXACT_SHIFT 4u
#define RUN_QUARTERS_SHIFT 2u

HAK_STATIC_ASSERT(HAK_HEAP_MEMORY_MAX >> HEAP_PAGE_SHIFT == UINT64_C(1) << 31 &&
                      RUN_EXACT + (32 - RUN_EXACT_SHIFT) * 4 == HEAP_RUN_LISTS,
                  "every length has a list");
HAK_STATIC_ASSERT(HEAP_CHUNK_SIZE == HAK_HEAP_CHUNK_SIZE &&
                      (HEAP_CHUNK_PAGES + 1) * sizeof(struct heap_page) == HEAP_PAGE_SIZE,
                  "header and entries of a chunk fill its first page");
HAK_STATIC_ASSERT(HAK_HEAP_ALIGNMENT_MAX < HEAP_CHUNK_SIZE, "a huge block's page has an entry");

static uint32_t heap_run_list_of(size_t pages)
{
    if (pages <= RUN_EXACT) {
        return (uint32_t)pages - 1;
    }
    uint32_t doubling = bits_log2(pages);
    uint32_t quarter = (uint32_t)(pages >> (doubling - RUN_QUARTERS_SHIFT)) & 3u;
    return RUN_EXACT + ((doubling - RUN_EXACT_SHIFT) << RUN_QUARTERS_SHIFT) + quarter;
}

static void heap_run_insert(struct hak_heap *heap, struct heap_page *first, size_t pages)
{
    uint32_t list = heap_run_list_of(pages);
    struct heap_page *last = first + pages - 1;
    last->kind = first->kind = PAGE_FREE;
    last->class_index = first->class_index = 0;
    last->pages = first->pages = pages;
    LIST_PUSH(heap->runs[list], first);
    heap->run_map[list / 64] |= UINT64_C(1) << list % 64;
    heap->free_pages += pages;
}

/* Returns the run's pages. */
static size_t heap_run_remove(struct hak_heap *heap, struct heap_page *first)
{
    const struct heap_chunk *chunk = heap_chunk_of(heap, first);
    heap_check_chunk(heap, chunk);
    size_t pages = hak__heap_pages(heap, chunk, first);
    const struct heap_page *last = first + pages - 1;
    if (HAK_UNLIKELY(first->kind != PAGE_FREE || last->kind != PAGE_FREE || last->pages != pages)) {
        hak__heap_corrupt(heap, first);
    }
    uint32_t list = heap_run_list_of(pages);
    hak__heap_check_links(heap, heap->runs[list], first);
    LIST_REMOVE(heap->runs[list], first);
    if (heap->runs[list] == NULL) {
        heap->run_map[list / 64] &= ~(UINT64_C(1) << list % 64);
    }
    heap->free_pages -= pages;
    return pages;
}

/* The first list from `list` on that has a run; HEAP_RUN_LISTS: none has. */
static uint32_t heap_run_list_from(const struct hak_heap *heap, uint32_t list)
{
    for (uint32_t word = list / 64; word < HEAP_RUN_LISTS / 64; word++) {
        uint64_t map = heap->run_map[word];
        map &= word == list / 64 ? ~UINT64_C(0) << list % 64 : ~UINT64_C(0);
        if (map != 0) {
            return word * 64 + bits_lowest(map);
        }
    }
    return HEAP_RUN_LISTS;
}

/* The runs of the first list may be too short; those of all later ones are long enough. */
static struct heap_page *heap_run_find(const struct hak_heap *heap, size_t pages)
{
    uint32_t list = heap_run_list_of(pages);
    for (struct heap_page *run = heap->runs[list]; run != NULL; run = hak__heap_next(heap, run)) {
        if (run->pages >= pages) {
            return run;
        }
    }
    list = heap_run_list_from(heap, list + 1);
    return list < HEAP_RUN_LISTS ? heap->runs[list] : NULL;
}

struct heap_page *hak__heap_run_take(struct hak_heap *heap, size_t pages, size_t alignment)
{
    size_t most = HAK_HEAP_MEMORY_MAX >> HEAP_PAGE_SHIFT;
    struct heap_page *run = pages < most ? heap_run_find(heap, pages + alignment - 1) : NULL;
    if (run == NULL) {
        return NULL;
    }
    size_t length = heap_run_remove(heap, run);
    if (HAK_UNLIKELY(length < pages + alignment - 1)) { /* it was in the list of longer ones */
        hak__heap_corrupt(heap, run);
    }
    const struct heap_chunk *chunk = heap_chunk_of(heap, run);
    size_t number = (uintptr_t)heap_page_start(chunk, run) >> HEAP_PAGE_SHIFT;
    size_t before = bits_align_up(number, alignment) - number;
    size_t behind = length - before - pages;
    if (before != 0) {
        heap_run_insert(heap, run, before);
    }
    if (behind != 0) {
        heap_run_insert(heap, run + before + pages, behind);
    }
    return run + before;
}

void hak__heap_run_give(struct hak_heap *heap, struct heap_page *first, size_t pages)
{
    struct heap_chunk *chunk = heap_chunk_of(heap, first);
    size_t index = heap_page_index(chunk, first);
    first->kind = PAGE_FREE; /* inside a longer run it stays so, and is no slab or block */
    first->class_index = 0;
    if (index + pages < chunk->pages_count && first[pages].kind == PAGE_FREE) {
        pages += heap_run_remove(heap, first + pages);
    }
    if (index > heap->head_pages && first[-1].kind == PAGE_FREE) {
        size_t before = first[-1].pages;
        if (HAK_UNLIKELY(before > index - heap->head_pages ||
                         heap_run_remove(heap, first - before) != before)) {
            hak__heap_corrupt(heap, first - 1);
        }
        first -= before;
        pages += before;
    }
    if (pages == chunk->pages_count - heap->head_pages && !heap->fixed) {
        hak__heap_chunk_release(heap, chunk);
    } else {
        heap_run_insert(heap, first, pages);
    }
}

/* A value that a block of the program does not have at this place by chance. */
static uintptr_t chunk_cookie(const struct heap_chunk *chunk)
{
    uint64_t seed = heap_chunk_secret(chunk) ^ (uintptr_t)chunk->heap << 16;
    return (uintptr_t)(bits_mix(seed) >> 16 | 1);
}

bool hak__heap_chunk_has_cookie(const struct heap_chunk *chunk)
{
    return chunk->cookie == chunk_cookie(chunk);
}

void hak__heap_chunk_init(struct hak_heap *heap, void *memory, size_t size)
{
    struct heap_chunk *chunk = memory;
    size_t pages = size >> HEAP_PAGE_SHIFT;
    pages = heap->fixed || pages < HEAP_CHUNK_PAGES ? pages : HEAP_CHUNK_PAGES;
    memset(memory, 0, (pages + 1) * sizeof(struct heap_page));
    chunk->heap = heap;
    chunk->size = size;
    chunk->pages_count = pages;
    chunk->size_check = size ^ heap_chunk_secret(chunk);
    chunk->pages_check = pages ^ heap_chunk_secret(chunk);
    chunk->cookie = heap->own_pages ? chunk_cookie(chunk) : 0;
}

void hak__heap_chunk_add(struct hak_heap *heap, struct heap_chunk *chunk, bool huge)
{
    LIST_PUSH(heap->chunks, chunk);
    heap->chunks_count++;
    if (!huge) {
        size_t head = heap->head_pages;
        heap_run_insert(heap, heap_page_at(chunk, head), chunk->pages_count - head);
    }
}

void hak__heap_chunk_release(struct hak_heap *heap, struct heap_chunk *chunk)
{
    hak__heap_check_chunk_links(heap, chunk);
    LIST_REMOVE(heap->chunks, chunk);
    heap->chunks_count--;
    heap->mapped -= chunk->size;
    chunk->next = heap->released;
    heap->released = chunk;
}

struct heap_page *hak__heap_runs_detach(struct hak_heap *heap)
{
    struct heap_page *runs = NULL;
    for (uint32_t list = heap_run_list_from(heap, 0); list < HEAP_RUN_LISTS;
         list = heap_run_list_from(heap, list)) {
        struct heap_page *run = heap->runs[list];
        size_t pages = heap_run_remove(heap, run);
        run[pages - 1].kind = PAGE_INSIDE;
        run->kind = PAGE_INSIDE; /* no object starts there */
        run->next = runs;
        runs = run;
    }
    return runs;
}

void hak__heap_runs_attach(struct hak_heap *heap, struct heap_page *runs)
{
    while (runs != NULL) {
        struct heap_page *next = runs->next;
        const struct heap_chunk *chunk = heap_chunk_of(heap, runs);
        heap_check_chunk(heap, chunk);
        hak__heap_run_give(heap, runs, hak__heap_pages(heap, chunk, runs));
        runs = next;
    }
}

static void check_slab(const struct hak_heap *heap, struct heap_page *slab)
{
    size_t count = 0;
    for (const struct object *object = slab->free_list; object != NULL; object = object->next) {
        struct heap_place place = hak__heap_locate(heap, object);
        HAK_ASSERT(place.page == slab && heap_object_is_marked(object, hak__window.mark));
        count++;
    }
    HAK_ASSERT(count + slab->used_count == slab->carved_count);
}

void hak__heap_check(struct hak_heap *heap)
{
    size_t free_pages = 0, slabs = 0, slabs_expected = 0, blocks = 0, out = 0, out_expected = 0;
    for (struct heap_chunk *chunk = heap->chunks; chunk != NULL; chunk = chunk->next) {
        bool before_free = false;
        heap_check_chunk(heap, chunk);
        for (size_t index = heap->head_pages; index < chunk->pages_count;) {
            struct heap_page *page = heap_page_at(chunk, index);
            if (heap_chunk_is_huge(heap, chunk)) {
                blocks++;
                break;
            }
            if (page->kind == PAGE_INSIDE) {
                return; /* runs are detached: nothing can be counted now */
            }
            size_t pages = hak__heap_pages(heap, chunk, page);
            bool is_free = page->kind == PAGE_FREE;
            HAK_ASSERT(!(is_free && before_free)); /* neighbours would be one run */
            if (is_free) {
                HAK_ASSERT(page[pages - 1].pages == pages);
                free_pages += pages;
            } else if (page->kind == PAGE_SLAB) {
                check_slab(heap, page);
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
        slabs_expected += heap->classes[class_index].slabs_count;
        out_expected += heap->classes[class_index].out_count;
    }
    HAK_ASSERT(free_pages == heap->free_pages && blocks == heap->blocks_count);
    HAK_ASSERT(slabs == slabs_expected && out == out_expected);
}
