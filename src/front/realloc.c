/* SPDX-License-Identifier: MIT */
/* realloc.c: hak_realloc, hak_aligned_realloc and hak_resize: resize in place if the size class,
 * the neighbouring slices or the page tables allow it. The first two else copy. */
#include "arena/arena.h"
#include "core/diagnose.h"
#include "front/short.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "heap/heap.h"
#include "large/emergency.h"
#include "observe/samples.h"

#include <errno.h>
#include <string.h>

static void realloc_count(enum counter counter)
{
    struct thread *thread = hak__thread;
    if (HAK_LIKELY(thread->arena != NULL)) {
        counter_add(&thread->cache.counters, counter, 1);
    }
}

/* A block outside slabs has another size now, in place. */
static void realloc_note(size_t old_bytes, size_t bytes)
{
    struct thread *thread = hak__thread;
    if (HAK_LIKELY(thread->arena != NULL)) {
        thread->cache.bytes.given += (int64_t)(bytes - old_bytes);
    }
}

/* A signal handler that has interrupted an operation of this thread cannot know: the pointer may be
 * a huge block, but the registry cannot be read now. Anybody else's foreign pointer is an error. */
static HAK_COLD void realloc_foreign(const char *what, const void *pointer)
{
    if ((hak__inside & INSIDE_OPERATION) == 0) {
        hak__diagnose_foreign(what, pointer);
    }
}

/* The slow path of the copy's malloc. It keeps errno, because only realloc_failed knows whether the
 * lack of memory is an error. */
static HAK_NOINLINE void *realloc_malloc_slow(size_t size)
{
    int saved = errno;
    void *result = hak__malloc_slow(size);
    errno = saved;
    return result;
}

/* Resizes an object of the class with this code in place, if its class has room and the size is at
 * least `least`. False: it has not, and nothing has changed. */
HAK_INLINE bool resize_object(void *pointer, uint32_t code, size_t size, size_t least)
{
    size_t room = short_code_bytes(code);
    if (HAK_SECURE) {
        size_t bytes = room + OBJECT_TAIL;
        unsigned char byte = secure_check_state(pointer, owner_class(code), SECURE_MALLOC);
        if (HAK_LIKELY(size - least <= room - least)) {
            secure_check_canary(pointer, bytes, secure_slack(pointer, byte, bytes));
            hak__secure_resize(pointer, bytes, size);
        }
    }
    return size - least <= room - least;
}

/* There is no memory for a copy. Shrinking never fails: such a block stays where it is. */
static HAK_COLD void *realloc_failed(void *pointer, size_t old_bytes, size_t size)
{
    if (size <= old_bytes) {
        (void)hak_resize(pointer, size);
        return pointer;
    }
    errno = ENOMEM;
    return NULL;
}

static HAK_NOINLINE void *realloc_copy(void *pointer, size_t old_bytes, size_t size)
{
    void *result = malloc_fast(size, realloc_malloc_slow, SECURE_MALLOC);
    if (HAK_UNLIKELY(result == NULL)) {
        return realloc_failed(pointer, old_bytes, size);
    }
    memcpy(result, pointer, old_bytes < size ? old_bytes : size);
    realloc_count(COUNTER_REALLOC_COPIED);
    free_fast(pointer);
    return result;
}

/* Resizes a span or a huge block of `bytes` bytes without a copy. `stays`: it also keeps its
 * address. NULL: not possible, and nothing has changed. */
static void *resize_block(void *pointer, size_t bytes, size_t size, bool span, bool stays)
{
    struct huge_result result = {NULL, 0, false};
    /* A resized block is drawn anew. When it has moved, another sample may have its old address. */
    if (!stays) {
        sample_forget_block(pointer);
    }
    if (hak__gate_enter(GATE_BRIEFLY) && (span || hak__emergency_settle())) {
        size_t slice = window_slice_of(pointer);
        if (span) {
            result.pointer = hak__span_resize(slice, size, stays);
            result.bytes = hak__span_bytes(slice) & SIZE_MAX >> 1;
        } else {
            result = hak__huge_resize(pointer, size, stays);
        }
        hak__gate_leave();
    }
    if (result.pointer == NULL) {
        return NULL;
    }
    if (stays) {
        sample_forget_block(pointer);
    }
    realloc_count(COUNTER_REALLOC_IN_PLACE);
    realloc_note(bytes, result.bytes);
    if (sampling_is_on()) {
        hak__malloc_sample_block(result.pointer, size);
    }
    return result.pointer;
}

static void *realloc_span(void *pointer, size_t size)
{
    size_t bytes = hak__span_bytes(window_slice_of(pointer));
    void *result = resize_block(pointer, bytes, size, true, false);
    return HAK_LIKELY(result != NULL) ? result : realloc_copy(pointer, bytes, size);
}

