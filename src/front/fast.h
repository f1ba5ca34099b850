/* SPDX-License-Identifier: MIT */
/* fast.h: the fast paths of malloc and free.
 *
 *   hak_malloc(size)                  hak_free(pointer)
 *     class of size                     slice of pointer: inside the window?  --no--> free_slow
 *     pop this thread's bin             owner word ^ thread's key: class?     --no--> free_other
 *       --empty--> malloc_slow          first of this thread's bin already?   --yes-> free_slow
 *       --no mark--> malloc_slow        push on this thread's bin  --full--> free_overflow
 *
 * Each path fits on one screen. Add nothing to it: a new feature belongs behind one of the slow
 * exits. The slow exits are tail calls.
 *
 * Why there is no start test: before a thread's first slow operation its struct is
 * hak__thread_none. Its bins are empty and its key matches no owner word. Why there is no NULL
 * test: NULL lies outside the window. */
#ifndef HAK_FRONT_FAST_H
#define HAK_FRONT_FAST_H

#include "heap/heap.h"

typedef void *malloc_door(size_t size);

/* The bin that lies `offset` bytes after the thread's first bin. The offset is added to the
 * thread's address, not to the bins', so that compilers keep the bin in one register. */
HAK_INLINE struct bin *thread_bin_at(struct thread *thread, size_t offset)
{
    return &((struct thread *)(void *)((char *)thread + offset))->cache.bins[0];
}

/* For assertion level 2: checks `object`, the first one of a bin, and the one after it. Aborts if
 * one of them cannot be a free object of the class. In front/free_slow.c. */
HAK_HIDDEN HAK_NOINLINE void hak__malloc_check(const struct thread *thread,
                                               const struct object *object, uint32_t class_index);

/* Takes an object for `size` bytes from the bin at `offset`. Returns NULL if the bin is empty or
 * corrupt, or if the countdown has run out: the thread must then look at the clock
 * (heap/heartbeat.c). `state`: secure form: what the object becomes. */
HAK_INLINE void *malloc_pop(size_t offset, size_t size, enum secure_state state)
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
    uint32_t class_index = (uint32_t)(offset / sizeof(struct bin));
    object = bin_pop(&thread->cache, bin, class_index);
    return HAK_SECURE && HAK_LIKELY(object != NULL)
               ? secure_hand_out(object, class_index, size, state)
               : object;
}

/* The fast half of malloc_fast: NULL if it does not serve the request. */
HAK_INLINE void *malloc_try(size_t size, enum secure_state state)
{
    size_t offset;
    if (HAK_LIKELY(size <= TINY_REQUEST_MAX)) {
        /* offset 0 for size 0: that bin is always empty */
        offset = size_class_round_tiny(size + OBJECT_TAIL);
    } else if (HAK_LIKELY(size <= MID_REQUEST_MAX)) {
        offset = bin_offset(size_class_of_mid(size + OBJECT_TAIL));
    } else {
        return NULL;
    }
    return malloc_pop(offset, size, state);
}

/* Allocates `size` bytes. If the bin gives no object, it calls `slow`, which must serve every size,
 * also for a thread without a struct. */
HAK_INLINE void *malloc_fast(size_t size, malloc_door *slow)
{
    void *object = malloc_try(size, SECURE_MALLOC);
    return HAK_LIKELY(object != NULL) ? object : slow(size);
}

/* Allocates any `size`, off the fast path. Returns NULL with errno ENOMEM if there is no memory. In
 * front/malloc_slow.c. */
HAK_HIDDEN HAK_NOINLINE void *hak__malloc_slow(size_t size);
/* Frees any pointer: NULL does nothing, a foreign pointer is reported. Keeps errno. In
 * front/free_slow.c, as are the next three. */
HAK_HIDDEN HAK_NOINLINE void hak__free_slow(void *pointer);
/* Frees a pointer that lies inside the window, but in no slab of this thread's heap. `thread` is
 * the calling thread's struct, `slice` the pointer's slice, and `word` the slice's owner word XOR
 * the thread's key. Keeps errno. */
HAK_HIDDEN HAK_NOINLINE void hak__free_other(void *pointer, size_t slice, struct thread *thread,
                                             uint32_t word);
/* Makes room in the calling thread's bin of the class, which exceeds its limit. Keeps errno. */
HAK_HIDDEN HAK_NOINLINE void hak__free_overflow(struct thread *thread, uint32_t class_index);
/* For assertion levels 1 and 2: checks `pointer` before free pushes it on this thread's bin of the
 * class. Aborts if no object of its slab starts there. At level 2 it also aborts if the object is
 * in that bin or in the slab's free list already. */
