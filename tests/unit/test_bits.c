/* SPDX-License-Identifier: MIT */
/* test_bits.c: base/bits, each function against a naive one that walks the bits. */
#include "unit.h"

static bool naive_bit(uint64_t map, uint32_t index)
{
    return index < 64 && (map >> index & 1) != 0;
}

static uint64_t naive_run_starts(uint64_t map, uint32_t count)
{
    uint64_t starts = 0;
    for (uint32_t first = 0; first + count <= 64; first++) {
        bool whole = true;
        for (uint32_t i = first; i < first + count; i++) {
            whole = whole && naive_bit(map, i);
        }
        starts |= (uint64_t)whole << first;
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

TEST(power_of_two)
{
    assert_false(bits_is_power_of_two(0));
    for (uint32_t i = 0; i < 64; i++) {
        size_t power = (size_t)1 << i;
        assert_true(bits_is_power_of_two(power));
        assert_int_equal(bits_is_power_of_two(power + 1), power == 1);
        assert_int_equal(bits_is_power_of_two(power - 1), power == 2);
        assert_int_equal(bits_is_power_of_two(power | 1), power == 1);
    }
}

TEST(lowest_log2_count)
{
    uint64_t random = 2;
    for (size_t round = 0; round < 20000; round++) {
        uint64_t map = round < 64 ? UINT64_C(1) << round : random_map(&random, 1 + round % 40);
        uint32_t lowest = 64, highest = 64, count = 0;
        for (uint32_t i = 0; i < 64; i++) {
            if (naive_bit(map, i)) {
                lowest = lowest == 64 ? i : lowest;
                highest = i;
                count++;
            }
        }
        assert_int_equal(bits_count(map), count);
        if (map != 0) {
            assert_int_equal(bits_lowest(map), lowest);
            assert_int_equal(bits_log2(map), highest);
        }
    }
    assert_int_equal(bits_count(0), 0);
    assert_int_equal(bits_count(UINT64_MAX), 64);
    assert_int_equal(bits_log2(UINT64_MAX), 63);
}

TEST(align)
{
    uint64_t random = 3;
    for (int round = 0; round < 20000; round++) {
        size_t alignment = (size_t)1 << random_below(&random, 40);
        size_t value = random_size(&random, 60);
        size_t down = bits_align_down(value, alignment);
        size_t up = bits_align_up(value, alignment);
        assert_int_equal(down % alignment, 0);
        assert_int_equal(up % alignment, 0);
        assert_true(down <= value && value - down < alignment);
        assert_true(up >= value && up - value < alignment);
    }
    assert_int_equal(bits_align_up(0, 4096), 0);
    assert_int_equal(bits_align_up(4096, 4096), 4096);
    assert_int_equal(bits_align_down(4095, 4096), 0);
}

TEST(mask)
{
    for (uint32_t first = 0; first < 64; first++) {
        for (uint32_t count = 0; first + count <= 64; count++) {
            uint64_t expected = 0;
            for (uint32_t i = first; i < first + count; i++) {
                expected |= UINT64_C(1) << i;
            }
            assert_true(bits_mask(first, count) == expected);
        }
    }
}

TEST(run_starts)
{
    static const uint64_t maps[] = {0,
                                    1,
                                    UINT64_MAX,
                                    UINT64_MAX - 1,
                                    UINT64_MAX >> 1,
                                    UINT64_C(0xaaaaaaaaaaaaaaaa),
                                    UINT64_C(0xffffffff00000000),
                                    UINT64_C(0x00000000ffffffff),
                                    UINT64_C(0xfffffffeffffffff)};
    uint64_t random = 4;
    for (size_t round = 0; round < 400; round++) {
        uint64_t map = round < COUNT_OF(maps) ? maps[round] : random_map(&random, 1 + round % 64);
        for (uint32_t count = 1; count <= 64; count++) {
            assert_true(bits_run_starts(map, count) == naive_run_starts(map, count));
        }
    }
}

TEST(longest_run)
{
    uint64_t random = 8;
    for (size_t round = 0; round < 4000; round++) {
        uint64_t map = random_map(&random, 1 + round % 64);
        map = round % 3 == 0 ? ~map : map;
        uint32_t longest = 0;
        for (uint32_t count = 1; count <= 64; count++) {
            longest = naive_run_starts(map, count) != 0 ? count : longest;
        }
        assert_int_equal(bits_longest_run(map), longest);
    }
    for (uint32_t first = 0; first < 64; first++) {
        for (uint32_t count = 0; first + count <= 64; count++) {
            assert_int_equal(bits_longest_run(bits_mask(first, count)), count);
        }
    }
    assert_int_equal(bits_longest_run(0), 0);
}

TEST(run_around)
{
    uint64_t random = 2;
    for (size_t round = 0; round < 20000; round++) {
        uint32_t first = (uint32_t)random_below(&random, 64);
        uint32_t count = 1 + (uint32_t)random_below(&random, 64 - first);
        uint64_t map = random_map(&random, 1 + round % 64) | bits_mask(first, count);
        map = round % 50 == 0 ? UINT64_MAX : map;
        uint32_t low = first, high = first + count;
        while (low != 0 && (map >> (low - 1) & 1) != 0) {
            low--;
        }
        while (high != 64 && (map >> high & 1) != 0) {
            high++;
        }
        assert_int_equal(bits_run_around(map, bits_mask(first, count)), high - low);
    }
}

TESTS(NULL)
