/* SPDX-License-Identifier: MIT */
/* heap_views.c: the functions of hakmem/heap.h that look at a heap as a whole, or tidy it up. */
#include "heap/heap_secure.h"

#include <errno.h>
#include <string.h>

void hak_heap_trim(hak_heap *heap)
{
    int saved = errno;
    if (!hak__heap_enter(heap)) {
        return;
    }
    hak__heap_gather(heap);
    /* Without the lock nobody may use these pages, so they are taken meanwhile. */
    struct heap_run *runs = heap->pages.purge != NULL ? hak__heap_runs_detach(heap) : NULL;
    hak__heap_leave(heap);
    for (const struct heap_run *run = runs; run != NULL; run = run->next) {
        heap->pages.purge(heap->pages.argument, heap_run_start(run), run->pages << HEAP_PAGE_SHIFT);
    }
    if (runs != NULL && hak__heap_enter(heap)) {
        while (runs != NULL) {
            struct heap_run *run = runs;
            runs = run->next;
            hak__heap_run_give(heap, run, run->pages);
        }
        hak__heap_leave(heap);
    }
    errno = saved;
}

/* --- the walk --- */

struct walk {
    hak_heap_visitor *visitor; /* NULL: in the secure form each object is looked at, that is all */
    void *argument;
    bool lost; /* see heap_look_at */
};

static bool walk_visit(const struct walk *walk, void *object, size_t bytes)
{
    struct heap_owned owned = heap_look_at(object, bytes, walk->lost);
    return owned.object == NULL || walk->visitor == NULL ||
           walk->visitor((char *)object + owned.lead, owned.size, walk->argument);
}

static bool walk_slab(const struct walk *walk, const struct heap_run *slab)
{
    /* The most objects of a slab: those of 16 bytes in HEAP_SLAB_BYTES. */
    uint64_t is_free[HEAP_SLAB_BYTES / OBJECT_ALIGNMENT / 64] = {0};
    char *start = heap_run_start(slab);
    size_t bytes = size_class_bytes(slab->class_index);
    uint64_t reciprocal = hak__size_reciprocals[slab->class_index];
    for (const struct object *object = slab->free_list; object != NULL; object = object->next) {
        size_t offset = (size_t)((const char *)object - start), index = offset / bytes;
        if (HAK_UNLIKELY(!size_class_starts(offset, reciprocal, slab->carved_count) ||
                         (is_free[index / 64] >> index % 64 & 1) != 0 ||
                         !heap_object_is_marked(object, hak__window.mark))) {
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

/* False: the visitor has ended the walk. */
static bool walk_chunk(const struct walk *walk, const struct heap_chunk *chunk)
{
    size_t index = 0, count = chunk->shared_pages, pages;
    for (; (index = hak__heap_next_page(chunk, index, count, true)) < count; index += pages) {
        const struct heap_run *run = &chunk->runs[index];
        uint32_t kind = chunk->pages[index].kind;
        pages = kind != 0 ? heap_run_pages(run) : 1; /* 0: of no object */
        if (kind == PAGE_BLOCK ? !walk_visit(walk, heap_run_start(run), pages << HEAP_PAGE_SHIFT)
                               : kind != 0 && !walk_slab(walk, run)) {
            return false;
        }
    }
    return true;
}

/* Returns the objects of all caches to their slabs. */
static bool walk_gather(struct hak_heap *heap, bool *lost)
{
    hak__heap_check_alive(heap);
    if (!hak__heap_gate()) {
        return false;
    }
    lock_acquire(&hak__heaps_lock);
    lock_acquire(&heap->lock);
    *lost = !hak__heap_cache_flush_all(heap);
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
    struct heap_chunk *chunk = NULL;
    while ((chunk = hak__heap_chunk_next(heap, chunk)) != NULL) {
        if (!walk_chunk(&walk, chunk)) {
            return false;
        }
    }
    return true;
}

/* --- moving --- */

/* Begins an operation, and finds the slab to which the object moves. NULL: it stays, as one does in
 * the secure form that is aligned to more than others, and no operation has begun. */
static struct heap_run *move_begin(struct hak_heap *heap, const void *pointer,
                                   struct heap_owned *owned)
{
    if (pointer == NULL) {
        return NULL;
    }
    *owned = heap_find(heap, pointer);
    if (owned->object == NULL || owned->lead > HEAP_LEAD || !hak__heap_enter(heap)) {
        return NULL;
    }
    const struct heap_run *from = hak__heap_locate(heap, owned->object).run;
    struct heap_run *slab =
        from != NULL && from->class_index != 0 ? hak__heap_slab_fuller(heap, from) : NULL;
    if (slab == NULL) {
        hak__heap_leave(heap);
    }
    return slab;
}

bool hak_heap_move_helps(hak_heap *heap, const void *pointer)
{
    struct heap_owned owned;
    bool helps = move_begin(heap, pointer, &owned) != NULL;
    if (helps) {
        hak__heap_leave(heap);
    }
    return helps;
}

void *hak_heap_move(hak_heap *heap, void *pointer)
{
    struct heap_owned owned;
    struct heap_run *slab = move_begin(heap, pointer, &owned);
    if (slab == NULL) {
        return pointer;
    }
    struct object_list list = {NULL, 0};
    hak__heap_slab_pop(heap, slab, 1, &list, hak__window.mark);
    void *moved = heap_hand_out(heap, list.head, 1, owned.size);
    memcpy(moved, pointer, owned.size);
    hak__heap_return(heap, heap_take_back(heap, pointer));
    hak__heap_leave(heap);
    return moved;
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
    if (hak__heap_gate()) {
        lock_acquire(&hak__heaps_lock);
        lock_acquire(&heap->lock);
        views_count(heap, &own);
        lock_release(&heap->lock);
        lock_release(&hak__heaps_lock);
        hak__gate_leave();
    }
    own.size = (uint32_t)(size < sizeof own ? size : sizeof own);
    memcpy(stats, &own, own.size);
}
