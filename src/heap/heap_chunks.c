/* SPDX-License-Identifier: MIT */
/* heap_chunks.c: chunks of heaps, the map that finds them, and the pages in them. See heap.h.
 *
 * The map of all chunks goes by the number of HEAP_CHUNK_SIZE bytes in the address: a tree of
 * MAP_LEVELS levels. Each node is a table of pointers to the next level; the last level's lead to
 * chunks. Nodes are never freed, so a search needs no lock.
 *
 * Chunks are in lists by the length of their longest free run, exact up to 15 pages, then four
 * lists a doubling. That is an upper bound: a chunk in which pages become free moves to the last
 * list, and a search that finds no place moves it to where it belongs. So a search seldom looks
 * into a chunk in vain. Within a chunk it takes the lowest place. */
#include "heap/heap.h"

#include "arena/arena.h"
#include "base/list.h"
#include "os/os.h"

#include <string.h>

#define MAP_BITS 10u
#define MAP_LEVELS 3u

HAK_STATIC_ASSERT(sizeof(struct heap_chunk) + HEAP_CHUNK_PAGES * 43 <= HEAP_SPARE_MAX,
                  "structs of chunks are used again");
HAK_STATIC_ASSERT(HEAP_CHUNK_PAGES == 128 && HEAP_RUN_KINDS == 4 * 7 + 1,
                  "chunks with all pages free have the last list");
HAK_STATIC_ASSERT(HEAP_CHUNK_SIZE << MAP_LEVELS * MAP_BITS >= UINT64_C(1) << 48,
                  "every address has a place");
HAK_STATIC_ASSERT(HEAP_CHUNK_SIZE == HAK_HEAP_CHUNK_SIZE &&
                      HAK_HEAP_ALIGNMENT_MAX < HEAP_CHUNK_SIZE,
                  "a huge block's first page has an entry");

struct heap_chunk hak__heap_no_chunk HAK_SELDOM; /* never written */
static void *shared_map[1 << MAP_BITS] HAK_SELDOM;
/* In the program's memory, and others, which all begin at multiples of HEAP_CHUNK_SIZE: so a free
 * that reads the struct of one that is gone cannot find its own address there. */
static struct heap_spare *spare_chunks[2];

/* --- the map --- */

/* The place in a node of the level, 0 being the last one. */
static size_t map_index(const void *pointer, uint32_t level)
{
    return (uintptr_t)pointer / HEAP_CHUNK_SIZE >> level * MAP_BITS &
           (HAK_COUNT_OF(shared_map) - 1);
}

struct heap_chunk *hak__heap_chunk_find(const void *pointer)
{
    void *const *node = shared_map;
    for (uint32_t level = MAP_LEVELS; level-- != 0 && node != NULL;) {
        /* acquire: pairs with the release in map_place, or in hak__heap_chunk_add */
        node = atomic_load_acquire(&node[map_index(pointer, level)]);
    }
    return (struct heap_chunk *)(uintptr_t)node;
}

/* Where the map says which chunk is at the address. NULL: no memory. Inside the gate, no lock. */
static void **map_place(const void *address)
{
    void **node = shared_map;
    for (uint32_t level = MAP_LEVELS - 1; level != 0; level--) {
        void **place = &node[map_index(address, level)];
        void *next = atomic_load_acquire(place); /* pairs with the release below */
        if (next == NULL) {
            void *made = hak__metadata_allocate(sizeof shared_map);
            if (made == NULL) {
                return NULL;
            }
            /* release: pairs with the acquire above, and in hak__heap_chunk_find. What was made is
             * lost if threads race here, once for each node. */
            next = atomic_cas_release(place, &next, made) ? made : atomic_load_acquire(place);
        }
        node = next;
    }
    return &node[map_index(address, 0)];
}

struct heap_chunk *hak__heap_chunk_of(struct hak_heap *heap, const void *pointer)
{
    struct heap_chunk **near = heap_near(heap, (uintptr_t)pointer);
    struct heap_chunk *chunk = atomic_load_relaxed(near);
    if (heap_chunk_has(chunk, pointer)) {
        return chunk;
    }
    chunk = heap->fixed ? NULL : hak__heap_chunk_find(pointer);
    if (chunk == NULL || chunk->heap != heap || !heap_chunk_has(chunk, pointer)) {
        return NULL;
    }
    /* release: pairs with the relaxed load of a free, which then reads the struct by this address.
     * It stays here until the chunk has no object. */
    atomic_store_release(near, chunk);
    return chunk;
}

