/* malloc_slow.c: the one door behind malloc's fast path.
 *
 *   malloc_slow -> malloc_class -> cache refill -> slab: free list | remote frees | carve | new
 *                               -> heap borrow, before the process grows: other heaps' free objects
 *               -> malloc_span: heap's cache | superslab
 *               -> malloc_large: whale (cache | mapping); aligned and cleared spans
 *   refused:    a mapping of its own (large/emergency.h)
 *   no memory:  reclaim everything that is free anywhere, once, then NULL and ENOMEM
 */
#include "control/life.h"
#include "front/fast.h"
#include "front/slow.h"
#include "large/emergency.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

/* From here on a look at what is resident (a system call) is cheap beside clearing it. */
#define CLEAR_LOOK_MIN ((size_t)256 << 10)

/* A program linked with the archive gets life.c too. */
__attribute__((used)) static const bool *const malloc_life = &hak__life_linked;

/* What the empty bin of the class is to be filled with; releases the heap's lock: carved objects
 * are touched first when they are linked. */
static struct refill malloc_refill(struct thread *thread, uint32_t class_index)
{
    struct cache *cache = &thread->cache;
    struct heap *heap = thread->heap;
    if (slab_refill_grows(&heap->slabs, class_index)) {
        lock_release(&heap->lock); /* still inside, without a lock */
        uint32_t most = hak__cache_refill_most(cache, class_index);
        struct object_list list = hak__heap_borrow(heap, class_index, most);
        if (list.count != 0) {
            gate_end();
            counter_add(&cache->counters, COUNTER_REFILL_BORROWED, 1);
            return (struct refill){list, 0};
        }
        if (!gate_finish(&heap->lock)) {
            return (struct refill){list, 0};
        }
    }
    struct refill refill = hak__cache_refill(cache, class_index);
    thread_unlock(thread);
    return refill;
}

static void *malloc_class_once(uint32_t class_index)
{
    struct thread *thread = thread_enter();
    if (HAK_UNLIKELY(thread == NULL)) {
        return NULL;
    }
    counter_add(&thread->cache.counters, COUNTER_MALLOC_SLOW, 1);
    struct bin *bin = &thread->cache.bins[class_index];
    if (bin->head != NULL) { /* size 0, or a bin just adopted */
        struct object *object = bin_pop(bin);
        hak__thread_leave(thread);
        return object;
    }
    struct refill refill = malloc_refill(thread, class_index);
    void *object = hak__cache_fill(&thread->cache, class_index, refill);
    hak__thread_left(thread);
    return object;
}

static HAK_COLD void *malloc_failed(void)
{
    struct thread *thread = hak__thread_enter();
    if (thread != NULL) {
        counter_add(&thread->cache.counters, COUNTER_ALLOCATION_FAILED, 1);
        hak__thread_leave(thread);
    }
    errno = ENOMEM;
    return NULL;
}

/* What could not be had: this thread was refused, or there is no memory. */
static HAK_COLD void *malloc_beside(size_t size, size_t alignment)
{
    void *pointer = hak__gate_was_refused() ? hak__emergency_allocate(size, alignment) : NULL;
    return pointer != NULL ? pointer : malloc_failed();
}

static HAK_COLD void *malloc_class_again(uint32_t class_index)
{
    void *object = NULL;
    if (!hak__gate_is_refusal_noted()) {
        hak__heap_reclaim(true);
        object = malloc_class_once(class_index);
    }
    size_t size = size_class_bytes(class_index);
    return object != NULL ? object : malloc_beside(size, size & (~size + 1));
}

void *hak__malloc_class(uint32_t class_index, size_t size)
{
    struct thread *thread = hak__thread;
    if (thread->cache.countdown < 0) {
        hak__thread_countdown_ended(thread, size);
        struct bin *bin = &thread->cache.bins[class_index];
        if (bin->head != NULL) { /* a tick has not emptied it */
            return bin_pop(bin);
        }
    }
    (void)hak__gate_was_refused(); /* of an earlier operation */
    void *object = malloc_class_once(class_index);
    return HAK_LIKELY(object != NULL) ? object : malloc_class_again(class_index);
}

