/* fast.h: the two fast paths. One screen; nothing may be added here: a feature hangs on the slow
 * door.
 *
 *   hak_malloc(size)                  hak_free(pointer)
 *     class of size                     slice of pointer: inside the window?  --no--> free_slow
 *     pop this thread's bin             owner word ^ its heap's key: class?   --no--> free_other
 *       --empty--> malloc_slow          push on this thread's bin  --full--> free_overflow
 *
 * No start test: before a thread's first slow operation its struct is hak__thread_none, whose bins
 * are empty and whose key matches nothing. No NULL test: NULL is outside the window. The slow exits
 * are tail calls.
 */
#ifndef HAK_FRONT_FAST_H
#define HAK_FRONT_FAST_H

#include "heap/heap.h"

typedef void *malloc_door(size_t size);

/* The bin that lies `offset` bytes behind the thread's first. The offset is added to the thread and
 * not to the bins: compilers then need one register for the bin. */
HAK_INLINE struct bin *thread_bin_at(struct thread *thread, size_t offset)
{
    return &((struct thread *)(void *)((char *)thread + offset))->cache.bins[0];
}

/* Level 2: is the head of a bin, and what it links to, where an object can be? front/free_slow.c */
HAK_HIDDEN HAK_NOINLINE void hak__malloc_check(const struct thread *thread,
                                               const struct object *object, uint32_t class_index);

/* The next object of the bin at `offset`, for `size` bytes; NULL: the bin is empty, or the
 * countdown to the next look at the clock has run out (heap/heartbeat.c). */
HAK_INLINE void *malloc_pop(size_t offset, size_t size)
{
    struct thread *thread = hak__thread;
    struct bin *bin = thread_bin_at(thread, offset);
    struct object *object = bin->head;
    if (HAK_UNLIKELY(object == NULL)) {
        return NULL;
    }
    thread->cache.countdown -= (int32_t)size;
    if (HAK_UNLIKELY(thread->cache.countdown < 0)) {
        return NULL;
    }
    if (HAK_LEVEL >= 2) {
        hak__malloc_check(thread, object, (uint32_t)(bin - thread->cache.bins));
    }
    return bin_pop(bin);
}

/* An object for `size` bytes. `slow` takes every size and situation. */
HAK_INLINE void *malloc_fast(size_t size, malloc_door *slow)
{
    size_t offset;
    if (HAK_LIKELY(size <= TINY_SIZE_MAX)) {
        offset = size_class_round_tiny(size); /* 0 for size 0: its bin is empty */
    } else if (HAK_LIKELY(size <= MID_SIZE_MAX)) {
        offset = bin_offset(size_class_of_mid(size));
    } else {
        return slow(size);
    }
    void *object = malloc_pop(offset, size);
    return HAK_LIKELY(object != NULL) ? object : slow(size);
}

/* front/malloc_slow.c */
HAK_HIDDEN HAK_NOINLINE void *hak__malloc_slow(size_t size);
/* front/free_slow.c: any pointer; and one inside the window, whose slice's owner word is `word` ^
 * the key of `thread` (this one) and not its heap's. */
HAK_HIDDEN HAK_NOINLINE void hak__free_slow(void *pointer);
HAK_HIDDEN HAK_NOINLINE void hak__free_other(void *pointer, size_t slice, struct thread *thread,
                                             uint32_t word);
HAK_HIDDEN HAK_NOINLINE void hak__free_overflow(struct thread *thread, uint32_t class_index);
/* Level 1 and above: is `pointer`, about to be pushed on this thread's bin of the class, an object
 * and not yet free? */
HAK_HIDDEN HAK_NOINLINE void hak__free_check(struct thread *thread, const void *pointer,
                                             uint32_t class_index);

HAK_INLINE void free_fast(void *pointer)
{
    size_t slice = window_slice_of(pointer);
    struct thread *thread = hak__thread;
    if (HAK_UNLIKELY(slice >= window_limit_seen())) {
        hak__free_slow(pointer);
        return;
    }
    uint32_t class_index = window_owner(slice) ^ thread->cache.key;
    if (HAK_UNLIKELY(class_index >= CLASS_COUNT)) {
        hak__free_other(pointer, slice, thread, class_index);
        return;
    }
    if (HAK_LEVEL >= 1) {
        hak__free_check(thread, pointer, class_index);
    }
    struct bin *bin = &thread->cache.bins[class_index];
    struct object *object = (struct object *)pointer;
    object->next = bin->head;
    bin->head = object;
    if (HAK_UNLIKELY(--bin->room < 0)) {
        hak__free_overflow(thread, class_index);
    }
}

#endif
