/* SPDX-License-Identifier: MIT */
/* zone_views.c: the functions of hakmem/heap.h that look at a heap as a whole, or tidy it up. */
#include "zone/zone_secure.h"

#include <errno.h>
#include <string.h>

#include "large/span.h"

void hak_heap_trim(hak_heap *zone)
{
    int saved = errno;
    struct zone_cache *cache = hak__zone_cache(zone);
    if (!hak__zone_enter(zone)) {
        return;
    }
    if (cache != NULL) {
        hak__zone_cache_flush(cache);
    }
    hak__zone_slab_gather(zone);
    /* Without the lock nobody may use these pages, so they leave their lists meanwhile. */
    struct zone_page *runs = zone->pages.purge != NULL ? hak__zone_runs_detach(zone) : NULL;
    hak__zone_leave(zone);
    for (struct zone_page *run = runs; run != NULL; run = run->next) {
        const struct zone_chunk *chunk = zone_chunk_of(zone, run);
        zone_check_chunk(zone, chunk);
        size_t pages = hak__zone_pages(zone, chunk, run);
        zone->pages.purge(zone->pages.argument, zone_page_start(chunk, run),
                          pages << ZONE_PAGE_SHIFT);
    }
    if (runs != NULL && hak__zone_enter(zone)) {
        hak__zone_runs_attach(zone, runs);
        hak__zone_leave(zone);
    }
    errno = saved;
}

/* --- the walk --- */

struct walk {
    hak_heap_visitor *visitor; /* NULL: in the secure form each object is looked at, that is all */
    void *argument;
    bool lost; /* see hak__zone_guarded_object */
};

static bool walk_visit(const struct walk *walk, void *object, size_t bytes)
{
    if (HAK_SECURE) {
        struct zone_guarded guarded = hak__zone_guarded_object(object, bytes, walk->lost);
        if (guarded.object == NULL || walk->visitor == NULL) {
            return true;
        }
        object = (char *)object + guarded.lead;
        bytes = guarded.size;
    }
    return walk->visitor(object, bytes, walk->argument);
}

