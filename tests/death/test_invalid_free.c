/* SPDX-License-Identifier: MIT */
/* test_invalid_free.c: pointers into the middle of allocations, or to where nothing was allocated.
 */
#include "../child.h"
#include "../threads/threads.h"

struct interior {
    size_t size;
    size_t offset;
};

static void free_interior(void *argument)
{
    const struct interior *interior = argument;
    char *block = hide(hak_malloc(interior->size));
    REQUIRE(block != NULL);
    hak_free(hide(block + interior->offset));
}

static void realloc_interior(void *argument)
{
    const struct interior *interior = argument;
    char *block = hide(hak_malloc(interior->size));
    REQUIRE(block != NULL);
    block = hide(hak_realloc(hide(block + interior->offset), interior->size * 2));
}

static void usable_size_interior(void *argument)
{
    const struct interior *interior = argument;
    char *block = hide(hak_malloc(interior->size));
    REQUIRE(block != NULL);
    REQUIRE(hak_usable_size(hide(block + interior->offset)) == 0);
}

/* In front of an allocation that does not start where its span does. */
static void free_in_front(void *argument)
{
    size_t size = *(const size_t *)argument;
    char *block;
    do {
        block = hide(hak_malloc(size));
        REQUIRE(block != NULL);
    } while ((uintptr_t)block % 4096 == 0);
    hak_free(hide(block - (uintptr_t)block % 4096));
}

TEST(in_front_of_allocations)
{
    static size_t sizes[] = {70000, 98000, 800000, 1900000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_DEATH(free_in_front, &sizes[i],
                      "^hakmem: fatal: invalid (pointer|free).*pointer 0x[0-9a-f]+");
    }
}

TEST(inside_spans_and_huge)
{
    static struct interior cases[] = {
        {800000, 16},          {800000, 8},      {800000, 4096},     {800000, 65536},
        {800000, 65536 * 5},   {800000, 799999}, {2 * MIB, MIB},     {8 * MIB, 16},
        {8 * MIB, 4096},       {8 * MIB, 65536}, {8 * MIB, 4 * MIB}, {8 * MIB, 8 * MIB - 1},
        {100 * MIB, 64 * MIB},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(free_interior, &cases[i],
                      "^hakmem: fatal: invalid (pointer|free).*pointer 0x[0-9a-f]+");
        REQUIRE_DEATH(realloc_interior, &cases[i],
                      "^hakmem: fatal: invalid (pointer|free).*pointer 0x[0-9a-f]+");
        REQUIRE_DEATH(usable_size_interior, &cases[i],
                      "^hakmem: fatal: invalid pointer.*pointer 0x[0-9a-f]+");
    }
}

TEST(inside_small_objects)
{
    static struct interior cases[] = {{64, 16},    {64, 8},      {64, 1},
                                      {1000, 512}, {5000, 4096}, {65536, 32768}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(free_interior, &cases[i],
                      "^hakmem: fatal: invalid (pointer|free).*pointer 0x[0-9a-f]+");
    }
}

/* The library manages the address, but nothing lies there: the region was freed and its memory
 * given back. */
static void free_where_nothing_is(void *argument)
{
    size_t offset = *(size_t *)argument;
    void *keep = hak_malloc(100);
    char *block = hide(hak_malloc(1536 * KIB));
    REQUIRE(keep != NULL && block != NULL);
    hak_free(block);
    hak_trim(0);
    hak_free(hide(block + offset));
}

TEST(where_nothing_is)
{
    static size_t offsets[] = {0, 16, 65536, MIB};
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        REQUIRE_DEATH(free_where_nothing_is, &offsets[i], "^hakmem: fatal: .*pointer 0x[0-9a-f]+");
    }
}

static void *free_first(void *argument)
{
    hak_free(argument);
    return NULL;
}

/* By a thread that has done nothing else. */
static void free_by_a_new_thread(void *argument)
{
    size_t offset = *(size_t *)argument;
    char *block = hide(hak_malloc(1536 * KIB));
    REQUIRE(block != NULL);
    thread_join(thread_start(free_first, hide(block + offset)));
}

TEST(by_a_new_thread)
{
    static size_t offsets[] = {16, 65536, 65536 + 16, MIB};
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        REQUIRE_DEATH(free_by_a_new_thread, &offsets[i],
                      "^hakmem: fatal: invalid pointer.*pointer 0x[0-9a-f]+");
    }
}

TESTS(NULL)