static HAK_NOINLINE void *realloc_slow(void *pointer, size_t size)
{
    if (short_is_span(pointer) && size > MID_REQUEST_MAX) {
        return realloc_span(pointer, size);
    }
    if (pointer == NULL) {
        return hak_malloc(size);
    }
    if (HAK_UNLIKELY(size == 0)) {
        hak_free(pointer);
        return NULL;
    }
    struct location location =
        hak__locate_allocation(pointer, "use after free: realloc of a freed block");
    if (HAK_UNLIKELY(location.place == PLACE_FOREIGN)) {
        realloc_foreign("realloc of a foreign pointer (not allocated by hakmem)", pointer);
        errno = ENOMEM;
        return NULL;
    }
    if (HAK_UNLIKELY(location.place == PLACE_HEAP)) {
        return hak_heap_realloc(hak__heap_of(pointer), pointer, size);
    }
    if (location.class_index == 1 && hak_resize(pointer, size)) {
        return pointer; /* it has the smallest class already */
    }
    if (location.place == PLACE_HUGE && size > SPAN_SIZE_MAX && size <= REQUEST_SIZE_MAX) {
        void *result = resize_block(pointer, location.bytes, size, false, false);
        if (result != NULL) {
            return result;
        }
    }
    return realloc_copy(pointer, location.bytes, size);
}

HAK_FAST_PATH void *hak_realloc(void *pointer, size_t size)
{
    uint32_t code = short_code(pointer);
    if (HAK_UNLIKELY(!short_code_is_class(code))) {
        return realloc_slow(pointer, size);
    }
    size_t bytes = short_code_bytes(code);
    /* The object stays if the new size fits and is at least half of the object: a copy would save
     * too little. No counter counts this, because it is too common. */
    if (HAK_LIKELY(resize_object(pointer, code, size, bytes / 2))) {
        return pointer;
    }
    return size > bytes ? realloc_copy(pointer, short_usable(pointer, code), size)
                        : realloc_slow(pointer, size);
}

void *hak_reallocarray(void *pointer, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    return hak_realloc(pointer, total);
}

static HAK_NOINLINE bool resize_slow(void *pointer, size_t size)
{
    HAK_KEEP_ERRNO;
    struct location location =
        hak__locate_allocation(pointer, "use after free: hak_resize of a freed block");
    size_t bytes = location.bytes;
    bool span = location.place == PLACE_SPAN;
    if (size > REQUEST_SIZE_MAX) {
        return false;
    }
    if (span || location.place == PLACE_HUGE) {
        return resize_block(pointer, bytes, size, span, true) != NULL;
    }
    if (location.place == PLACE_FOREIGN) {
        realloc_foreign("resize of a foreign pointer (not allocated by hakmem)", pointer);
    }
    return size == bytes && location.place == PLACE_CLOSED;
}

bool hak_resize(void *pointer, size_t size)
{
    uint32_t code = short_code(pointer);
    if (HAK_UNLIKELY(pointer == NULL || size == 0)) {
        return false;
    }
    if (HAK_UNLIKELY(!short_code_is_class(code))) {
        return resize_slow(pointer, size);
    }
    return resize_object(pointer, code, size, 0);
}

/* Copies a block to one with the alignment. A block of a heap stays in its heap. NULL: no memory;
 * the old block is as it was. */
static void *realloc_copy_aligned(void *pointer, struct location location, size_t alignment,
                                  size_t size)
{
    void *result = location.place == PLACE_HEAP
                       ? hak_heap_aligned_alloc(hak__heap_of(pointer), alignment, size)
                       : hak_aligned_alloc(alignment, size);
    if (result != NULL) {
        memcpy(result, pointer, location.bytes < size ? location.bytes : size);
        realloc_count(COUNTER_REALLOC_COPIED);
        hak_free(pointer);
    }
    return result;
}

void *hak_aligned_realloc(void *pointer, size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    if (pointer == NULL) {
        return hak_aligned_alloc(alignment, size);
    }
    if (alignment <= OBJECT_ALIGNMENT || size == 0) {
        return hak_realloc(pointer, size);
    }
    struct location location =
        hak__locate_allocation(pointer, "use after free: realloc of a freed block");
    if (HAK_UNLIKELY(location.place == PLACE_FOREIGN)) {
        return hak_realloc(pointer, size); /* reports it */
    }
    bool aligned = ((uintptr_t)pointer & (alignment - 1)) == 0;
    if (aligned && size >= location.bytes / 2 && hak_resize(pointer, size)) {
        return pointer;
    }
    int saved = errno;
    void *result = realloc_copy_aligned(pointer, location, alignment, size);
    if (HAK_UNLIKELY(result == NULL && aligned && hak_resize(pointer, size))) {
        errno = saved; /* shrinking never fails */
        return pointer;
    }
    return result;
}
