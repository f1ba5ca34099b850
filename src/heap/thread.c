/* thread.c: which heap this thread works on: birth, end, and borrowing after the end. See heap.h.
 */
#include "heap/heap.h"
#include "os/os.h"

struct heap hak__heap_none = {.cache = {.key = CACHE_KEY_NONE}};
struct heap hak__heap_ended = {.cache = {.key = CACHE_KEY_NONE}};
HAK_TLS struct heap *hak__thread_heap = &hak__heap_none;

/* The first slow operation of a thread. NULL: no memory, or the thread must borrow. */
static HAK_COLD struct heap *thread_birth(void)
{
    if (!hak__start() || !hak__start_has_key()) {
        return NULL;
    }
    struct heap *heap = hak__heap_adopt();
    if (heap == NULL) {
        return NULL;
    }
    /* Before the C library is told: setting a late key allocates, and finds this heap then. */
    hak__thread_heap = heap;
    if (!hak__start_watch_thread(heap)) {
        hak__thread_end(heap); /* nobody would park it at the thread's end: borrow from now on */
        return NULL;
    }
    return heap;
}

struct heap *hak__heap_current(void)
{
    struct heap *heap = hak__thread_heap;
    if (HAK_LIKELY(heap != &hak__heap_none && heap != &hak__heap_ended)) {
        return heap;
    }
    return heap == &hak__heap_none ? thread_birth() : NULL;
}

struct heap *hak__heap_enter(void)
{
    struct heap *heap = hak__heap_current();
    if (HAK_UNLIKELY(heap == NULL)) {
        if (!hak__start() || (heap = hak__heap_adopt()) == NULL) {
            return NULL;
        }
    }
    lock_acquire(&heap->lock);
    return heap;
}

void hak__heap_count_operation(struct heap *heap)
{
    if (HAK_UNLIKELY(++heap->cache.tick % TICK_OPERATIONS == 0)) {
        /* A thread that does other things frees less remotely: what it has gathered is not to keep
         * others' slabs from getting empty. */
        hak__remote_flush(&heap->cache);
        hak__heap_tick(heap);
    }
    if (HAK_UNLIKELY(heap->cache.lagging != NULL)) {
        hak__heap_help(heap);
    }
}

void hak__heap_count_batch(struct heap *heap)
{
    if (HAK_UNLIKELY(++heap->batches % TICK_OPERATIONS == 0)) {
        hak__heap_tick(heap);
    }
    if (HAK_UNLIKELY(heap->cache.lagging != NULL)) {
        hak__heap_help(heap);
    }
}

void hak__heap_leave(struct heap *heap)
{
    lock_release(&heap->lock);
    if (HAK_UNLIKELY(heap != hak__thread_heap)) {
        hak__heap_park(heap); /* it was borrowed */
        return;
    }
    hak__heap_count_operation(heap);
}

void hak__thread_end(void *argument)
{
    struct heap *heap = argument;
    /* Destructors that run after this one, and the C library's own clean-up, still allocate and
     * free: they borrow. */
    hak__thread_heap = &hak__heap_ended;
    hak__heap_park(heap);
}
