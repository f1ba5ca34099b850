/* SPDX-License-Identifier: MIT */
/* size_class.h: which size class serves a request, and how large its objects and slabs are.
 *
 *   class 0         no objects: its bin is always empty, so malloc(0) takes the slow path
 *   class 1..65     16, 32, ... 1040 bytes
 *   class 66..105   about an eighth apart: 1152, 1280, ... 65664
 *   class 106..125  4 a doubling: 1280, 1536, 1792, 2048, 2560, ... 32768; only for requests that
 *                   are aligned to more than a cache line
 *
 * Steps of 16 bytes waste at most 15 bytes, where most objects are. Above, a request takes at most
 * 16 % more of its slab than it asked for, and only a tenth of the sizes more than an eighth.
 * More classes would waste less in each object, but each class keeps memory for the most objects
 * that it ever had (docs/decisions/0120). The tables are constant.
 *
 * Colors: objects above 1 KiB that all start at multiples of 1 KiB would share a sixteenth of the
 * sets of the cache. So each slab starts its first object at another cache line (`colors`), as far
 * as the rest at its end allows (slab coloring, J. Bonwick, "The slab allocator", 1994). In classes
 * with several colors, objects are aligned to 64 bytes only. jemalloc starts large allocations at
 * random lines instead ("cache-oblivious").
 *
 * Slabs of the last 20 classes have one color: their objects are aligned to the largest power of
 * two that divides their size (docs/decisions/0071).
 */
#ifndef HAK_CORE_SIZE_CLASS_H
#define HAK_CORE_SIZE_CLASS_H

#include "base/bits.h"
#include "core/limits.h"

struct size_class {
    uint32_t object_size;
    uint16_t objects_per_slab;
    uint8_t slab_slices;
    uint8_t colors; /* the first object lies fewer lines than this behind the start of its slab */
};

HAK_HIDDEN extern const struct size_class hak__size_classes[CLASS_COUNT];
/* The class of a mid size, by (size - 1) / 128. Entries below TINY_SIZE_MAX are 0 and unused. */
HAK_HIDDEN extern const uint8_t hak__mid_class[MID_SIZE_MAX / MID_SKEW];

/* Bytes of an object of the tiny class for `size`, which is at most TINY_SIZE_MAX. */
HAK_INLINE size_t size_class_round_tiny(size_t size)
{
    return bits_align_up(size, OBJECT_ALIGNMENT);
}

HAK_INLINE size_t size_class_of_tiny(size_t size)
{
    return size_class_round_tiny(size) / OBJECT_ALIGNMENT;
}

HAK_INLINE uint32_t size_class_of_mid(size_t size)
{
    return hak__mid_class[(size - 1) / MID_SKEW];
}

/* The class for a request of `size` bytes, 0 to MID_REQUEST_MAX. Size 0 has the class of size 1. */
HAK_INLINE uint32_t size_class_of(size_t size)
{
    size = (size == 0 ? 1 : size) + OBJECT_TAIL;
    return size <= TINY_SIZE_MAX ? (uint32_t)size_class_of_tiny(size) : size_class_of_mid(size);
}

HAK_INLINE uint32_t size_class_bytes(uint32_t class_index)
{
    return hak__size_classes[class_index].object_size;
}

/* Bytes of an object that the program may use. */
HAK_INLINE uint32_t size_class_usable(uint32_t class_index)
{
    return size_class_bytes(class_index) - OBJECT_TAIL;
}

/* 2^64 divided by the object size of the class, rounded up. */
HAK_HIDDEN extern const uint64_t hak__size_reciprocals[CLASS_COUNT];

/* True if an object starts `offset` bytes, any number, after the first of `count` in a row.
 * `reciprocal` is that of their class. The product's high half is the object's number, and its low
 * half is below the reciprocal if nothing remains (D. Lemire, O. Kaser, N. Kurz: Faster remainder
 * by direct computation, 2019). It is exact for offsets below 2^64 / size, and what is above has a
 * number above each count. */
HAK_INLINE bool size_class_starts(size_t offset, uint64_t reciprocal, uint32_t count)
{
    __extension__ unsigned __int128 product = (unsigned __int128)offset * reciprocal;
    return (uint64_t)product < reciprocal && (uint64_t)(product >> 64) < count;
}

/* `bytes`, at most 2^31, divided by the object size of the class. */
HAK_INLINE uint32_t size_class_quotient(size_t bytes, uint32_t class_index)
{
    __extension__ unsigned __int128 product =
        (unsigned __int128)bytes * hak__size_reciprocals[class_index];
    return (uint32_t)(uint64_t)(product >> 64);
}

/* The most cache lines behind its start at which a slab or a span may begin: the sets of a
 * first-level cache repeat after 4 KiB, so more would gain nothing. Half: objects share twice as
 * many sets. */
#define COLORS_MAX 64u

/* True: no two objects of the class share a cache line. Slabs start at a slice, and object sizes
 * above TINY_SIZE_MAX are multiples of 128 bytes. */
HAK_INLINE bool size_class_has_own_lines(uint32_t class_index)
{
    return class_index > TINY_CLASS_COUNT;
}

HAK_STATIC_ASSERT(MID_SKEW % HAK_CACHE_LINE == 0, "steps of whole lines");

HAK_STATIC_ASSERT(ROUND_SIZE_MIN < TINY_SIZE_MAX && ROUND_SIZE_MIN % (4 * HAK_CACHE_LINE) == 0 &&
                      ROUND_SIZE_MIN << 5 == ROUND_SIZE_MAX && ROUND_SIZE_MAX <= SLICE_SIZE,
                  "what is aligned to more than a line is tiny, or has a round class");

/* A class whose objects hold `size` bytes and start at multiples of `alignment`, a power of two.
 * CLASS_COUNT: there is none. Above ROUND_SIZE_MIN the object is less than a quarter larger than
 * `size` rounded up to the alignment.
 * Why objects of a round class are aligned: the sizes of a doubling are multiples of a quarter of
 * its start. Either the alignment divides that quarter, and so each size. Or it is a multiple of
 * the quarter, and then the rounded request is itself the size of a class. */
HAK_INLINE uint32_t size_class_of_aligned(size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(size > MID_REQUEST_MAX || alignment > SLICE_SIZE)) {
        return CLASS_COUNT;
    }
    size_t rounded = bits_align_up((size == 0 ? 1 : size) + OBJECT_TAIL, alignment);
    if (rounded <= TINY_SIZE_MAX) {
        return (uint32_t)size_class_of_tiny(rounded);
    }
    if (alignment <= HAK_CACHE_LINE) {
        return size_class_of_mid(rounded);
    }
    if (HAK_UNLIKELY(rounded > ROUND_SIZE_MAX)) {
        return CLASS_COUNT;
    }
    uint32_t doubling = bits_log2(rounded - 1);
    uint32_t quarter = (uint32_t)((rounded - 1) >> (doubling - 2)); /* 4 to 7 */
    return ROUND_CLASS_FIRST + (doubling - bits_log2(ROUND_SIZE_MIN)) * 4 + quarter - 4;
}

#endif
