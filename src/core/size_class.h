/* size_class.h: request size -> size class -> object size, slab length.
 *
 *   class 0            no objects; malloc(0) lands in its always empty bin and so in the slow door
 *   class 1..65        16, 32, ... 1040 bytes
 *   class 66..89       8 per doubling: 1152, 1280, ... 2176, 2304, ... 4224, 4608, ... 8320
 *   class 90..98       3 per doubling: 10368, 13440, 16512, 20608, ... 65664
 *   class 99..122      4 per doubling: 1280, 1536, 1792, 2048, 2560, ... 65536, for requests
 * aligned to more than a line
 *
 * Spacing after dlmalloc/jemalloc practice: 16-byte steps waste at most 15 bytes where most objects
 * are, eight steps a doubling some eighth. From 8 KiB on each class keeps what it once needed at
 * most, so fewer classes hold less than exact ones (docs/decisions/0046): 10/8, 13/8 and 16/8, as
 * programs ask for powers of two, or 10,000 and 20,000, each with room for a header (MID_SKEW).
 * State: constant tables, filled at compile time.
 *
 * Objects above 1 KiB that all start at multiples of 1 KiB would share a sixteenth of the cache's
 * sets. So their slabs start a few lines later, each another number of them (`colors`), within what
 * no object fits into: slab coloring, J. Bonwick, "The slab allocator", 1994. Where there is room
 * for two lines or more, such objects are aligned to a line only. The few objects that a slab of
 * the largest has differ by the skew: jemalloc's "cache-oblivious" large allocations have random
 * lines for the same reason.
 *
 * Slabs of the last 24 classes have no colors: their objects are aligned to the largest power of
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
    uint8_t
        colors; /* lines that the first object may lie behind the start of its slab: below this */
};

HAK_HIDDEN extern const struct size_class hak__size_classes[CLASS_COUNT];
/* Class of mid sizes, by (size - 1) / 128; entries below TINY_SIZE_MAX are unused zeros. */
HAK_HIDDEN extern const uint8_t hak__mid_class[MID_SIZE_MAX >> MID_STEP_SHIFT];

/* Bytes of the tiny class of `size`. */
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
    return hak__mid_class[(size - 1) >> MID_STEP_SHIFT];
}

/* Any size from 0 to MID_SIZE_MAX; size 0 is served as 1. */
HAK_INLINE uint32_t size_class_of(size_t size)
{
    if (size <= TINY_SIZE_MAX) {
        return size == 0 ? 1 : (uint32_t)size_class_of_tiny(size);
    }
    return size_class_of_mid(size);
}

HAK_INLINE uint32_t size_class_bytes(uint32_t class_index)
{
    return hak__size_classes[class_index].object_size;
}

/* No cache line is part of two objects of the class: slabs start at a slice, and all objects above
 * TINY_SIZE_MAX are multiples of the finest step there. */
HAK_INLINE bool size_class_has_own_lines(uint32_t class_index)
{
    return class_index > TINY_CLASS_COUNT;
}

HAK_STATIC_ASSERT((UINT32_C(1) << MID_STEP_SHIFT) % HAK_CACHE_LINE == 0, "steps of whole lines");

HAK_STATIC_ASSERT(ROUND_SIZE_MIN < TINY_SIZE_MAX && ROUND_SIZE_MIN % (4 * HAK_CACHE_LINE) == 0 &&
                      ROUND_SIZE_MIN << ROUND_CLASS_COUNT / 4 == ROUND_SIZE_MAX,
                  "what is aligned to more than a line is tiny, or has a round class");

/* A class whose objects hold `size` bytes at multiples of `alignment`, a power of two; CLASS_COUNT:
 * there is none. Above ROUND_SIZE_MIN the object is less than a quarter larger than `size` rounded
 * up to the alignment.
 * Why it is aligned: the classes of a doubling are multiples of a quarter of its start. The
 * alignment divides that quarter, or is a multiple of it, and then the rounded size is a class. */
HAK_INLINE uint32_t size_class_of_aligned(size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(size > MID_SIZE_MAX || alignment > SLICE_SIZE)) {
        return CLASS_COUNT;
    }
    size_t rounded = bits_align_up(size == 0 ? 1 : size, alignment);
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