static bool walk_slab(const struct walk *walk, const struct zone_chunk *chunk,
                      const struct zone_page *slab)
{
    uint64_t is_free[ZONE_SLAB_OBJECTS / 64] = {0};
    unsigned char *start = zone_page_start(chunk, slab);
    size_t bytes = size_class_bytes(slab->class_index);
    uint64_t reciprocal = hak__size_reciprocals[slab->class_index];
    for (const struct object *object = slab->free_list; object != NULL; object = object->next) {
        size_t offset = (size_t)((const unsigned char *)object - start), index = offset / bytes;
        if (HAK_UNLIKELY(!size_class_starts(offset, reciprocal, slab->carved_count) ||
                         (is_free[index / 64] >> index % 64 & 1) != 0 ||
                         (HAK_SECURE && !zone_object_is_marked(object, hak__window.mark)))) {
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
static bool walk_run(const struct walk *walk, const struct hak_heap *zone,
                     const struct zone_chunk *chunk, const struct zone_page *page, size_t *pages)
{
    *pages = hak__zone_pages(zone, chunk, page);
    if (page->kind == PAGE_SLAB) {
        return walk_slab(walk, chunk, page);
    }
    return page->kind != PAGE_BLOCK ||
           walk_visit(walk, zone_page_start(chunk, page), *pages << ZONE_PAGE_SHIFT);
}

static bool walk_chunk(const struct walk *walk, const struct hak_heap *zone,
                       struct zone_chunk *chunk)
{
    zone_check_chunk(zone, chunk);
    size_t index = zone->head_pages;
    while (zone_chunk_is_huge(zone, chunk) && index < chunk->pages_count &&
           zone_page_at(chunk, index)->kind != PAGE_BLOCK) {
        index++; /* pages before the block are of no use to anybody */
    }
    size_t pages;
    for (; index < chunk->pages_count; index += pages) {
        if (!walk_run(walk, zone, chunk, zone_page_at(chunk, index), &pages)) {
            return false;
        }
    }
    return true;
}

/* Returns the objects of all caches to their slabs. */
static bool walk_gather(struct hak_heap *zone, bool *lost)
{
    hak__zone_check_alive(zone);
    if (!hak__gate_enter_patiently()) {
        (void)hak__gate_was_refused();
        return false;
    }
    lock_acquire(&hak__zones_lock);
    lock_acquire(&zone->lock);
    hak__zone_cache_flush_all(zone);
    *lost = hak__zone_has_lost_caches(zone);
    lock_release(&zone->lock);
    lock_release(&hak__zones_lock);
    hak__gate_leave();
    /* Takes in what was freed late, and lets empty chunks go. */
    if (hak__zone_enter(zone)) {
        hak__zone_leave(zone);
    }
    return true;
}

/* The visitor runs without a lock: it may use all of hakmem but this heap. */
bool hak_heap_walk(hak_heap *zone, hak_heap_visitor *visitor, void *argument)
{
    struct walk walk = {visitor, argument, false};
    if (!walk_gather(zone, &walk.lost)) {
        return false;
    }
    for (struct zone_chunk *chunk = zone->chunks; chunk != NULL;
         chunk = hak__zone_chunk_next(zone, chunk)) {
        if (!walk_chunk(&walk, zone, chunk)) {
            return false;
        }
    }
    return true;
}

/* --- moving --- */

/* What a move takes; object NULL: it stays, such as an aligned one of the secure form. */
static struct zone_guarded move_begin(struct hak_heap *zone, const void *pointer)
{
    struct zone_guarded guarded = {(void *)(uintptr_t)pointer, 0, 0, 0, false};
    if (HAK_SECURE && pointer != NULL) {
        guarded = hak__zone_guarded(zone, pointer);
        guarded.object = guarded.lead == ZONE_LEAD ? guarded.object : NULL;
    }
    return guarded;
}

/* Secure form: guards the copy, and clears the old object. */
static void move_end(const struct hak_heap *zone, const struct zone_guarded *guarded, void *object)
{
    struct zone_guarded moved = *guarded;
    moved.object = object;
    hak__zone_guard_resize(&moved, moved.size);
    hak__zone_unguard(zone, guarded);
}

bool hak_heap_move_helps(hak_heap *zone, const void *pointer)
{
    pointer = move_begin(zone, pointer).object;
    if (pointer == NULL || !hak__zone_enter(zone)) {
        return false;
    }
    struct zone_page *page = hak__zone_locate(zone, pointer).page;
    bool helps = page != NULL && page->kind == PAGE_SLAB &&
                 hak__zone_slab_take_fuller(zone, page, false) != NULL;
    hak__zone_leave(zone);
    return helps;
}

void *hak_heap_move(hak_heap *zone, void *pointer)
{
    struct zone_guarded from = move_begin(zone, pointer);
    if (from.object == NULL || !hak__zone_enter(zone)) {
        return pointer;
    }
    struct zone_place place = hak__zone_locate(zone, from.object);
    void *object = NULL;
    if (place.page != NULL && place.page->kind == PAGE_SLAB) {
        object = hak__zone_slab_take_fuller(zone, place.page, true);
    }
    if (object != NULL) {
        memcpy(object, from.object, place.bytes);
        if (HAK_SECURE) {
            move_end(zone, &from, object);
        }
        (void)hak__zone_pages(zone, place.chunk, place.page);
        zone_object_set_free(from.object, NULL, hak__window.mark);
        hak__zone_slab_return(zone, place.page, (struct object_list){from.object, 1}, from.object);
    }
    hak__zone_leave(zone);
    if (place.page == NULL) {
        hak__zone_no_object(zone, pointer);
    }
    return object != NULL ? (char *)object + from.lead : pointer;
}

/* --- statistics --- */

static size_t views_cached(struct hak_heap *zone, struct hak_heap_stats *stats)
{
    size_t objects = 0;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct zone_class *zone_class = &zone->classes[class_index];
        size_t bytes = size_class_bytes(class_index), out = zone_class->out_count;
        size_t cached = hak__zone_cache_objects(zone, class_index);
        cached = cached < out ? cached : out; /* bins of running threads */
        objects += out - cached;
        stats->bytes_cached += cached * bytes;
        stats->bytes_in_use += (out - cached) * bytes;
        stats->bytes_free_in_slabs += zone_class->slab_bytes - out * bytes;
    }
    return objects;
}

/* Under ZONES and the zone's lock. */
static void views_count(struct hak_heap *zone, struct hak_heap_stats *stats)
{
    stats->objects_in_use_count = views_cached(zone, stats) + zone->blocks_count;
    stats->bytes_in_use += zone->blocks_bytes;
    stats->bytes_free_pages = zone->free_pages << ZONE_PAGE_SHIFT;
    stats->bytes_mapped = zone->mapped;
    stats->chunks_count = zone->chunks_count;
    stats->limit = zone->limit == SIZE_MAX ? 0 : zone->limit;
    stats->peak_bytes_mapped = zone->mapped_peak;
    stats->failures_count = zone->failures_count;
    for (const struct zone_cache *cache = zone->caches; cache != NULL; cache = cache->next) {
        stats->threads_count++;
    }
    size_t others = stats->bytes_in_use + stats->bytes_cached + stats->bytes_free_in_slabs +
                    stats->bytes_free_pages;
    stats->bytes_tables = stats->bytes_mapped - others;
}

void hak_heap_stats_read(hak_heap *zone, struct hak_heap_stats *stats, size_t size)
{
    struct hak_heap_stats own = {.version = 1};
    hak__zone_check_alive(zone);
    if (hak__gate_enter_patiently()) {
        lock_acquire(&hak__zones_lock);
        lock_acquire(&zone->lock);
        views_count(zone, &own);
        lock_release(&zone->lock);
        lock_release(&hak__zones_lock);
        hak__gate_leave();
    } else {
        (void)hak__gate_was_refused();
    }
    own.size = (uint32_t)(size < sizeof own ? size : sizeof own);
    memcpy(stats, &own, own.size);
}