/* --- chunks --- */

/* Changes the bits of pages that are all free, or all used. */
static void chunk_flip(struct hak_heap *heap, struct heap_chunk *chunk, size_t index, size_t pages,
                       bool used)
{
    for (size_t left = pages; left != 0;) {
        size_t count = 64 - index % 64 < left ? 64 - index % 64 : left;
        chunk->used_map[index / 64] ^= bits_mask((uint32_t)(index % 64), (uint32_t)count);
        index += count;
        left -= count;
    }
    chunk->used_count += used ? pages : -pages;
    heap->free_pages -= used ? pages : -pages;
}

/* Writes the struct, but not where its memory is new and zero. */
static void chunk_init(struct hak_heap *heap, struct heap_chunk *chunk, void *memory, size_t size)
{
    size_t pages = size >> HEAP_PAGE_SHIFT;
    pages = heap->fixed || pages < HEAP_CHUNK_PAGES ? pages : HEAP_CHUNK_PAGES;
    size_t kinds = bits_align_up(pages * sizeof(struct heap_page), 8);
    chunk->heap = heap;
    atomic_store_relaxed(&chunk->shared_start, (uintptr_t)memory);
    atomic_store_relaxed(&chunk->shared_pages, pages);
    chunk->size = size;
    chunk->used_count = 0;
    chunk->used_map = (uint64_t *)(void *)((char *)(chunk + 1) + kinds);
    chunk->runs = (struct heap_run *)(void *)(chunk->used_map + (pages + 63) / 64);
    chunk->hint = 0;
    if (pages <= HEAP_CHUNK_PAGES) {
        memset(chunk->pages, 0, (size_t)((char *)chunk->runs - (char *)chunk->pages));
    }
    if (pages % 64 != 0) {
        chunk->used_map[pages / 64] = ~UINT64_C(0) << pages % 64;
    }
}

/* All structs for up to HEAP_CHUNK_PAGES pages have one size, as they wait in one list. Others are
 * mapped, and so they are new. */
static size_t chunk_struct_bytes(size_t pages)
{
    size_t bytes = heap_chunk_bytes(pages);
    return pages <= HEAP_CHUNK_PAGES ? heap_chunk_bytes(HEAP_CHUNK_PAGES)
           : bytes > HEAP_SPARE_MAX  ? bytes
                                     : HEAP_SPARE_MAX + 1;
}

struct heap_chunk *hak__heap_chunk_make(struct hak_heap *heap, void *memory, size_t size)
{
    if (!hak__heap_gate()) {
        return NULL;
    }
    size_t bytes = chunk_struct_bytes(heap->fixed ? size >> HEAP_PAGE_SHIFT : 0);
    struct heap_chunk *chunk = hak__heap_spare_take(&spare_chunks[heap->fixed], bytes);
    void **place = heap->fixed || chunk == NULL ? NULL : map_place(memory);
    if (chunk != NULL) {
        chunk_init(heap, chunk, memory, size);
        chunk->place = place;
        if (place == NULL && !heap->fixed) {
            hak__heap_spare_give(&spare_chunks[heap->fixed], chunk, bytes);
            chunk = NULL;
        }
    }
    hak__gate_leave();
    return chunk;
}

static void chunk_list(struct hak_heap *heap, struct heap_chunk *chunk, uint32_t kind)
{
    chunk->kind = kind;
    LIST_PUSH(heap->chunks[kind], chunk);
}

static void chunk_unlist(struct hak_heap *heap, struct heap_chunk *chunk)
{
    LIST_REMOVE(heap->chunks[chunk->kind], chunk);
}

struct heap_chunk *hak__heap_chunk_next(const struct hak_heap *heap, const struct heap_chunk *chunk)
{
    struct heap_chunk *next = chunk != NULL ? chunk->next : NULL;
    uint32_t kind = chunk != NULL ? chunk->kind + 1 : 0;
    for (; next == NULL && kind < HEAP_RUN_KINDS; kind++) {
        next = heap->chunks[kind];
    }
    return next;
}

