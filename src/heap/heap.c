/* SPDX-License-Identifier: MIT */
/* heap.c: how a heap is created and destroyed, and how an operation on it begins and ends. */
#include "heap/heap.h"

#include "arena/arena.h"
#include "core/diagnose.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

struct lock HAK_LOCK_LINE hak__heaps_lock = LOCK_INITIAL(LOCK_RANK_HEAPS);
static struct heap_spare *spare_heaps;
static uint64_t heap_last_id;     /* under HEAPS */
static size_t heap_structs_count; /* under HEAPS */

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

/* --- structs and tables that are used again --- */

void *hak__heap_spare_take(struct heap_spare **list, size_t size)
{
    void *memory = NULL;
    if (size > HEAP_SPARE_MAX) {
        return hak__os_map(size, hak__os_page_size(), &memory) == 0 ? memory : NULL;
    }
    lock_acquire(&hak__heaps_lock);
    struct heap_spare *spare = *list;
    *list = spare != NULL ? spare->next : NULL;
    lock_release(&hak__heaps_lock);
    return spare != NULL ? spare : hak__metadata_allocate(size);
}

void hak__heap_spare_give(struct heap_spare **list, void *memory, size_t size)
{
    if (size > HEAP_SPARE_MAX) {
        hak__os_discard(memory, size);
        return;
    }
    struct heap_spare *spare = memory;
    lock_acquire(&hak__heaps_lock);
    spare->next = *list;
    *list = spare;
    lock_release(&hak__heaps_lock);
}

/* --- operations --- */

void hak__heap_check_alive(const struct hak_heap *heap)
{
    if (HAK_UNLIKELY(heap->id == HEAP_DEAD)) {
        hak__diagnose_fatal("use of a destroyed heap", heap, 0, 0);
    }
}

bool hak__heap_gate(void)
{
    if (hak__gate_enter(GATE_PATIENTLY)) {
        return true;
    }
    hak__own.refused = false; /* the callers say so by their results */
    return false;
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
    if (!hak__heap_gate()) {
        return false;
    }
    lock_acquire(&heap->lock);
    if (HAK_UNLIKELY(atomic_load_relaxed(&heap->shared_late) != NULL)) {
        heap_settle(heap);
    }
    return true;
}

void hak__heap_leave(struct hak_heap *heap)
{
    /* Operations from one full check to the next, at assertion level 2. Half: twice the checks. */
    if (HAK_LEVEL >= 2 && ++heap->operations % 64 == 0) {
        hak__heap_check(heap);
    }
    struct heap_chunk *released = heap->released;
    heap->released = NULL;
    lock_release(&heap->lock);
    hak__gate_leave();
    hak__heap_chunks_unmap(heap, released);
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
    if (!hak__heap_gate()) {
        return NULL;
    }
    struct hak_heap *heap = hak__start() ? hak__heap_spare_take(&spare_heaps, sizeof *heap) : NULL;
    if (heap != NULL) {
        lock_acquire(&hak__heaps_lock);
        size_t slot_offset =
            heap->id != 0 ? heap->slot_offset : heap_structs_count++ * sizeof(struct heap_slot);
        uint64_t id = ++heap_last_id;
        lock_release(&hak__heaps_lock);
        memset(heap, 0, sizeof *heap);
        heap->id = id;
        heap->slot_offset = slot_offset;
    }
    hak__gate_leave();
    return heap;
}

/* Memory that is scarce is not kept in bins and slabs of many objects. `bound`: the most that the
 * heap may have. */
static void heap_set_sizes(struct hak_heap *heap, size_t bound)
{
    /* In a heap with a bound, a bin may have a 512th of it, and a slab a 64th. Twice the parts:
     * less is out of use, but the lock is taken more often. */
    size_t bin = bound / 512, slab = bits_align_down(bound / 64, HEAP_PAGE_SIZE);
    /* The most bytes of a bin, an eighth for objects that share cache lines. Twice: threads may
     * keep twice as much; half: they take the heap's lock twice as often. */
    const uint32_t most = HAK_TINY_LIMITS ? 4096 : 262144;
    heap->bin_bytes = bin < most ? (uint32_t)bin : most;
    heap->slab_bytes = slab < HEAP_SLAB_BYTES ? (uint32_t)slab : HEAP_SLAB_BYTES;
    heap->slab_bytes = heap->slab_bytes == 0 ? HEAP_PAGE_SIZE : heap->slab_bytes;
}

static void heap_set_name(struct hak_heap *heap, const char *name)
{
    for (size_t i = 0; name != NULL && name[i] != '\0' && i < HAK_HEAP_NAME_MAX; i++) {
        heap->name[i] = name[i];
    }
}

static void heap_set_near(struct hak_heap *heap, struct heap_chunk *chunk)
{
    for (size_t i = 0; i < HAK_COUNT_OF(heap->shared_near); i++) {
        heap->shared_near[i] = chunk;
    }
}

/* Makes the program's memory the only chunk: whole pages of it. False: no memory for its struct. */
static bool heap_settle_in(struct hak_heap *heap, void *memory, size_t size)
{
    uintptr_t start = bits_align_up((uintptr_t)memory, HEAP_PAGE_SIZE);
    uintptr_t end = bits_align_down((uintptr_t)memory + size, HEAP_PAGE_SIZE);
    heap->fixed = true;
    struct heap_chunk *chunk = hak__heap_chunk_make(heap, (void *)start, end - start);
    if (chunk == NULL) {
        return false;
    }
    heap->mapped = heap->mapped_peak = chunk->size + heap_chunk_bytes(chunk->shared_pages);
    heap_set_near(heap, chunk);
    hak__heap_chunk_add(heap, chunk, 0);
    return true;
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
    heap->own_pages = options->pages == NULL && options->memory == NULL;
    if (options->memory == NULL) {
        heap->pages = heap->own_pages ? heap_own_pages : *options->pages;
    }
    heap->event = options->event;
    heap->event_argument = options->event_argument;
    heap->limit = options->limit != 0 ? options->limit : SIZE_MAX;
    heap_set_name(heap, options->name);
    heap_set_sizes(heap, options->memory != NULL ? options->memory_size : heap->limit);
    heap_set_near(heap, &hak__heap_no_chunk);
    if (options->memory != NULL && !heap_settle_in(heap, options->memory, options->memory_size)) {
        hak_heap_destroy(heap);
        errno = ENOMEM;
        return NULL;
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
    if (!hak__heap_gate()) { /* a signal handler that interrupted an operation */
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
    hak__heap_chunks_unmap(heap, heap->released);
    for (uint32_t kind = 0; kind < HEAP_RUN_KINDS; kind++) {
        hak__heap_chunks_unmap(heap, heap->chunks[kind]);
    }
    if (hak__heap_gate()) { /* refused: the struct is lost */
        hak__heap_spare_give(&spare_heaps, heap, sizeof *heap);
        hak__gate_leave();
    }
    errno = saved;
}
