/* SPDX-License-Identifier: MIT */
/* heap.c: how a heap is created and destroyed, and how an operation on it begins and ends. */
#include "heap/heap.h"

#include "arena/arena.h"
#include "base/bits.h"
#include "core/diagnose.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

static struct hak_heap *heaps_free; /* under HEAPS */
static uint64_t heap_last_id;       /* under HEAPS */
static const char heap_dead[] = "use of a destroyed heap";

/* --- the default provider: hakmem's own functions, as any program calls them --- */

static void *own_map(void *argument, size_t alignment, size_t size)
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

static const struct hak_heap_pages heap_own_pages = {own_map, own_unmap, own_purge, NULL};

/* --- operations --- */

void hak__heap_check_alive(const struct hak_heap *heap)
{
    if (HAK_UNLIKELY(heap->id == HEAP_DEAD)) {
        hak__diagnose_fatal(heap_dead, heap, 0, 0);
    }
}

/* Takes in the objects that were freed when no lock could be taken. Under the heap's lock. */
static void heap_settle(struct hak_heap *heap)
{
    /* acquire: pairs with the release in heap_free_late */
    struct object *object = atomic_exchange_acquire(&heap->shared_late, NULL);
    while (object != NULL) {
        struct object *next = object->next;
        if (HAK_UNLIKELY(!heap_object_is_marked(object, hak__window.mark))) {
            hak__object_is_wrong(object);
        }
        hak__heap_return(heap, object);
        object = next;
    }
}

bool hak__heap_enter(struct hak_heap *heap)
{
    hak__heap_check_alive(heap);
    if (!hak__gate_enter_patiently()) {
        (void)hak__gate_was_refused(); /* the callers say so by their results */
        return false;
    }
    lock_acquire(&heap->lock);
    if (HAK_UNLIKELY(atomic_load_relaxed(&heap->shared_late) != NULL)) {
        heap_settle(heap);
    }
    return true;
}

/* Gives chunks to their provider. No lock held. */
static void heap_unmap(const struct hak_heap *heap, struct heap_chunk *chunk)
{
    while (chunk != NULL) {
        heap_check_chunk(heap, chunk);
        struct heap_chunk *next = chunk->next;
        size_t size = chunk->size;
        chunk->cookie = 0;
        chunk->heap = NULL;
        bool opened = !heap_closes_pages(heap) ||
                      hak__os_open_pages((char *)chunk + HEAP_PAGE_SIZE, HEAP_PAGE_SIZE);
        if (heap->pages.unmap != NULL && opened) { /* else it is lost */
            heap->pages.unmap(heap->pages.argument, chunk, size);
        }
        chunk = next;
    }
}

/* Operations from one full check to the next, at assertion level 2. Half: twice the checks. */
#define CHECK_OPERATIONS 64u

void hak__heap_leave(struct hak_heap *heap)
{
    if (HAK_LEVEL >= 2 && ++heap->operations % CHECK_OPERATIONS == 0) {
        hak__heap_check(heap);
    }
    struct heap_chunk *released = heap->released;
    heap->released = NULL;
    lock_release(&heap->lock);
    hak__gate_leave();
    if (HAK_UNLIKELY(released != NULL)) {
        heap_unmap(heap, released);
    }
}

bool hak__heap_event(struct hak_heap *heap, enum hak_heap_event event, size_t size,
                     const void *pointer)
{
    return heap->event != NULL &&
           heap->event(heap, event, size, (void *)(uintptr_t)pointer, heap->event_argument);
}

void hak__heap_bad_pointer(struct hak_heap *heap, const void *pointer, const char *what)
{
    if (!hak__heap_event(heap, HAK_HEAP_BAD_POINTER, 0, pointer)) {
        hak__diagnose_fatal(what, pointer, 0, 0);
    }
}

