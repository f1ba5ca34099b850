/* SPDX-License-Identifier: MIT */
/* zone.c: how a zone is created and destroyed, and how an operation on it begins and ends. */
#include "zone/zone.h"

#include "base/bits.h"
#include "core/diagnose.h"
#include "heap/heap.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

static struct hak_heap *zones_free; /* under ZONES */
static uint64_t zone_last_id;       /* under ZONES */
static const char zone_dead[] = "use of a destroyed heap";

/* --- the default provider: hakmem's own functions, as any program calls them --- */

static void *own_map(void *argument, size_t size, size_t alignment)
{
    (void)argument;
    return hak_aligned_alloc(alignment, size);
}

static void own_unmap(void *argument, void *address, size_t size)
{
    (void)argument;
    (void)size;
    hak_free(address);
}

/* Pages of 64 KiB are purged where they lie whole inside. */
static void own_purge(void *argument, void *address, size_t size)
{
    (void)argument;
    size_t page = hak__os_page_size();
    uintptr_t start = bits_align_up((uintptr_t)address, page);
    uintptr_t end = bits_align_down((uintptr_t)address + size, page);
    if (end > start) {
        (void)hak__os_purge((void *)start, end - start); /* it is only a favour to the OS */
    }
}

static const struct hak_heap_pages zone_own_pages = {own_map, own_unmap, own_purge, NULL};

/* --- operations --- */

void hak__zone_check_alive(const struct hak_heap *zone)
{
    if (HAK_UNLIKELY(zone->id == ZONE_DEAD)) {
        hak__diagnose_fatal(zone_dead, zone, 0, 0);
    }
}

/* Takes in the objects that were freed when no lock could be taken. Under the zone's lock. */
static void zone_settle(struct hak_heap *zone)
{
    /* acquire: pairs with the release in zone_free_late */
    struct object *object = atomic_exchange_acquire(&zone->shared_late, NULL);
    while (object != NULL) {
        struct object *next = object->next;
        if (HAK_UNLIKELY(!zone_object_is_marked(object, hak__window.mark))) {
            hak__object_is_wrong(object);
        }
        hak__zone_return(zone, object);
        object = next;
    }
}

bool hak__zone_enter(struct hak_heap *zone)
{
    hak__zone_check_alive(zone);
    if (!hak__gate_enter_patiently()) {
        (void)hak__gate_was_refused(); /* the callers say so by their results */
        return false;
    }
    lock_acquire(&zone->lock);
    if (HAK_UNLIKELY(atomic_load_relaxed(&zone->shared_late) != NULL)) {
        zone_settle(zone);
    }
    return true;
}

/* Gives chunks to their provider. No lock held. */
static void zone_unmap(const struct hak_heap *zone, struct zone_chunk *chunk)
{
    while (chunk != NULL) {
        zone_check_chunk(zone, chunk);
        struct zone_chunk *next = chunk->next;
        size_t size = chunk->size;
        chunk->cookie = 0;
        chunk->zone = NULL;
        bool opened = !zone_closes_pages(zone) ||
                      hak__os_open_pages((char *)chunk + ZONE_PAGE_SIZE, ZONE_PAGE_SIZE);
        if (zone->pages.unmap != NULL && opened) { /* else it is lost */
            zone->pages.unmap(zone->pages.argument, chunk, size);
        }
        chunk = next;
    }
}

/* Operations from one full check to the next, at assertion level 2. Half: twice the checks. */
#define CHECK_OPERATIONS 64u

void hak__zone_leave(struct hak_heap *zone)
{
    if (HAK_LEVEL >= 2 && ++zone->operations % CHECK_OPERATIONS == 0) {
        hak__zone_check(zone);
    }
    struct zone_chunk *released = zone->released;
    zone->released = NULL;
    lock_release(&zone->lock);
    hak__gate_leave();
    if (HAK_UNLIKELY(released != NULL)) {
        zone_unmap(zone, released);
    }
}

bool hak__zone_event(struct hak_heap *zone, enum hak_heap_event event, size_t size,
                     const void *pointer)
{
    return zone->event != NULL &&
           zone->event(zone, event, size, (void *)(uintptr_t)pointer, zone->event_argument);
}

void hak__zone_bad_pointer(struct hak_heap *zone, const void *pointer, const char *what)
{
    if (!hak__zone_event(zone, HAK_HEAP_BAD_POINTER, 0, pointer)) {
        hak__diagnose_fatal(what, pointer, 0, 0);
    }
}

void hak__zone_no_object(struct hak_heap *zone, const void *pointer)
{
    hak__zone_bad_pointer(zone, pointer, "invalid pointer (no object of this heap starts here)");
}

/* --- creation --- */

static bool options_are_good(const struct hak_heap_options *options)
{
    if (options->size != sizeof *options) {
        return false;
    }
    if (options->memory != NULL) {
        return options->memory_size >= HAK_HEAP_MEMORY_MIN &&
               options->memory_size <= HAK_HEAP_MEMORY_MAX &&
               (uintptr_t)options->memory <= UINTPTR_MAX - options->memory_size &&
               options->pages == NULL && options->limit == 0;
    }
    return options->memory_size == 0 && (options->pages == NULL || options->pages->map != NULL);
}