void hak__heap_chunk_add(struct hak_heap *heap, struct heap_chunk *chunk, size_t used)
{
    chunk_list(heap, chunk, HEAP_RUN_KINDS - 1);
    heap->chunks_count++;
    heap->free_pages += chunk->shared_pages;
    chunk_flip(heap, chunk, 0, used, true);
    if (chunk->place != NULL) {
        /* release: pairs with the acquire in hak__heap_chunk_find; the second one as in
         * hak__heap_chunk_of */
        atomic_store_release(chunk->place, (void *)chunk);
        atomic_store_release(heap_near(heap, chunk->shared_start), chunk);
    }
}

void hak__heap_chunk_release(struct hak_heap *heap, struct heap_chunk *chunk)
{
    struct heap_chunk **near = heap_near(heap, chunk->shared_start);
    if (atomic_load_relaxed(near) == chunk) { /* relaxed: nobody has an object of the chunk */
        atomic_store_relaxed(near, &hak__heap_no_chunk);
    }
    chunk_unlist(heap, chunk);
    heap->chunks_count--;
    heap->free_pages -= chunk->shared_pages - chunk->used_count;
    heap->mapped -= chunk->size + heap_chunk_bytes(chunk->shared_pages);
    chunk->next = heap->released;
    heap->released = chunk;
}

void hak__heap_chunks_unmap(const struct hak_heap *heap, struct heap_chunk *chunks)
{
    for (const struct heap_chunk *chunk = chunks; chunk != NULL; chunk = chunk->next) {
        if (chunk->place != NULL) { /* before somebody else can have the memory */
            atomic_store_relaxed(chunk->place, NULL);
        }
        if (heap->pages.unmap != NULL) {
            heap->pages.unmap(heap->pages.argument, (void *)chunk->shared_start, chunk->size);
        }
    }
    if (chunks == NULL || !hak__heap_gate()) { /* refused: the structs are lost */
        return;
    }
    while (chunks != NULL) {
        struct heap_chunk *chunk = chunks;
        size_t bytes = chunk_struct_bytes(chunk->shared_pages);
        chunks = chunk->next;
        /* relaxed: who still reads it finds no page, or other pages than it asks for */
        atomic_store_relaxed(&chunk->shared_pages, 0);
        hak__heap_spare_give(&spare_chunks[heap->fixed], chunk, bytes);
    }
    hak__gate_leave();
}

/* --- pages --- */

static uint32_t run_kind(size_t pages)
{
    if (pages < 16) {
        return (uint32_t)pages;
    }
    uint32_t doubling = bits_log2(pages), quarter = (uint32_t)(pages >> (doubling - 2)) & 3u;
    uint32_t kind = 4 * doubling + quarter;
    return kind < HEAP_RUN_KINDS ? kind : HEAP_RUN_KINDS - 1;
}

size_t hak__heap_next_page(const struct heap_chunk *chunk, size_t index, size_t end, bool used)
{
    const uint64_t *map = chunk->used_map;
    uint64_t flip = used ? 0 : ~UINT64_C(0);
    while (index < end) {
        uint64_t bits = (map[index / 64] ^ flip) >> index % 64;
        if (bits != 0) {
            index += bits_lowest(bits);
            break;
        }
        index = bits_align_down(index, 64) + 64;
    }
    return index < end ? index : end;
}

/* The lowest place for the pages; SIZE_MAX: there is none. Then, if they need not be aligned,
 * *longest is the length of the longest free run. */
static size_t chunk_search(struct heap_chunk *chunk, size_t pages, size_t alignment,
                           size_t *longest)
{
    size_t number = chunk->shared_start >> HEAP_PAGE_SHIFT, count = chunk->shared_pages;
    size_t start = hak__heap_next_page(chunk, chunk->hint, count, false);
    chunk->hint = start;
    *longest = 0;
    while (start != count) {
        size_t place = bits_align_up(number + start, alignment) - number;
        size_t end =
            hak__heap_next_page(chunk, start, place + pages < count ? place + pages : count, true);
        if (end - place == pages) {
            return place;
        }
        *longest = end - start > *longest ? end - start : *longest;
        start = hak__heap_next_page(chunk, end, count, false);
    }
    return SIZE_MAX;
}