static struct span malloc_span(size_t size, size_t alignment)
{
    struct span span = {NULL, false};
    struct thread *thread = thread_enter();
    if (HAK_LIKELY(thread != NULL)) {
        span = hak__span_allocate(&thread->heap->spans, &thread->cache.counters, size, alignment);
        thread_unlock(thread);
        hak__thread_left(thread);
    }
    return span;
}

static struct span malloc_large_once(size_t size, size_t alignment, bool want_zero)
{
    if (size <= SPAN_SIZE_MAX && alignment <= SUPERSLAB_SIZE) {
        return malloc_span(size == 0 ? 1 : size, alignment);
    }
    struct span whale = {NULL, false};
    if (hak__gate_enter()) {
        if (hak__start()) {
            struct whale_result result = hak__whale_allocate(size, alignment, want_zero);
            whale = (struct span){result.pointer, result.zeroed};
        }
        hak__gate_leave();
    }
    if (whale.pointer != NULL) {
        struct thread *thread = hak__thread_enter();
        if (thread != NULL) {
            counter_add(&thread->cache.counters, COUNTER_WHALE_ALLOCATED, 1);
            hak__thread_leave(thread);
        }
    }
    return whale;
}

static struct span malloc_long_span(size_t size)
{
    struct span span = {NULL, false};
    struct thread *thread = thread_enter();
    if (thread != NULL) {
        span = hak__span_allocate_long(&thread->cache.counters, size);
        thread_unlock(thread);
        hak__thread_left(thread);
    }
    return span;
}

static HAK_COLD struct span malloc_large_again(size_t size, size_t alignment, bool want_zero)
{
    /* nothing that is free here helps */
    if (size >= WINDOW_SIZE_MAX || hak__gate_is_refusal_noted()) {
        return (struct span){NULL, false};
    }
    struct span large = {NULL, false};
    if (size > SPAN_SIZE_MAX && alignment <= SUPERSLAB_SIZE && size <= hak__os_ram_size()) {
        large = malloc_long_span(size); /* there may be too many mappings for one more */
    }
    if (large.pointer == NULL) {
        hak__heap_reclaim(true);
        large = malloc_large_once(size, alignment, want_zero);
    }
    return large;
}

void *hak__malloc_large(size_t size, size_t alignment, bool want_zero)
{
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX)) {
        errno = ENOMEM;
        return NULL;
    }
    (void)hak__gate_was_refused();
    struct span large = malloc_large_once(size, alignment, want_zero);
    if (HAK_UNLIKELY(large.pointer == NULL)) {
        large = malloc_large_again(size, alignment, want_zero);
        if (large.pointer == NULL) {
            return malloc_beside(size == 0 ? 1 : size, alignment); /* zeroed */
        }
    }
    if (want_zero && !large.zeroed) {
        if (size < CLEAR_LOOK_MIN) {
            memset(large.pointer, 0, size);
        } else {
            hak__os_clear(large.pointer, size);
        }
    }
    return large.pointer;
}

static HAK_NOINLINE void *malloc_slow(size_t size)
{
    if (HAK_LIKELY(size <= MID_SIZE_MAX)) {
        return hak__malloc_class(size_class_of(size), size);
    }
    if (HAK_LIKELY(size <= SPAN_SIZE_MAX)) {
        (void)hak__gate_was_refused();
        void *pointer = malloc_span(size, OBJECT_ALIGNMENT).pointer;
        if (HAK_UNLIKELY(pointer == NULL)) {
            pointer = malloc_large_again(size, OBJECT_ALIGNMENT, false).pointer;
        }
        return HAK_LIKELY(pointer != NULL) ? pointer : malloc_beside(size, OBJECT_ALIGNMENT);
    }
    return hak__malloc_large(size, OBJECT_ALIGNMENT, false);
}

/* Size 0 has an empty bin, so that malloc's fast path need not ask; it is served from the next. */
void *hak__malloc_slow(size_t size)
{
    void *object = size == 0 ? malloc_pop(bin_offset(size_class_of(0)), 1) : NULL;
    return object != NULL ? object : malloc_slow(size);
}
