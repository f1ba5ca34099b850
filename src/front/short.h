/* SPDX-License-Identifier: MIT */
/* short.h: the short ways: fast paths of the entry points other than malloc and free. A short way
 * needs no call and no lock. It takes its answer from this thread's bin, or from the owner words
 * and the table of size classes. If they do not have the answer, the function's slow path runs.
 *
 *   short_code      hak_usable_size, hak_realloc: slice -> owner word -> class -> object size
 *   short_aligned   hak_aligned_alloc and relatives, aligned new: class -> pop this thread's bin */
#ifndef HAK_FRONT_SHORT_H
#define HAK_FRONT_SHORT_H

#include "front/fast.h"
#include "large/huge.h"
#include "large/span.h"

/* The code (region/window.h) of the slice that `pointer` points into; 0 if it points outside
 * the window. If the code is 0, only hak__locate_allocation can tell what the pointer is. */
HAK_INLINE uint32_t short_code(const void *pointer)
{
    size_t slice = window_slice_of(pointer);
    return HAK_LIKELY(slice < window_limit_seen()) ? window_owner(slice) & OWNER_CODE_MASK : 0;
}

HAK_INLINE bool short_code_is_class(uint32_t code)
{
    return code - 1 < OWNER_CODE_END - 1;
}

/* Usable bytes of an object of the class with this code. The code is the index of the first half of
 * a table entry, so that the processor scales it in the load. */
HAK_INLINE uint32_t short_code_bytes(uint32_t code)
{
    const char *table = (const char *)hak__size_classes;
    return ((const struct size_class *)(const void *)(table +
                                                      (size_t)code * (sizeof(struct size_class) >>
                                                                      OWNER_CLASS_SHIFT)))
               ->object_size -
           OBJECT_TAIL;
}

/* Bytes that the program may use of an object of the class with this code. In the secure form no
 * object in use may start there, which is reported. */
HAK_INLINE size_t short_usable(const void *pointer, uint32_t code)
{
    if (!HAK_SECURE) {
        return short_code_bytes(code);
    }
    if (HAK_UNLIKELY(!secure_is_used(pointer))) {
        hak__secure_bad_query(pointer, owner_class(code));
    }
    return secure_size(pointer, owner_class(code));
}

/* True if `pointer` is the start of a span's allocation. */
HAK_INLINE bool short_is_span(const void *pointer)
{
    return short_code(pointer) == OWNER_SPAN &&
           hak__span_pointer(window_slice_of(pointer)) == pointer;
}

/* Secure form: false if another size than `size` was asked for when the block was allocated or last
 * resized. True if that is not known. */
HAK_INLINE bool short_size_is_right(const void *pointer, size_t size)
{
    uint32_t code = short_code(pointer);
    if (short_code_is_class(code)) {
        return !secure_is_used(pointer) || secure_size(pointer, owner_class(code)) == size;
    }
    size_t least = size == 0 ? 1 : size; /* as hak__malloc_large asks for */
    return short_is_span(pointer) ? hak__span_bytes(window_slice_of(pointer)) == least
                                  : hak__huge_has_size(pointer, least);
}

/* Takes an aligned object from this thread's bin. Returns NULL if the bin is empty, the countdown
 * has run out, no class serves the request, or `alignment` is no power of two. */
HAK_INLINE void *short_aligned(size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment))) {
        return NULL;
    }
    uint32_t class_index = size_class_of_aligned(size, alignment);
    return HAK_LIKELY(class_index < CLASS_COUNT)
               ? malloc_pop(bin_offset(class_index), size, SECURE_MALLOC)
               : NULL;
}

#endif
