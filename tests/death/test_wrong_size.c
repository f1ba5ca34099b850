/* SPDX-License-Identifier: MIT */
/* test_wrong_size.c: a sized free with a size that cannot have been asked for is found. */
#include "../child.h"

struct sizes {
    size_t asked;
    size_t told;
};

static void free_with_size(void *argument)
{
    const struct sizes *sizes = argument;
    void *block = hide(hak_malloc(sizes->asked));
    REQUIRE(block != NULL);
    hak_free_sized(block, sizes->told);
}

static void free_at_with_size(void *argument)
{
    const struct sizes *sizes = argument;
    void *block = hide(hak_malloc(sizes->asked));
    REQUIRE(block != NULL);
    hak_free_at(block, sizes->told, 1);
}

static void free_aligned_with_size(void *argument)
{
    const struct sizes *sizes = argument;
    void *block = hide(hak_aligned_alloc(16, sizes->asked));
    REQUIRE(block != NULL);
    hak_free_aligned_sized(block, 16, sizes->told);
}

TEST(too_large)
{
    static struct sizes cases[] = {
        {16, 17},          {100, 200},         {1000, 100000},  {5000, 8000},
        {800000, 2 * MIB}, {8 * MIB, 9 * MIB}, {100, SIZE_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(free_with_size, &cases[i],
                      "^hakmem: fatal: .*sized free.*pointer 0x[0-9a-f]+");
        REQUIRE_DEATH(free_at_with_size, &cases[i],
                      "^hakmem: fatal: .*sized free.*pointer 0x[0-9a-f]+");
        REQUIRE_DEATH(free_aligned_with_size, &cases[i],
                      "^hakmem: fatal: .*sized free.*pointer 0x[0-9a-f]+");
    }
}

/* What is right is never refused. */
TEST(right_size)
{
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        struct sizes right = {tier_sizes[i], tier_sizes[i]};
        REQUIRE_LIFE(free_with_size, &right, NULL);
        REQUIRE_LIFE(free_at_with_size, &right, NULL);
        REQUIRE_LIFE(free_aligned_with_size, &right, NULL);
    }
}

TESTS(NULL)
