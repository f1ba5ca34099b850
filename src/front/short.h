/* short.h: the short ways of the other entry points: no call and no lock where the answer lies in
 * two tables or in this thread's bin. Whatever else a call can meet takes its slow way.
 *
 *   short_code      usable_size, realloc: owner word of the slice -> class -> object size
 *   short_aligned   aligned_alloc and its kind, aligned new: class -> pop this thread's bin
 */
#ifndef HAK_FRONT_SHORT_H
#define HAK_FRONT_SHORT_H

#include "front/fast.h"

/* The code of the owner word (region/window.h) of the slice that `pointer` points into; 0: it
 * points into none. What is no class only hak__locate_allocation can tell. */
HAK_INLINE uint32_t short_code(const void *pointer)
{
    size_t slice = window_slice_of(pointer);
    return HAK_LIKELY(slice < window_limit_seen()) ? window_owner(slice) & OWNER_CODE_MASK : 0;
}

HAK_INLINE bool short_code_is_class(uint32_t code)
{
    return code - 1 < CLASS_COUNT - 1;
}

/* `pointer` is where the allocation in a span starts. */
HAK_INLINE bool short_is_span(const void *pointer)
{
    return short_code(pointer) == OWNER_SPAN &&
           hak__span_pointer(window_slice_of(pointer)) == pointer;
}

/* An aligned object from this thread's bin. NULL: the bin is empty, no class serves the request, or
 * `alignment` is no power of two. */
HAK_INLINE void *short_aligned(size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment))) {
        return NULL;
    }
    uint32_t class_index = size_class_of_aligned(size, alignment);
    return HAK_LIKELY(class_index < CLASS_COUNT) ? malloc_pop(bin_offset(class_index), size) : NULL;
}

#endif
