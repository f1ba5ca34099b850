/* SPDX-License-Identifier: MIT */
/* bits.h: arithmetic on powers of two and on 64-bit maps. Pure functions.
 *
 * A map is a set of the numbers 0 to 63: bit i is one if i is in it. A run is a group of adjacent
 * ones. */
#ifndef HAK_BASE_BITS_H
#define HAK_BASE_BITS_H

#include "base/compiler.h"

HAK_INLINE bool bits_is_power_of_two(size_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* The index of the lowest one. Undefined for 0, as the instruction is. */
HAK_INLINE uint32_t bits_lowest(uint64_t map)
{
    return (uint32_t)__builtin_ctzll(map);
}

/* The index of the highest one, which is log2 rounded down. Undefined for 0. */
HAK_INLINE uint32_t bits_log2(uint64_t value)
{
    return 63u - (uint32_t)__builtin_clzll(value);
}

/* The number of ones: sums of 2, 4 and 8 bits side by side. __builtin_popcountll is
 * a call of a function where the compiler may not use the processor's instruction. */
HAK_INLINE uint32_t bits_count(uint64_t map)
{
    map -= map >> 1 & UINT64_C(0x5555555555555555);
    map = (map & UINT64_C(0x3333333333333333)) + (map >> 2 & UINT64_C(0x3333333333333333));
    map = (map + (map >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(map * UINT64_C(0x0101010101010101) >> 56);
}

/* Rounds up. `alignment` is a power of two; the caller excludes overflow. */
HAK_INLINE size_t bits_align_up(size_t value, size_t alignment)
{
    return (value + (alignment - 1)) & ~(alignment - 1);
}

/* Rounds down. `alignment` is a power of two. */
HAK_INLINE size_t bits_align_down(size_t value, size_t alignment)
{
    return value & ~(alignment - 1);
}

/* A run of `count` ones from bit `first` on; first < 64 and first + count <= 64. */
HAK_INLINE uint64_t bits_mask(uint32_t first, uint32_t count)
{
    return (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << first;
}

/* The bits at which `count` ones (1 to 64) or more follow each other. Each step ands the map with
 * itself shifted and so doubles the length that is known; six steps suffice for 64. */
HAK_INLINE uint64_t bits_run_starts(uint64_t map, uint32_t count)
{
    uint32_t done = 1;
    while (done < count && map != 0) {
        uint32_t step = done < count - done ? done : count - done;
        map &= map >> step;
        done += step;
    }
    return map;
}

/* The length of the run of `map` that contains `mask`, a run of ones all of which are in `map`. */
HAK_INLINE uint32_t bits_run_around(uint64_t map, uint64_t mask)
{
    uint32_t last = bits_log2(mask);
    uint64_t zeroes_below = ~map & ((mask & (0 - mask)) - 1);
    uint64_t zeroes_above = ~map >> last; /* bit 0 is the last one of `mask` */
    uint32_t first = zeroes_below == 0 ? 0 : bits_log2(zeroes_below) + 1;
    return (zeroes_above == 0 ? 64 : last + bits_lowest(zeroes_above)) - first;
}

/* A number of which every bit depends on every bit of `value`; different for different values. The
 * finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * 2014). */
HAK_INLINE uint64_t bits_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* The length of the longest run of ones, 0 to 64. */
HAK_INLINE uint32_t bits_longest_run(uint64_t map)
{
    if (map == 0) {
        return 0;
    }
    if (((map + (map & (0 - map))) & map) == 0) { /* one run: adding its lowest bit clears it */
        return bits_log2(map) - bits_lowest(map) + 1;
    }
    uint64_t starts[6]; /* [k]: the bits at which 2^k ones start */
    uint32_t power = 0;
    starts[0] = map;
    while (power < 5 && (map & map >> (1u << power)) != 0) {
        map &= map >> (1u << power);
        starts[++power] = map;
    }
    uint32_t length = 1u << power;
    while (power-- != 0) { /* tries half of that more, then a quarter, ... */
        uint64_t longer = map & starts[power] >> length;
        map = longer != 0 ? longer : map;
        length += longer != 0 ? 1u << power : 0;
    }
    return length;
}

/* The hash FNV-1a of the bytes (G. Fowler, L. C. Noll, K.-P. Vo). */
HAK_INLINE uint64_t bits_fnv(const void *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

#endif