void hak__heap_no_object(struct hak_heap *heap, const void *pointer)
{
    hak__heap_bad_pointer(heap, pointer, "invalid pointer (no object of this heap starts here)");
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

/* A struct for a heap; its id is that of no other. NULL: no memory. */
static struct hak_heap *heap_take(void)
{
    if (!hak__gate_enter_patiently()) {
        (void)hak__gate_was_refused();
        return NULL;
    }
    struct hak_heap *heap = NULL;
    uint64_t id = 0;
    if (hak__start()) {
        lock_acquire(&hak__heaps_lock);
        heap = heaps_free;
        heaps_free = heap != NULL ? heap->next_free : NULL;
        id = ++heap_last_id;
        lock_release(&hak__heaps_lock);
        heap = heap != NULL ? heap : hak__metadata_allocate(sizeof *heap);
    }
    hak__gate_leave();
    if (heap != NULL) {
        memset(heap, 0, sizeof *heap);
        heap->id = id;
        heap->slot_offset = id % HEAP_SLOTS * sizeof(struct heap_slot);
        heap->table_offset = heap_table_offset(id);
    }
    return heap;
}

/* Memory that is scarce is not kept in bins and slabs of many objects. `bound`: the most that the
 * heap may have. */
static void heap_set_sizes(struct hak_heap *heap, size_t bound)
{
    size_t bin = bound / HEAP_BIN_PART,
           slab = bits_align_down(bound / HEAP_SLAB_PART, HEAP_PAGE_SIZE);
    heap->bin_bytes = bin < HEAP_BIN_BYTES ? (uint32_t)bin : HEAP_BIN_BYTES;
    heap->slab_bytes = slab < HEAP_SLAB_BYTES ? (uint32_t)slab : HEAP_SLAB_BYTES;
    heap->slab_bytes = heap->slab_bytes == 0 ? HEAP_PAGE_SIZE : heap->slab_bytes;
}

/* Makes the program's memory the only chunk: whole pages of it. */
static void heap_settle_in(struct hak_heap *heap, void *memory, size_t size)
{
    uintptr_t start = bits_align_up((uintptr_t)memory, HEAP_PAGE_SIZE);
    uintptr_t end = bits_align_down((uintptr_t)memory + size, HEAP_PAGE_SIZE);
    heap->fixed = true;
    heap->mask = 0;
    heap->base = start;
    heap->mapped = heap->mapped_peak = end - start;
    heap->tables_size = ((heap->mapped >> HEAP_PAGE_SHIFT) + 1) * sizeof(struct heap_page);
    heap->head_pages = heap_pages_for(heap->tables_size);
    hak__heap_chunk_init(heap, (void *)start, end - start);
    hak__heap_chunk_add(heap, (struct heap_chunk *)start, false);
}

static void heap_set_name(struct hak_heap *heap, const char *name)
{
    for (size_t i = 0; name != NULL && name[i] != '\0' && i < HAK_HEAP_NAME_MAX; i++) {
        heap->name[i] = name[i];
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
    struct hak_heap *heap = heap_take();
    if (heap == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    heap->lock.rank = LOCK_RANK_HEAP;
    heap->mask = ~(HEAP_CHUNK_SIZE - 1);
    heap->own_pages = options->pages == NULL && options->memory == NULL;
    heap->tables_size = HEAP_PAGE_SIZE;
    heap->head_pages = heap_closes_pages(heap) ? 2 : 1;
    heap->pages = options->pages != NULL ? *options->pages : heap_own_pages;
    heap->event = options->event;
    heap->event_argument = options->event_argument;
    heap->limit = options->limit != 0 ? options->limit : SIZE_MAX;
    heap_set_name(heap, options->name);
    heap_set_sizes(heap, options->memory != NULL ? options->memory_size : heap->limit);
    if (options->memory != NULL) {
        heap->pages = (struct hak_heap_pages){NULL, NULL, NULL, NULL};
        heap_settle_in(heap, options->memory, options->memory_size);
    }
    return heap;
}

/* --- destruction --- */

void hak_heap_destroy(hak_heap *heap)
{
    if (heap == NULL) {
        return;
    }
    hak__heap_check_alive(heap);
    int saved = errno;
    if (HAK_SECURE && !heap->fixed) { /* as below */
        (void)hak_heap_walk(heap, NULL, NULL);
    }
    if (!hak__gate_enter_patiently()) { /* a signal handler that interrupted an operation */
        (void)hak__gate_was_refused();
        return;
    }
    if (HAK_LEVEL >= 2 && !heap->fixed) { /* the program may have done anything to its memory */
        lock_acquire(&heap->lock);
        hak__heap_check(heap);
        lock_release(&heap->lock);
    }
    lock_acquire(&hak__heaps_lock);
    hak__heap_cache_drop_all(heap);
    heap->id = HEAP_DEAD;
    lock_release(&hak__heaps_lock);
    hak__gate_leave();
    if (!heap->fixed) {
        heap_unmap(heap, heap->released);
        heap_unmap(heap, heap->chunks);
    }
    if (hak__gate_enter_patiently()) { /* refused: the struct is lost */
        lock_acquire(&hak__heaps_lock);
        heap->next_free = heaps_free;
        heaps_free = heap;
        lock_release(&hak__heaps_lock);
        hak__gate_leave();
    }
    errno = saved;
}
