/* heap.c: all heaps, and the parked ones. See heap.h. */
#include "heap/heap.h"

#include "base/bits.h"
#include "os/os.h"
#include "region/superslab.h"

/* Heaps are mapped several at a time; what is not touched costs nothing. */
#define HEAP_CHUNK_SIZE ((size_t)256 << 10)

struct lock hak__heaps_lock = LOCK_INITIAL(LOCK_RANK_HEAPS);
static struct heap *shared_heap_first; /* pushed under HEAPS, read by anyone */
static struct heap *heap_parked;       /* stack, under HEAPS */
static uint32_t heap_next_id = 1;      /* under HEAPS; id 0 is nobody */
static unsigned char *heap_chunk;      /* the rest of the last chunk, under HEAPS */
static size_t heap_chunk_left;
static size_t heap_metadata_bytes;

struct heap *hak__heap_first(void)
{
    /* acquire: pairs with the release in heap_make */
    return atomic_load_acquire(&shared_heap_first);
}

size_t hak__heap_metadata_bytes(void)
{
    return atomic_load_relaxed(&heap_metadata_bytes);
}

/* Zeroed memory for one heap, or NULL. No lock held: maps. */
static struct heap *heap_memory(void)
{
    size_t size = bits_align_up(sizeof(struct heap), HAK_CACHE_LINE);
    for (;;) {
        struct heap *heap = NULL;
        lock_acquire(&hak__heaps_lock);
        if (heap_chunk_left >= size) {
            heap = (struct heap *)(void *)heap_chunk;
            heap_chunk += size;
            heap_chunk_left -= size;
        }
        lock_release(&hak__heaps_lock);
        if (heap != NULL) {
            return heap;
        }
        void *chunk;
        if (hak__os_map(HEAP_CHUNK_SIZE, hak__os_page_size(), &chunk) != 0) {
            return NULL;
        }
        lock_acquire(&hak__heaps_lock);
        bool wanted = heap_chunk_left < size; /* else another thread was faster */
        if (wanted) {
            heap_chunk = chunk;
            heap_chunk_left = HEAP_CHUNK_SIZE;
            atomic_store_relaxed(&heap_metadata_bytes, heap_metadata_bytes + HEAP_CHUNK_SIZE);
        }
        lock_release(&hak__heaps_lock);
        if (!wanted) {
            hak__os_unmap(chunk, HEAP_CHUNK_SIZE);
        }
    }
}

/* Under the heap's lock. */
static void heap_set_parked(struct heap *heap, bool parked)
{
    uint32_t patience = parked ? NOTIFIED_PENDING_MAX_PARKED : NOTIFIED_PENDING_MAX;
    atomic_store_relaxed(&heap->cache.slabs.shared_patience, patience); /* read by freers */
    atomic_store_relaxed(&heap->parked, parked);                        /* read by reports */
}

static struct heap *heap_make(void)
{
    struct heap *heap = heap_memory();
    if (heap == NULL) {
        return NULL;
    }
    lock_acquire(&hak__heaps_lock);
    uint32_t id = heap_next_id;
    if (id <= HEAP_ID_MAX) {
        heap_next_id++;
        heap->id = id;
        /* one made by a fork handler is taken like all others, and released with them */
        heap->lock = (struct lock){lock_is_forks() ? 1 : 0, LOCK_RANK_HEAP};
        heap->trimmed_ms = hak__os_clock_ms();
        hak__cache_start(&heap->cache, id);
        heap_set_parked(heap, false);
        heap->next = shared_heap_first;
        /* release: pairs with the acquire in hak__heap_first */
        atomic_store_release(&shared_heap_first, heap);
        atomic_add_relaxed(&hak__superslabs.heaps_count, 1u);
    }
    lock_release(&hak__heaps_lock);
    return id <= HEAP_ID_MAX
               ? heap
               : NULL; /* 16 million heaps at once: the memory is lost, the process is too */
}

struct heap *hak__heap_adopt(void)
{
    lock_acquire(&hak__heaps_lock);
    struct heap *heap = heap_parked;
    if (heap != NULL) {
        heap_parked = heap->next_parked;
    }
    lock_release(&hak__heaps_lock);
    if (heap == NULL) {
        return heap_make();
    }
    lock_acquire(&heap->lock);
    heap_set_parked(heap, false);
    lock_release(&heap->lock);
    return heap;
}

static void heap_push_parked(struct heap *heap)
{
    heap->next_parked = heap_parked;
    heap_parked = heap;
}

void hak__heap_park_all_but(const struct heap *own)
{
    heap_parked = NULL; /* anew: a thread of the parent may just have taken one off */
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        if (heap == own) {
            continue;
        }
        if (!heap->parked) {
            hak__cache_abandon(&heap->cache);
            heap_set_parked(heap, true);
        }
        heap_push_parked(heap);
    }
}

void hak__heap_park(struct heap *heap)
{
    hak__remote_flush(&heap->cache);
    lock_acquire(&heap->lock);
    hak__cache_flush(&heap->cache);
    heap_set_parked(heap, true);
    lock_release(&heap->lock);
    hak__heap_collect(heap, true);
    lock_acquire(&hak__heaps_lock);
    heap_push_parked(heap);
    lock_release(&hak__heaps_lock);
}