struct heap_run *hak__heap_run_take(struct hak_heap *heap, size_t pages, size_t alignment)
{
    struct heap_chunk *chunk, *next;
    for (uint32_t kind = run_kind(pages); kind < HEAP_RUN_KINDS; kind++) {
        for (chunk = heap->chunks[kind]; chunk != NULL; chunk = next) {
            next = chunk->next;
            size_t longest, index = chunk_search(chunk, pages, alignment, &longest);
            if (index != SIZE_MAX) {
                chunk_flip(heap, chunk, index, pages, true);
                return heap_run_at(chunk, index);
            }
            if (alignment == 1) {
                chunk_unlist(heap, chunk);
                chunk_list(heap, chunk, run_kind(longest));
            }
        }
    }
    return NULL;
}

void hak__heap_run_give(struct hak_heap *heap, struct heap_run *run, size_t pages)
{
    struct heap_chunk *chunk = run->chunk;
    size_t index = heap_run_index(run);
    memset(&chunk->pages[index], 0, pages * sizeof chunk->pages[0]);
    chunk_flip(heap, chunk, index, pages, false);
    chunk->hint = chunk->hint < index ? chunk->hint : index;
    if (chunk->used_count == heap_first_page(heap) && !heap->fixed) {
        hak__heap_chunk_release(heap, chunk);
    } else if (chunk->kind != HEAP_RUN_KINDS - 1) {
        chunk_unlist(heap, chunk);
        chunk_list(heap, chunk, HEAP_RUN_KINDS - 1);
    }
}

struct heap_run *hak__heap_runs_detach(struct hak_heap *heap)
{
    struct heap_run *runs = NULL;
    struct heap_chunk *chunk = NULL;
    while ((chunk = hak__heap_chunk_next(heap, chunk)) != NULL) {
        size_t count = chunk->shared_pages, end = 0, start;
        while ((start = hak__heap_next_page(chunk, end, count, false)) != count) {
            end = hak__heap_next_page(chunk, start, count, true);
            chunk_flip(heap, chunk, start, end - start, true);
            struct heap_run *run = &chunk->runs[start];
            *run = (struct heap_run){.next = runs, .chunk = chunk, .pages = end - start};
            runs = run;
        }
    }
    return runs;
}

static void check_slab(struct hak_heap *heap, const struct heap_run *slab)
{
    size_t count = 0;
    for (const struct object *object = slab->free_list; object != NULL; object = object->next) {
        HAK_ASSERT(hak__heap_locate(heap, object).run == slab &&
                   heap_object_is_marked(object, hak__window.mark));
        count++;
    }
    HAK_ASSERT(count + slab->used_count == slab->carved_count);
    HAK_ASSERT(slab->carved_count <= slab->capacity);
}

void hak__heap_check(struct hak_heap *heap)
{
    size_t free_pages = 0, blocks = 0, out = 0, expected = 0;
    struct heap_chunk *chunk = NULL;
    while ((chunk = hak__heap_chunk_next(heap, chunk)) != NULL) {
        size_t count = chunk->shared_pages, used = 0;
        for (size_t index = 0, end; index < count; index = end) {
            end = hak__heap_next_page(chunk, index, count, true);
            free_pages += end - index;
            if (end == index) { /* pages of a run that is detached have no kind */
                const struct heap_run *run = &chunk->runs[index];
                uint32_t kind = chunk->pages[index].kind;
                end += kind != 0 ? heap_run_pages(run) : 1;
                end = end < count ? end : count;
                used += end - index;
                blocks += kind == PAGE_BLOCK;
                if (kind != 0 && kind != PAGE_BLOCK) {
                    check_slab(heap, run);
                    out += run->used_count;
                }
            }
        }
        HAK_ASSERT(used == chunk->used_count);
    }
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        expected += heap->classes[class_index].out_count;
    }
    HAK_ASSERT(free_pages == heap->free_pages && blocks == heap->blocks_count && out == expected);
}
