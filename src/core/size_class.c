/* SPDX-License-Identifier: MIT */
/* size_class.c: the tables of size_class.h, spelled by macros so that the rule stays visible. */
#include "core/size_class.h"

/* Object sizes above 1,040 bytes, and the slices of their slabs: found by a search over all
 * tables of 40 sizes whose slabs hold 4 objects or more (docs/decisions/0120). A size is what
 * fits into the slab so often, less some lines for the start of the first object. Slabs of 5 and 6
 * slices would leave 4 of a superslab's 64. A class is not in the list because of its own slab
 * alone: what matters is a slab's share of bytes for one object, against the size before. */
/* clang-format off */
#define MID_CLASSES(X, a) \
    X(1152, 1, a) X(1280, 1, a) X(1408, 1, a) X(1536, 1, a) X(1664, 1, a) \
    X(1792, 1, a) X(1920, 1, a) X(2176, 1, a) X(2304, 1, a) X(2560, 2, a) \
    X(2816, 2, a) X(3072, 2, a) X(3328, 3, a) X(3712, 3, a) X(4224, 4, a) \
    X(4608, 1, a) X(5120, 3, a) X(5632, 4, a) X(6144, 4, a) X(6784, 4, a) \
    X(7680, 4, a) X(8448, 8, a) X(9600, 8, a) X(10880, 4, a) X(12416, 8, a) \
    X(13952, 3, a) X(15360, 8, a) X(17536, 7, a) X(20096, 8, a) X(22656, 9, a) \
    X(26112, 4, a) X(29056, 8, a) X(32512, 4, a) X(37376, 8, a) X(41984, 9, a) \
    X(45824, 7, a) X(52352, 8, a) X(58880, 9, a) X(65280, 8, a) X(65664, 9, a)
/* clang-format on */

/* Cache lines of the rest at a slab's end. A slab uses at most COLORS_MAX of them as colors. */
#define LINES_LEFT(size, slices) ((slices)*SLICE_SIZE % (size) / HAK_CACHE_LINE)
#define COLORS(size, slices)                                                                       \
    (LINES_LEFT(size, slices) + 1 <= COLORS_MAX ? LINES_LEFT(size, slices) + 1 : COLORS_MAX)
#define CLASS(size, slices, colors)                                                                \
    {(size), (uint16_t)((slices)*SLICE_SIZE / (size)), (slices), (uint8_t)(colors)},
#define TINY_4(size)                                                                               \
    CLASS(size, 1, 1) CLASS((size) + 16, 1, 1) CLASS((size) + 32, 1, 1) CLASS((size) + 48, 1, 1)
#define TINY_16(size) TINY_4(size) TINY_4((size) + 64) TINY_4((size) + 128) TINY_4((size) + 192)
/* Secure form: slabs of small objects are short, because each ends in a closed page. */
#define SLICES(size, slices) (HAK_SECURE && (size) <= 8448 && (slices) > 2 ? 2 : (slices))
#define MID(size, slices, unused)                                                                  \
    CLASS(size, SLICES(size, slices), COLORS(size, SLICES(size, slices)))

/* All classes but the first. What is made of a class is what CLASS says at the time. */
/* clang-format off */
#define CLASSES \
    TINY_16(16) TINY_16(272) TINY_16(528) TINY_16(784) CLASS(1040, 1, 1) \
    MID_CLASSES(MID, 0) \
    CLASS(1280, 1, 1) CLASS(1536, 1, 1) CLASS(1792, 1, 1) CLASS(2048, 1, 1) \
    CLASS(2560, 1, 1) CLASS(3072, 1, 1) CLASS(3584, 1, 1) CLASS(4096, 1, 1) \
    CLASS(5120, 1, 1) CLASS(6144, 1, 1) CLASS(7168, 2, 1) CLASS(8192, 1, 1) \
    CLASS(10240, 2, 1) CLASS(12288, 2, 1) CLASS(14336, 4, 1) CLASS(16384, 2, 1) \
    CLASS(20480, 4, 1) CLASS(24576, 3, 1) CLASS(28672, 7, 1) CLASS(32768, 4, 1)
/* clang-format on */

const struct size_class hak__size_classes[CLASS_COUNT] = {{0, 0, 0, 1}, CLASSES};

#undef CLASS
#define CLASS(size, slices, colors) UINT64_MAX / (size) + 1,

const uint64_t hak__size_reciprocals[CLASS_COUNT] = {0, CLASSES};

/* Entry i is the class of sizes i * 128 + 1 to (i + 1) * 128: as many mid classes are smaller. */
#define IS_SMALLER(size, slices, bytes) +((size) < (bytes))
#define E1(i) TINY_CLASS_COUNT + 1 MID_CLASSES(IS_SMALLER, ((i) + 1) * MID_SKEW),
#define E4(i) E1(i) E1((i) + 1) E1((i) + 2) E1((i) + 3)
#define E16(i) E4(i) E4((i) + 4) E4((i) + 8) E4((i) + 12)
#define E64(i) E16(i) E16((i) + 16) E16((i) + 32) E16((i) + 48)
#define E256(i) E64(i) E64((i) + 64) E64((i) + 128) E64((i) + 192)

const uint8_t hak__mid_class[MID_SIZE_MAX / MID_SKEW] = {E256(0) E256(256) E1(512)};