HAK_HIDDEN HAK_NOINLINE void hak__free_check(struct thread *thread, const void *pointer,
                                             uint32_t class_index);

/* Frees any pointer, which has rested. Keeps errno. */
HAK_INLINE void free_rested(void *pointer)
{
    size_t slice = window_slice_of_object(pointer);
    struct thread *thread = hak__thread;
    if (HAK_UNLIKELY(slice >= window_limit_seen())) {
        hak__free_slow(pointer);
        return;
    }
    uint64_t code = window_owner(slice) ^ thread->cache.key;
    if (HAK_UNLIKELY(code >= OWNER_CODE_END)) {
        hak__free_other(pointer, slice, thread, (uint32_t)code);
        return;
    }
    if (HAK_LEVEL >= 1) {
        hak__free_check(thread, pointer, owner_class((uint32_t)code));
    }
    struct object *object = (struct object *)pointer;
    struct bin *bin = thread_bin_at(thread, bin_offset_of_code(code));
    if (HAK_UNLIKELY(bin->head == object)) {
        hak__free_slow(pointer); /* reports the double free */
        return;
    }
    object_set_free(object, bin->head, thread->cache.mark);
    bin->head = object;
    if (HAK_UNLIKELY(--bin->room < 0)) {
        hak__free_overflow(thread, owner_class((uint32_t)code));
    }
}

/* Secure form: takes an object of the class, of `bytes` bytes and with this state byte, back from
 * the program, lets it rest, and frees another one, whose rest is over. */
HAK_INLINE void free_object_secure(void *pointer, uint32_t class_index, size_t bytes,
                                   unsigned char byte)
{
    pointer = secure_take_back(pointer, class_index, bytes, byte);
    struct thread *thread = hak__thread;
    if (HAK_LIKELY(thread->cache.key != CACHE_KEY_NONE)) {
        pointer = cache_rest(&thread->cache, pointer, class_index);
    }
    if (pointer != NULL) {
        secure_end_rest(pointer);
        free_rested(pointer);
    }
}

/* As free_object_secure, for objects that take it longer (secure_is_short). */
HAK_HIDDEN HAK_NOINLINE void hak__free_long(void *pointer, uint32_t class_index,
                                            unsigned char byte);

/* Frees any pointer; an object of a slab must have the state. Keeps errno. The calls that a long
 * object needs are elsewhere, so this function saves fewer registers. */
HAK_INLINE void free_secure(void *pointer, enum secure_state state)
{
    size_t slice = window_slice_of(pointer);
    if (HAK_UNLIKELY(slice >= window_limit_seen())) {
        free_rested(pointer);
        return;
    }
    uint32_t class_index = owner_class(window_owner(slice));
    if (HAK_UNLIKELY(class_index - 1 >= CLASS_COUNT - 1)) {
        free_rested(pointer);
        return;
    }
    unsigned char byte = secure_check_state(pointer, class_index, state);
    size_t bytes = size_class_bytes(class_index);
    if (HAK_UNLIKELY(!secure_is_short(pointer, bytes, byte))) {
        hak__free_long(pointer, class_index, byte);
        return;
    }
    free_object_secure(pointer, class_index, bytes, byte);
}

/* Frees an object in that state, if it takes short and `size` bytes were asked for. False: nothing
 * was done. So a sized delete reads the state once, and the usual one reports nothing itself. */
HAK_INLINE bool free_sized_secure(void *pointer, enum secure_state state, size_t size)
{
    size_t slice = window_slice_of(pointer);
    if (HAK_UNLIKELY(slice >= window_limit_seen())) {
        return false;
    }
    uint32_t class_index = owner_class(window_owner(slice));
    if (HAK_UNLIKELY(class_index - 1 >= CLASS_COUNT - 1)) {
        return false;
    }
    unsigned char byte = atomic_load_relaxed(secure_state_at(pointer));
    size_t bytes = size_class_bytes(class_index);
    size_t slack = (size_t)(byte >> SECURE_STATE_BITS) + OBJECT_TAIL;
    if (HAK_UNLIKELY((uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ||
                     (byte & SECURE_STATE_MASK) != state || bytes - slack != size ||
                     !secure_is_short(pointer, bytes, byte))) {
        return false;
    }
    free_object_secure(pointer, class_index, bytes, byte);
    return true;
}

/* Frees any pointer that came from malloc or its relatives. Keeps errno. */
HAK_INLINE void free_fast(void *pointer)
{
    if (HAK_SECURE) {
        free_secure(pointer, SECURE_MALLOC);
    } else {
        free_rested(pointer);
    }
}

#endif
