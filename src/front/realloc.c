/* SPDX-License-Identifier: MIT */
/* realloc.c: resizes in place if the size class, the neighbouring slices or the page tables allow
 * it, else copies. */
#include "core/diagnose.h"
#include "front/short.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "large/emergency.h"
#include "large/sampled.h"
#include "observe/samples.h"
#include "heap/heap.h"

#include <errno.h>
#include <string.h>

static void realloc_count(enum counter counter)
{
    struct thread *thread = hak__thread;
    if (HAK_LIKELY(thread->arena != NULL)) {
        counter_add(&thread->cache.counters, counter, 1);
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

/* There is no memory for a copy. Shrinking never fails: such a block stays as it is. */
static HAK_COLD void *realloc_failed(void *pointer, size_t old_bytes, size_t size)
{
    if (size <= old_bytes) {
        uint32_t code = HAK_SECURE ? short_code(pointer) : 0;
        if (short_code_is_class(code)) {
            hak__secure_resize(pointer, size_class_bytes(owner_class(code)), size);
        }
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

static void *realloc_span(void *pointer, size_t size)
{
    size_t slice = window_slice_of(pointer);
    void *result = NULL;
    if (sample_has_blocks()) {
        hak__sample_forget(pointer); /* a resized block is drawn anew */
    }
    if (hak__gate_enter()) {
        result = hak__span_resize(slice, size);
        hak__gate_leave();
    }
    if (HAK_UNLIKELY(result == NULL)) {
        return realloc_copy(pointer, hak__span_bytes(slice), size);
    }
    realloc_count(COUNTER_REALLOC_IN_PLACE);
    if (sampling_is_on()) {
        hak__malloc_sample_block(result, size);
    }
    return result;
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
        /* A signal handler has interrupted an operation of this thread. The pointer may be a huge
         * block, but the registry cannot be read now. */
        if ((hak__inside & INSIDE_OPERATION) != 0) {
            errno = ENOMEM;
            return NULL;
        }
        hak__diagnose_foreign("realloc of a foreign pointer (not allocated by hakmem)", pointer);
    }
    if (HAK_UNLIKELY(location.place == PLACE_HEAP)) {
        return hak_heap_realloc(hak__heap_of(pointer), pointer, size);
    }
    if (!HAK_SECURE && location.bytes == OBJECT_ALIGNMENT && size <= location.bytes) {
        return pointer; /* it has the smallest class already */
    }
    if (location.place == PLACE_SAMPLED && size <= location.bytes && size >= location.bytes / 2) {
        hak__sampled_shrink(pointer, size); /* as objects that are not sampled */
        return pointer;
    }
    if (location.place == PLACE_HUGE && sample_has_blocks()) {
        hak__sample_forget(pointer); /* a resized block is drawn anew */
    }
    if (location.place == PLACE_HUGE && size > SPAN_SIZE_MAX && size <= REQUEST_SIZE_MAX &&
        hak__gate_enter() && hak__emergency_settle()) {
        void *result = hak__huge_resize(pointer, size);
        hak__gate_leave();
        if (result != NULL) {
            realloc_count(COUNTER_REALLOC_IN_PLACE);
            if (sampling_is_on()) {
                hak__malloc_sample_block(result, size);
            }
            return result;
        }
    }
    return realloc_copy(pointer, location.bytes, size);
}

/* Secure form: as hak_realloc, for a pointer into a slab of the class. */
static void *realloc_secure(void *pointer, uint32_t class_index, size_t size)
{
    unsigned char byte = secure_check_state(pointer, class_index, SECURE_MALLOC);
    size_t bytes = size_class_bytes(class_index), room = bytes - OBJECT_TAIL;
    size_t slack = secure_slack(pointer, byte, bytes);
    size_t least = class_index == 1 ? 1 : room / 2;
    if (HAK_LIKELY(size - least <= room - least)) {
        secure_check_canary(pointer, bytes, slack);
        hak__secure_resize(pointer, bytes, size);
        return pointer;
    }
    return size > room ? realloc_copy(pointer, bytes - slack, size) : realloc_slow(pointer, size);
}

HAK_FAST_PATH void *hak_realloc(void *pointer, size_t size)
{
    uint32_t code = short_code(pointer);
    if (HAK_UNLIKELY(!short_code_is_class(code))) {
        return realloc_slow(pointer, size);
    }
    if (HAK_SECURE) {
        return realloc_secure(pointer, owner_class(code), size);
    }
    size_t bytes = short_code_bytes(code);
    /* The object stays if the new size fits and is at least half of the object: a copy would save
     * too little. No counter counts this, because it is too common. */
    if (HAK_LIKELY(size - bytes / 2 <= bytes - bytes / 2)) {
        return pointer;
    }
    return size > bytes ? realloc_copy(pointer, bytes, size) : realloc_slow(pointer, size);
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
