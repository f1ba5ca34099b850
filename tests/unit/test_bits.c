/* SPDX-License-Identifier: MIT */
/* test_bits.c: base/bits, each function against a naive one that walks the bits. */
#include "unit.h"

static uint64_t naive_run_starts(uint64_t map, uint32_t count)
{
    uint64_t starts = 0;
    for (uint32_t first = 0; first + count <= 64; first++) {
        uint32_t i = first;
        while (i < first + count && (map >> i & 1) != 0) {
            i++;
        }
        starts |= (uint64_t)(i == first + count) << first;
    }
    return starts;
}

/* Random maps with short and long runs: the bits of a map change with probability 1 in `length`. */
static uint64_t random_map(uint64_t *random, size_t length)
{
    uint64_t map = 0;
    uint64_t bit = random_next(random) & 1;
    for (uint32_t i = 0; i < 64; i++) {
        bit ^= random_below(random, length) == 0;
        map |= bit << i;
    }
    return map;
}

static void check_run_around(uint64_t map, uint32_t first, uint32_t count)
{
    uint32_t low = first, high = first + count;
    map |= bits_mask(first, count);
    while (low != 0 && (map >> (low - 1) & 1) != 0) {
        low--;
    }
    while (high != 64 && (map >> high & 1) != 0) {
        high++;
    }
    assert_int_equal(bits_run_around(map, bits_mask(first, count)), high - low);
}

TEST(maps)
{
    static const uint64_t maps[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX >> 1};
    uint64_t random = 4;
    for (size_t round = 0; round < 2000; round++) {
        uint64_t map = round < COUNT_OF(maps) ? maps[round] : random_map(&random, 1 + round % 64);
        uint32_t lowest = 64, highest = 64, count = 0, longest = 0;
        for (uint32_t i = 0; i < 64; i++) {
            if ((map >> i & 1) != 0) {
                lowest = lowest == 64 ? i : lowest;
                highest = i;
                count++;
            }
        }
        assert_int_equal(bits_count(map), count);
        assert_true(map == 0 || (bits_lowest(map) == lowest && bits_log2(map) == highest));
        for (uint32_t length = 1; length <= 64; length++) {
            uint64_t starts = naive_run_starts(map, length);
            assert_true(bits_run_starts(map, length) == starts);
            longest = starts != 0 ? length : longest;
        }
        assert_int_equal(bits_longest_run(map), longest);
        uint32_t first = (uint32_t)random_below(&random, 64);
        check_run_around(map, first, 1 + (uint32_t)random_below(&random, 64 - first));
    }
    for (uint32_t first = 0; first < 64; first++) {
        for (uint32_t count = 0; first + count <= 64; count++) {
            uint64_t mask = bits_mask(first, count);
            assert_true(bits_count(mask) == count && bits_longest_run(mask) == count);
            assert_true(count == 0 || bits_lowest(mask) == first);
        }
    }
}

TESTS(NULL)
