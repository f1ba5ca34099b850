/* SPDX-License-Identifier: MIT */
/* size_class.c: the tables of size_class.h, spelled by macros so that the rule stays visible. */
#include "core/size_class.h"

/* A slab is as short as possible, because long slabs with one object in use are most of what a
 * small program needs beyond its objects. But a slab holds at least 4 objects, and the rest at its
 * end is at most a twelfth of it; a ninth if it has SLAB_SLICES_MAX slices. If the rest could be a
 * 24th, slabs would be longer, and mid_mt_2 need 1.12 of the memory (docs/decisions/0050). */
#define SLAB_SUITS(size, slices)                                                                   \
    ((slices)*SLICE_SIZE / (size) >= SLAB_OBJECTS_MIN &&                                           \
     (slices)*SLICE_SIZE % (size) <= (slices)*SLICE_SIZE / (HAK_SECURE && (slices) > 1 ? 8 : 12))
#define SLICES_FOR(size)                                                                           \
    (SLAB_SUITS(size, 1)   ? 1                                                                     \
     : SLAB_SUITS(size, 2) ? 2                                                                     \
     : SLAB_SUITS(size, 3) ? 3                                                                     \
     : SLAB_SUITS(size, 4) ? 4                                                                     \
     : SLAB_SUITS(size, 5) ? 5                                                                     \
     : SLAB_SUITS(size, 6) ? 6                                                                     \
     : SLAB_SUITS(size, 7) ? 7                                                                     \
     : SLAB_SUITS(size, 8) ? 8                                                                     \
                           : (int)SLAB_SLICES_MAX)
/* Cache lines of the rest at a slab's end. A slab uses at most COLORS_MAX of them as colors. */
#define LINES_LEFT(size) (SLICES_FOR(size) * SLICE_SIZE % (size) / HAK_CACHE_LINE)
#define COLORS(size)                                                                               \
    ((size) <= TINY_SIZE_MAX              ? 1                                                      \
     : LINES_LEFT(size) + 1 <= COLORS_MAX ? LINES_LEFT(size) + 1                                   \
                                          : COLORS_MAX)
#define CLASS_IN_COLORS(size, colors)                                                              \
    {                                                                                              \
        (size), (uint16_t)((SLICES_FOR(size) * SLICE_SIZE) / (size)), SLICES_FOR(size),            \
            (uint8_t)(colors)                                                                      \
    }
#define CLASS(size) CLASS_IN_COLORS(size, COLORS(size))
#define TINY_4(size) CLASS(size), CLASS((size) + 16), CLASS((size) + 32), CLASS((size) + 48)
#define TINY_16(size) TINY_4(size), TINY_4((size) + 64), TINY_4((size) + 128), TINY_4((size) + 192)
#define MID_8(base)                                                                                \
    CLASS((base) / 8 * 9), CLASS((base) / 8 * 10), CLASS((base) / 8 * 11), CLASS((base) / 8 * 12), \
        CLASS((base) / 8 * 13), CLASS((base) / 8 * 14), CLASS((base) / 8 * 15),                    \
        CLASS((base) / 8 * 16 + MID_SKEW)
#define SKEWED_3(base)                                                                             \
    CLASS((base) / 8 * 10 + MID_SKEW), CLASS((base) / 8 * 13 + MID_SKEW),                          \
        CLASS((base) / 8 * 16 + MID_SKEW)
#define ROUND_4(base)                                                                              \
    CLASS_IN_COLORS((base) / 4 * 5, 1), CLASS_IN_COLORS((base) / 4 * 6, 1),                        \
        CLASS_IN_COLORS((base) / 4 * 7, 1), CLASS_IN_COLORS((base) / 4 * 8, 1)

/* All classes but the first. What is made of a class is what CLASS_IN_COLORS says at the time. */
#define CLASSES                                                                                    \
    TINY_16(16), TINY_16(272), TINY_16(528), TINY_16(784), CLASS(1040), MID_8(1024), MID_8(2048),  \
        MID_8(4096), SKEWED_3(8192), SKEWED_3(16384), SKEWED_3(32768), ROUND_4(1024),              \
        ROUND_4(2048), ROUND_4(4096), ROUND_4(8192), ROUND_4(16384), ROUND_4(32768)

const struct size_class hak__size_classes[CLASS_COUNT] = {{0, 0, 0, 1}, CLASSES};

#undef CLASS_IN_COLORS
#define CLASS_IN_COLORS(size, colors) UINT64_MAX / (size) + 1

const uint64_t hak__size_reciprocals[CLASS_COUNT] = {0, CLASSES};

/* Entry i is the class of sizes i * 128 + 1 to (i + 1) * 128. An eighth of the doubling that starts
 * at 1024 * 2^k is 2^k entries. MID_SKEW gives the last class of a doubling one entry more, and the
 * class behind it one entry less. */
#define R1(c) (c)
#define R2(c) R1(c), R1(c)
#define R3(c) R2(c), R1(c)
#define R4(c) R2(c), R2(c)
#define R8(c) R4(c), R4(c)
#define R16(c) R8(c), R8(c)
#define R32(c) R16(c), R16(c)
#define EIGHT(less, run, c)                                                                        \
    less(c), run((c) + 1), run((c) + 2), run((c) + 3), run((c) + 4), run((c) + 5), run((c) + 6),   \
        run((c) + 7), R1((c) + 7)
#define THREE(run, c)                                                                              \
    run(c), run(c), run((c) + 1), run((c) + 1), run((c) + 1), run((c) + 2), run((c) + 2),          \
        run((c) + 2)

const uint8_t hak__mid_class[MID_SIZE_MAX / MID_SKEW] = {
    R8(0),         EIGHT(R1, R1, 66), EIGHT(R1, R2, 74), EIGHT(R3, R4, 82),
    THREE(R8, 90), THREE(R16, 93),    THREE(R32, 96),
};
