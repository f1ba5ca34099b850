/* SPDX-License-Identifier: MIT */
/* heap_views.c: the functions of hakmem/heap.h that look at a heap as a whole, or tidy it up. */
#include "heap/heap_secure.h"

#include <errno.h>
#include <string.h>

#include "large/span.h"

void hak_heap_trim(hak_heap *heap)
{
    int saved = errno;
    struct heap_cache *cache = hak__heap_cache(heap);
    if (!hak__heap_enter(heap)) {
        return;
    }
    if (cache != NULL) {
        hak__heap_cache_flush(cache);
    }
    hak__heap_slab_gather(heap);
    /* Without the lock nobody may use these pages, so they leave their lists meanwhile. */
    struct heap_page *runs = heap->pages.purge != NULL ? hak__heap_runs_detach(heap) : NULL;
    hak__heap_leave(heap);
    for (struct heap_page *run = runs; run != NULL; run = run->next) {
        const struct heap_chunk *chunk = heap_chunk_of(heap, run);
        heap_check_chunk(heap, chunk);
        size_t pages = hak__heap_pages(heap, chunk, run);
        heap->pages.purge(heap->pages.argument, heap_page_start(chunk, run),
                          pages << HEAP_PAGE_SHIFT);
    }
    if (runs != NULL && hak__heap_enter(heap)) {
        hak__heap_runs_attach(heap, runs);
        hak__heap_leave(heap);
    }
    errno = saved;
}

/* --- the walk --- */

struct walk {
    hak_heap_visitor *visitor; /* NULL: in the secure form each object is looked at, that is all */
    void *argument;
    bool lost; /* see hak__heap_guarded_object */
};

static bool walk_visit(const struct walk *walk, void *object, size_t bytes)
{
    if (HAK_SECURE) {
        struct heap_guarded guarded = hak__heap_guarded_object(object, bytes, walk->lost);
        if (guarded.object == NULL || walk->visitor == NULL) {
            return true;
        }
        object = (char *)object + guarded.lead;
        bytes = guarded.size;
    }
    return walk->visitor(object, bytes, walk->argument);
}

static bool walk_slab(const struct walk *walk, const struct heap_chunk *chunk,
                      const struct heap_page *slab)
{
    uint64_t is_free[HEAP_SLAB_OBJECTS / 64] = {0};
    unsigned char *start = heap_page_start(chunk, slab);
    size_t bytes = size_class_bytes(slab->class_index);
    uint64_t reciprocal = hak__size_reciprocals[slab->class_index];
    for (const struct object *object = slab->free_list; object != NULL; object = object->next) {
        size_t offset = (size_t)((const unsigned char *)object - start), index = offset / bytes;
        if (HAK_UNLIKELY(!size_class_starts(offset, reciprocal, slab->carved_count) ||
                         (is_free[index / 64] >> index % 64 & 1) != 0 ||
                         (HAK_SECURE && !heap_object_is_marked(object, hak__window.mark)))) {
            hak__object_is_wrong(object); /* the program has written to a free object */
        }
        is_free[index / 64] |= UINT64_C(1) << index % 64;
    }
    for (size_t index = 0; index < slab->carved_count; index++) {
        bool in_use = (is_free[index / 64] >> index % 64 & 1) == 0;
        if (in_use && !walk_visit(walk, start + index * bytes, bytes)) {
            return false;
        }
    }
    return true;
}

/* Visits what begins at `page`, and stores its length in pages. False: the visitor has ended it. */
static bool walk_run(const struct walk *walk, const struct hak_heap *heap,
                     const struct heap_chunk *chunk, const struct heap_page *page, size_t *pages)
{
    *pages = hak__heap_pages(heap, chunk, page);
    if (page->kind == PAGE_SLAB) {
        return walk_slab(walk, chunk, page);
    }
    return page->kind != PAGE_BLOCK ||
           walk_visit(walk, heap_page_start(chunk, page), *pages << HEAP_PAGE_SHIFT);
}

static bool walk_chunk(const struct walk *walk, const struct hak_heap *heap,
                       struct heap_chunk *chunk)
{
    heap_check_chunk(heap, chunk);
    size_t index = heap->head_pages;
    while (heap_chunk_is_huge(heap, chunk) && index < chunk->pages_count &&
           heap_page_at(chunk, index)->kind != PAGE_BLOCK) {
        index++; /* pages before the block are of no use to anybody */
    }
    size_t pages;
    for (; index < chunk->pages_count; index += pages) {
        if (!walk_run(walk, heap, chunk, heap_page_at(chunk, index), &pages)) {
            return false;
        }
    }
    return true;
}

/* Returns the objects of all caches to their slabs. */
static bool walk_gather(struct hak_heap *heap, bool *lost)
{
    hak__heap_check_alive(heap);
    if (!hak__gate_enter_patiently()) {
        (void)hak__gate_was_refused();
        return false;
    }
    lock_acquire(&hak__heaps_lock);
    lock_acquire(&heap->lock);
    hak__heap_cache_flush_all(heap);
    *lost = hak__heap_has_lost_caches(heap);
    lock_release(&heap->lock);
    lock_release(&hak__heaps_lock);
    hak__gate_leave();
    /* Takes in what was freed late, and lets empty chunks go. */
    if (hak__heap_enter(heap)) {
        hak__heap_leave(heap);
    }
    return true;
}

