/* SPDX-License-Identifier: MIT */
/* test_limit.c: hak_limit_set: the hard limit holds whatever is asked for, and everything below it
 * can be had in any shape; the soft one gives memory back and tells.
 * ctest: no-secure */
#include "exhaust.h"

#include <hakmem/control.h>

static size_t mapped_bytes(void)
{
    struct hak_stats stats = stats_now();
    return stats.bytes_mapped + stats.bytes_metadata;
}

static void hard_limit(void *argument)
{
    const size_t available = 64 * MIB;
    size_t limit = mapped_bytes() + available;
    hak_limit_set(SIZE_MAX, limit, NULL, NULL);
    exhaust_memory(available);
    REQUIRE_SIZE(mapped_bytes(), <=, limit);
    hak_limit_set(SIZE_MAX, SIZE_MAX, NULL, NULL);
    void *block = hak_malloc(4 * available);
    REQUIRE(block != NULL);
    hak_free(block);
}

TEST(hard_limit)
{
    REQUIRE_LIFE(hard_limit, NULL, NULL);
}

/* A block that cannot move gives back what it need not have, and has the size asked for. */
static void shrink_without_memory(void *argument)
{
    size_t size = *(size_t *)argument, less = 30000;
    struct node *head = NULL;
    char *block = hak_malloc(size);
    REQUIRE(block != NULL);
    block[0] = block[less - 1] = 's';
    hak_limit_set(SIZE_MAX, mapped_bytes(), NULL, NULL);
    fill_memory(less, &head);
    REQUIRE(hak_realloc(block, less) == block);
    REQUIRE(block[0] == 's' && block[less - 1] == 's');
    REQUIRE_SIZE(hak_usable_size(block), >=, less);
    REQUIRE_SIZE(hak_usable_size(block), <, size);
    hak_free_sized(block, less);
}

TEST(shrink_without_memory)
{
    static size_t sizes[] = {100000, 1 * MIB, 5 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_LIFE(shrink_without_memory, &sizes[i], NULL);
    }
}

enum { BLOCKS = 4096, BLOCK_SIZE = 16384 };

struct told {
    size_t count;
    size_t mapped;
};

/* It may allocate and free, and set errno. */
static void tell(size_t mapped, void *argument)
{
    struct told *told = argument;
    void *block = hak_malloc(100);
    REQUIRE(block != NULL);
    hak_free(block);
    told->count++;
    told->mapped = mapped;
    errno = EDOM;
}

/* A free that finds the limit exceeded and tells keeps errno, whatever the callback does to it. */
static void errno_of_free(void *argument)
{
    static void *blocks[BLOCKS];
    size_t size = *(size_t *)argument;
    size_t count = size > 64 * 1024 ? 1 : BLOCKS; /* one of many small ones finds its bin full */
    struct told told = {0, 0};
    ALLOCATE_ALL(blocks, count, size);
    hak_limit_set(1, SIZE_MAX, tell, &told);
    errno = ENOTTY;
    for (size_t i = 0; i < count; i++) {
        hak_free(blocks[i]);
        REQUIRE(errno == ENOTTY);
    }
    REQUIRE_SIZE(told.count, ==, 1);
}

TEST(errno_of_free)
{
    static size_t sizes[] = {100, 5000, 100000, 4 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_LIFE(errno_of_free, &sizes[i], NULL);
    }
}

/* 64 MiB, and none fails. */
static void use_much(void)
{
    static void *blocks[BLOCKS];
    ALLOCATE_WRITTEN(blocks, BLOCKS, BLOCK_SIZE);
    FREE_ALL(blocks, BLOCKS);
}

static void soft_limit(void *argument)
{
    struct told told = {0, 0};
    size_t limit = mapped_bytes() + 16 * MIB;
    hak_limit_set(limit, SIZE_MAX, tell, &told);
    REQUIRE_SIZE(told.count, ==, 0);
    use_much();
    REQUIRE_SIZE(told.count, ==, 1);
    REQUIRE_SIZE(told.mapped, >, limit);
    REQUIRE_SIZE(told.mapped, <, limit + 24 * MIB);
    for (size_t i = 0; i < 400; i++) { /* some work, with little memory */
        for (size_t j = 0; j < 256; j++) {
            hak_free(hide(hak_malloc(300000))); /* a span: a slow operation */
        }
        usleep(1000);
    }
    REQUIRE_SIZE(stats_now().bytes_free_dirty, <, 4 * MIB);
    REQUIRE_SIZE(mapped_bytes(), <=, limit); /* addresses go, too */
    REQUIRE_SIZE(told.count, ==, 1);
    use_much();
    REQUIRE_SIZE(told.count, ==, 2);
    hak_limit_set(SIZE_MAX, SIZE_MAX, tell, &told);
    use_much();
    REQUIRE_SIZE(told.count, ==, 2);
}

/* One allocation may be all that it takes. */
static void soft_limit_at_once(void *argument)
{
    struct told told = {0, 0};
    hak_limit_set(mapped_bytes() + 32 * MIB, SIZE_MAX, tell, &told);
    for (size_t times = 1; times <= 3; times++) {
        void *block = hak_malloc(100 * MIB);
        REQUIRE(block != NULL);
        REQUIRE_SIZE(told.count, ==, times);
        REQUIRE_SIZE(told.mapped, >=, 100 * MIB);
        hak_free(block); /* not kept above the limit, sparse as it is */
    }
}

TEST(soft_limit)
{
    REQUIRE_LIFE(soft_limit, NULL, NULL);
    REQUIRE_LIFE(soft_limit_at_once, NULL, NULL);
}

TESTS(NULL)
