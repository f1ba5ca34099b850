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

/* Level 2: is the head of a bin, and what it links to, where an object can be? front/free_slow.c */
HAK_HIDDEN HAK_NOINLINE void hak__malloc_check(const struct thread *thread,
                                               const struct object *object, uint32_t class_index);

/* The next object of the class's bin for `size` bytes; NULL: the bin is empty, or the countdown to
 * the next look at the clock has run out (heap/beat.c). */
HAK_INLINE void *malloc_pop(size_t class_index, size_t size)
{
    struct cache *cache = &hak__thread->cache;
    struct bin *bin = &cache->bins[class_index];
    struct object *object = bin->head;
    if (HAK_UNLIKELY(object == NULL)) {
        return NULL;
    }
    cache->countdown -= (int32_t)size;
    if (HAK_UNLIKELY(cache->countdown < 0)) {
        return NULL;
    }
    if (HAK_LEVEL >= 2) {
        hak__malloc_check(hak__thread, object, (uint32_t)class_index);
    }
    return bin_pop(bin);
}

/* An object for `size` bytes. `slow` takes every size and situation. */
HAK_INLINE void *malloc_fast(size_t size, malloc_door *slow)
{
    size_t class_index; /* not 32 bits: an instruction less */
    if (HAK_LIKELY(size <= TINY_SIZE_MAX)) {
        class_index = size_class_of_tiny(size); /* 0 for size 0: its bin is empty */
    } else if (HAK_LIKELY(size <= MID_SIZE_MAX)) {
        class_index = size_class_of_mid(size);
    } else {
        return slow(size);
    }
    void *object = malloc_pop(class_index, size);
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
