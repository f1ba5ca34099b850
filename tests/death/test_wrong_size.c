/* SPDX-License-Identifier: MIT */
/* test_wrong_size.c: a sized free with a size that cannot have been asked for is found. */
#include "../child.h"

struct sizes {
    size_t asked;
    size_t told;
    int way;
};
enum { WAYS = 3 };

static void free_with_size(void *argument)
{
    const struct sizes *sizes = argument;
    void *block =
        hide(sizes->way == 2 ? hak_aligned_alloc(16, sizes->asked) : hak_malloc(sizes->asked));
    REQUIRE(block != NULL);
    if (sizes->way == 0) {
        hak_free_sized(block, sizes->told);
    } else if (sizes->way == 1) {
        hak_free_at(block, sizes->told, 1);
    } else {
        hak_free_aligned_sized(block, 16, sizes->told);
    }
}

TEST(too_large)
{
    static const size_t cases[][2] = {
        {16, 17},          {100, 200},         {1000, 100000},  {5000, 8000},
        {800000, 2 * MIB}, {8 * MIB, 9 * MIB}, {100, SIZE_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(cases) * WAYS; i++) {
        struct sizes wrong = {cases[i / WAYS][0], cases[i / WAYS][1], (int)(i % WAYS)};
        REQUIRE_DEATH(
            free_with_size, &wrong,
            "^hakmem: fatal: sized free [^:]* \\([0-9]+\\): pointer 0x[0-9a-f]+, in a block of "
            "[0-9]+ bytes");
    }
}

/* What is right is never refused. */
TEST(right_size)
{
    for (size_t i = 0; i < COUNT_OF(tier_sizes) * WAYS; i++) {
        struct sizes right = {tier_sizes[i / WAYS], tier_sizes[i / WAYS], (int)(i % WAYS)};
        REQUIRE_LIFE(free_with_size, &right, NULL);
    }
}

TESTS(NULL)