/* A struct for a zone; its id is that of no other. NULL: no memory. */
static struct hak_heap *zone_take(void)
{
    if (!hak__gate_enter_patiently()) {
        (void)hak__gate_was_refused();
        return NULL;
    }
    struct hak_heap *zone = NULL;
    uint64_t id = 0;
    if (hak__start()) {
        lock_acquire(&hak__zones_lock);
        zone = zones_free;
        zones_free = zone != NULL ? zone->next_free : NULL;
        id = ++zone_last_id;
        lock_release(&hak__zones_lock);
        zone = zone != NULL ? zone : hak__metadata_allocate(sizeof *zone);
    }
    hak__gate_leave();
    if (zone != NULL) {
        memset(zone, 0, sizeof *zone);
        zone->id = id;
        zone->slot_offset = id % ZONE_SLOTS * sizeof(struct zone_slot);
        zone->table_offset = zone_table_offset(id);
    }
    return zone;
}

/* Memory that is scarce is not kept in bins and slabs of many objects. `bound`: the most that the
 * zone may have. */
static void zone_set_sizes(struct hak_heap *zone, size_t bound)
{
    size_t bin = bound / ZONE_BIN_PART,
           slab = bits_align_down(bound / ZONE_SLAB_PART, ZONE_PAGE_SIZE);
    zone->bin_bytes = bin < ZONE_BIN_BYTES ? (uint32_t)bin : ZONE_BIN_BYTES;
    zone->slab_bytes = slab < ZONE_SLAB_BYTES ? (uint32_t)slab : ZONE_SLAB_BYTES;
    zone->slab_bytes = zone->slab_bytes == 0 ? ZONE_PAGE_SIZE : zone->slab_bytes;
}

/* Makes the program's memory the only chunk: whole pages of it. */
static void zone_settle_in(struct hak_heap *zone, void *memory, size_t size)
{
    uintptr_t start = bits_align_up((uintptr_t)memory, ZONE_PAGE_SIZE);
    uintptr_t end = bits_align_down((uintptr_t)memory + size, ZONE_PAGE_SIZE);
    zone->fixed = true;
    zone->mask = 0;
    zone->base = start;
    zone->mapped = zone->mapped_peak = end - start;
    zone->tables_size = ((zone->mapped >> ZONE_PAGE_SHIFT) + 1) * sizeof(struct zone_page);
    zone->head_pages = zone_pages_for(zone->tables_size);
    hak__zone_chunk_init(zone, (void *)start, end - start);
    hak__zone_chunk_add(zone, (struct zone_chunk *)start, false);
}

static void zone_set_name(struct hak_heap *zone, const char *name)
{
    for (size_t i = 0; name != NULL && name[i] != '\0' && i < HAK_HEAP_NAME_MAX; i++) {
        zone->name[i] = name[i];
    }
}

hak_heap *hak_heap_create(const struct hak_heap_options *options)
{
    static const struct hak_heap_options defaults = {.size = sizeof defaults};
    options = options == NULL ? &defaults : options;
    if (!options_are_good(options)) {
        errno = EINVAL;
        return NULL;
    }
    struct hak_heap *zone = zone_take();
    if (zone == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    zone->lock.rank = LOCK_RANK_ZONE;
    zone->mask = ~(ZONE_CHUNK_SIZE - 1);
    zone->own_pages = options->pages == NULL && options->memory == NULL;
    zone->tables_size = ZONE_PAGE_SIZE;
    zone->head_pages = zone_closes_pages(zone) ? 2 : 1;
    zone->pages = options->pages != NULL ? *options->pages : zone_own_pages;
    zone->event = options->event;
    zone->event_argument = options->event_argument;
    zone->limit = options->limit != 0 ? options->limit : SIZE_MAX;
    zone_set_name(zone, options->name);
    zone_set_sizes(zone, options->memory != NULL ? options->memory_size : zone->limit);
    if (options->memory != NULL) {
        zone->pages = (struct hak_heap_pages){NULL, NULL, NULL, NULL};
        zone_settle_in(zone, options->memory, options->memory_size);
    }
    return zone;
}

/* --- destruction --- */

void hak_heap_destroy(hak_heap *zone)
{
    if (zone == NULL) {
        return;
    }
    hak__zone_check_alive(zone);
    int saved = errno;
    if (HAK_SECURE && !zone->fixed) { /* as below */
        (void)hak_heap_walk(zone, NULL, NULL);
    }
    if (!hak__gate_enter_patiently()) { /* a signal handler that interrupted an operation */
        (void)hak__gate_was_refused();
        return;
    }
    if (HAK_LEVEL >= 2 && !zone->fixed) { /* the program may have done anything to its memory */
        lock_acquire(&zone->lock);
        hak__zone_check(zone);
        lock_release(&zone->lock);
    }
    lock_acquire(&hak__zones_lock);
    hak__zone_cache_drop_all(zone);
    zone->id = ZONE_DEAD;
    lock_release(&hak__zones_lock);
    hak__gate_leave();
    if (!zone->fixed) {
        zone_unmap(zone, zone->released);
        zone_unmap(zone, zone->chunks);
    }
    if (hak__gate_enter_patiently()) { /* refused: the struct is lost */
        lock_acquire(&hak__zones_lock);
        zone->next_free = zones_free;
        zones_free = zone;
        lock_release(&hak__zones_lock);
        hak__gate_leave();
    }
    errno = saved;
}