/* The visitor runs without a lock: it may use all of hakmem but this heap. */
bool hak_heap_walk(hak_heap *heap, hak_heap_visitor *visitor, void *argument)
{
    struct walk walk = {visitor, argument, false};
    if (!walk_gather(heap, &walk.lost)) {
        return false;
    }
    for (struct heap_chunk *chunk = heap->chunks; chunk != NULL;
         chunk = hak__heap_chunk_next(heap, chunk)) {
        if (!walk_chunk(&walk, heap, chunk)) {
            return false;
        }
    }
    return true;
}

/* --- moving --- */

/* What a move takes; object NULL: it stays, such as an aligned one of the secure form. */
static struct heap_guarded move_begin(struct hak_heap *heap, const void *pointer)
{
    struct heap_guarded guarded = {(void *)(uintptr_t)pointer, 0, 0, 0, false};
    if (HAK_SECURE && pointer != NULL) {
        guarded = hak__heap_guarded(heap, pointer);
        guarded.object = guarded.lead == HEAP_LEAD ? guarded.object : NULL;
    }
    return guarded;
}

/* Secure form: guards the copy, and clears the old object. */
static void move_end(const struct hak_heap *heap, const struct heap_guarded *guarded, void *object)
{
    struct heap_guarded moved = *guarded;
    moved.object = object;
    hak__heap_guard_resize(&moved, moved.size);
    hak__heap_unguard(heap, guarded);
}

bool hak_heap_move_helps(hak_heap *heap, const void *pointer)
{
    pointer = move_begin(heap, pointer).object;
    if (pointer == NULL || !hak__heap_enter(heap)) {
        return false;
    }
    struct heap_page *page = hak__heap_locate(heap, pointer).page;
    bool helps = page != NULL && page->kind == PAGE_SLAB &&
                 hak__heap_slab_take_fuller(heap, page, false) != NULL;
    hak__heap_leave(heap);
    return helps;
}

void *hak_heap_move(hak_heap *heap, void *pointer)
{
    struct heap_guarded from = move_begin(heap, pointer);
    if (from.object == NULL || !hak__heap_enter(heap)) {
        return pointer;
    }
    struct heap_place place = hak__heap_locate(heap, from.object);
    void *object = NULL;
    if (place.page != NULL && place.page->kind == PAGE_SLAB) {
        object = hak__heap_slab_take_fuller(heap, place.page, true);
    }
    if (object != NULL) {
        memcpy(object, from.object, place.bytes);
        if (HAK_SECURE) {
            move_end(heap, &from, object);
        }
        (void)hak__heap_pages(heap, place.chunk, place.page);
        heap_object_set_free(from.object, NULL, hak__window.mark);
        hak__heap_slab_return(heap, place.page, (struct object_list){from.object, 1}, from.object);
    }
    hak__heap_leave(heap);
    if (place.page == NULL) {
        hak__heap_no_object(heap, pointer);
    }
    return object != NULL ? (char *)object + from.lead : pointer;
}

/* --- statistics --- */

static size_t views_cached(struct hak_heap *heap, struct hak_heap_stats *stats)
{
    size_t objects = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct heap_class *heap_class = &heap->classes[class_index];
        size_t bytes = size_class_bytes(class_index), out = heap_class->out_count;
        size_t cached = hak__heap_cache_objects(heap, class_index);
        cached = cached < out ? cached : out; /* bins of running threads */
        objects += out - cached;
        stats->bytes_cached += cached * bytes;
        stats->bytes_in_use += (out - cached) * bytes;
        stats->bytes_free_in_slabs += heap_class->slab_bytes - out * bytes;
    }
    return objects;
}

/* Under HEAPS and the heap's lock. */
static void views_count(struct hak_heap *heap, struct hak_heap_stats *stats)
{
    stats->objects_in_use_count = views_cached(heap, stats) + heap->blocks_count;
    stats->bytes_in_use += heap->blocks_bytes;
    stats->bytes_free_pages = heap->free_pages << HEAP_PAGE_SHIFT;
    stats->bytes_mapped = heap->mapped;
    stats->chunks_count = heap->chunks_count;
    stats->limit = heap->limit == SIZE_MAX ? 0 : heap->limit;
    stats->peak_bytes_mapped = heap->mapped_peak;
    stats->failures_count = heap->failures_count;
    for (const struct heap_cache *cache = heap->caches; cache != NULL; cache = cache->next) {
        stats->threads_count++;
    }
    size_t others = stats->bytes_in_use + stats->bytes_cached + stats->bytes_free_in_slabs +
                    stats->bytes_free_pages;
    stats->bytes_tables = stats->bytes_mapped - others;
}

void hak_heap_stats_read(hak_heap *heap, struct hak_heap_stats *stats, size_t size)
{
    struct hak_heap_stats own = {.version = 1};
    hak__heap_check_alive(heap);
    if (hak__gate_enter_patiently()) {
        lock_acquire(&hak__heaps_lock);
        lock_acquire(&heap->lock);
        views_count(heap, &own);
        lock_release(&heap->lock);
        lock_release(&hak__heaps_lock);
        hak__gate_leave();
    } else {
        (void)hak__gate_was_refused();
    }
    own.size = (uint32_t)(size < sizeof own ? size : sizeof own);
    memcpy(stats, &own, own.size);
}
