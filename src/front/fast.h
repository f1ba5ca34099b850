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

#include "arena/thread.h"

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

/* As malloc_pop. `bytes`: those of the class. `tiny`: its size is the request's, rounded. */
HAK_INLINE void *malloc_pop_of(size_t offset, size_t bytes, size_t size, enum secure_state state,
                               bool tiny)
{
    struct thread *thread = hak__thread;
    struct bin *bin = thread_bin_at(thread, offset);
    struct object *object = bin->head;
    if (HAK_UNLIKELY(object == NULL || (HAK_SECURE && size == 0))) {
        return NULL; /* in the secure form a block of size 0 is closed (large/empty.h) */
    }
    thread->cache.countdown -= (int32_t)size;
    if (HAK_UNLIKELY(thread->cache.countdown < 0)) {
        return NULL;
    }
    if (HAK_LEVEL >= 2) {
        hak__malloc_check(thread, object, (uint32_t)(bin - thread->cache.bins));
    }
    object = bin_pop(&thread->cache, bin, (uint32_t)(offset / sizeof(struct bin)));
    return object_hand_out(object, bytes, size, state, tiny);
}

/* Takes an object for `size` bytes from the bin at `offset`. Returns NULL if the bin is empty or
 * corrupt, or if the countdown has run out: the thread must then look at the clock
 * (arena/heartbeat.c). `state`: secure form: what the object becomes. */
HAK_INLINE void *malloc_pop(size_t offset, size_t size, enum secure_state state)
{
    uint32_t class_index = (uint32_t)(offset / sizeof(struct bin));
    return malloc_pop_of(offset, size_class_bytes(class_index), size, state, false);
}

/* The fast half of malloc_fast: NULL if it does not serve the request. */
HAK_INLINE void *malloc_try(size_t size, enum secure_state state)
{
    size_t offset, bytes;
    if (HAK_LIKELY(size <= TINY_SIZE_MAX - OBJECT_TAIL)) {
        /* Offset 0 for size 0: that bin is always empty. The offset is also the class's size. */
        offset = bytes = size_class_round_tiny(size + OBJECT_TAIL);
    } else if (HAK_LIKELY(size <= MID_REQUEST_MAX)) {
        uint32_t class_index = size_class_of_mid(size + OBJECT_TAIL);
        offset = bin_offset(class_index);
        bytes = size_class_bytes(class_index);
    } else {
        return NULL;
    }
    return malloc_pop_of(offset, bytes, size, state, size <= TINY_SIZE_MAX - OBJECT_TAIL);
}

/* Secure form: malloc_fast for requests of larger classes, whose code is longer. In
 * front/malloc_slow.c. */
HAK_HIDDEN HAK_NOINLINE void *hak__malloc_mid(size_t size, malloc_door *slow,
                                              enum secure_state state);

/* Allocates `size` bytes. If the bin gives no object, it calls `slow`, which must serve every size,
 * also for a thread without a struct. */
HAK_INLINE void *malloc_fast(size_t size, malloc_door *slow, enum secure_state state)
{
    if (HAK_SECURE && HAK_UNLIKELY(size > TINY_SIZE_MAX - OBJECT_TAIL)) {
        return hak__malloc_mid(size, slow, state);
    }
    void *object = malloc_try(size, state);
    return HAK_LIKELY(object != NULL) ? object : slow(size);
}

/* Allocates any `size`, off the fast path. Returns NULL with errno ENOMEM if there is no memory. In
 * front/malloc_slow.c. */
HAK_HIDDEN HAK_NOINLINE void *hak__malloc_slow(size_t size);
/* Frees any pointer: NULL does nothing, a foreign pointer is reported. Keeps errno. In
 * front/free_slow.c, as are the next three. */
HAK_HIDDEN HAK_NOINLINE void hak__free_slow(void *pointer);
/* Frees a pointer that lies inside the window, but in no slab of this thread's arena. `thread` is
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

/* Frees a pointer into a slice below the limit. In the secure form its quarantine is over. Keeps
 * errno. */
HAK_INLINE void free_in_slice(struct thread *thread, void *pointer, size_t slice)
{
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

/* Frees any pointer. In the secure form its quarantine is over. Keeps errno. */
HAK_INLINE void free_from_quarantine(void *pointer)
{
    size_t slice = window_slice_of_object(pointer);
    struct thread *thread = hak__thread;
    if (HAK_UNLIKELY(slice >= window_limit_seen())) {
        hak__free_slow(pointer);
        return;
    }
    free_in_slice(thread, pointer, slice);
}

/* Secure form: frees any pointer; an object of a slab must have the state. Keeps errno. In
 * front/free_slow.c. */
HAK_HIDDEN HAK_NOINLINE void hak__free_long(void *pointer, enum secure_state state);

/* Secure form: as hak__free_long, for an object that is less than SECURE_CLEAR_MIN bytes long, has
 * little slack and does not begin a page, and for which `size` bytes were asked. False: nothing was
 * done. The calls that others need are elsewhere, so this function saves few registers. */
HAK_INLINE bool free_short(void *pointer, enum secure_state state, size_t size)
{
    size_t slice = window_slice_of(pointer);
    struct thread *thread = hak__thread;
    if (HAK_UNLIKELY(slice >= window_limit_seen() || thread->cache.key == CACHE_KEY_NONE)) {
        return false;
    }
    /* A class's size, if that is tiny. Codes of larger classes give more than fits. */
    uint32_t owner = window_owner(slice);
    size_t bytes = (size_t)(owner & OWNER_CODE_MASK) * (OBJECT_ALIGNMENT >> OWNER_CLASS_SHIFT);
    if (HAK_UNLIKELY(owner < OWNER_DRAWN_FIRST || bytes >= SECURE_CLEAR_MIN)) {
        return false;
    }
    unsigned char byte = atomic_load_relaxed(secure_state_at(pointer));
    size_t slack = (size_t)(byte >> SECURE_STATE_BITS) + OBJECT_TAIL;
    /* `size` of free_short: any. */
    if (HAK_UNLIKELY((uintptr_t)pointer % OBJECT_ALIGNMENT != 0 ||
                     (uintptr_t)pointer % ARCH_PAGE_SIZE_MIN == 0 ||
                     (byte & SECURE_STATE_MASK) != state || slack > SECURE_NEAR_MAX ||
                     (size != SIZE_MAX && bytes - slack != size))) {
        return false;
    }
    pointer = secure_take_back(pointer, (uint32_t)(bytes / OBJECT_ALIGNMENT), bytes, byte);
    pointer = cache_quarantine(&thread->cache, pointer, bytes);
    if (pointer != NULL) {
        secure_leave_quarantine(pointer);
        free_in_slice(thread, pointer, window_slice_of(pointer));
    }
    return true;
}

/* Frees any pointer; an object of a slab must have the state. Keeps errno. */
HAK_INLINE void free_secure(void *pointer, enum secure_state state)
{
    if (HAK_UNLIKELY(!free_short(pointer, state, SIZE_MAX))) {
        hak__free_long(pointer, state);
    }
}

/* Frees any pointer that came from malloc or its relatives. Keeps errno. */
HAK_INLINE void free_fast(void *pointer)
{
    if (HAK_SECURE) {
        free_secure(pointer, SECURE_MALLOC);
    } else {
        free_from_quarantine(pointer);
    }
}

#endif
