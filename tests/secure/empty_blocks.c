/* SPDX-License-Identifier: MIT */
/* empty_blocks.c: blocks of size 0 in the secure form, preloaded: no byte of one can be read or
 * written, each has an address of its own, and a second free of one is reported. */
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "child.h"

enum { MANY = 300000, DISTINCT = 4000 };

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *make(void)
{
    void *block = hide(malloc(0));
    if (block == NULL || (uintptr_t)block % 16 != 0 || malloc_usable_size(block) != 0) {
        fail("malloc(0) is no block of 0 bytes");
    }
    return block;
}

/* --- bugs --- */

static void read_one(void)
{
    _exit(*(volatile unsigned char *)make() == 77);
}

static void write_one(void)
{
    *(volatile unsigned char *)make() = 1;
}

static void write_of_calloc(void)
{
    *(volatile unsigned char *)hide(calloc(0, 10)) = 1;
}

static void free_twice(void)
{
    void *block = make();
    free(hide(block));
    for (int i = 0; i < 1000; i++) {
        make();
    }
    free(hide(block));
}

static void free_inside(void)
{
    free(hide((char *)make() + 8));
}

static void ask_freed(void)
{
    void *block = make();
    free(hide(block));
    malloc_usable_size(hide(block));
}

static void realloc_freed(void)
{
    void *block = make();
    free(hide(block));
    hide(realloc(hide(block), 10));
}

static const struct child_case bugs[] = {{read_one, "access to a block of size 0"},
                                         {write_one, "access to a block of size 0"},
                                         {write_of_calloc, "access to a block of size 0"},
                                         {free_twice, "double free"},
                                         {free_inside, "invalid free"},
                                         {ask_freed, "double free"},
                                         {realloc_freed, "double free"}};

/* --- what must work --- */

static int by_address(const void *a, const void *b)
{
    uintptr_t left = *(const uintptr_t *)a, right = *(const uintptr_t *)b;
    return left < right ? -1 : left > right;
}

static void check_distinct(void)
{
    static uintptr_t blocks[DISTINCT];
    for (size_t i = 0; i < DISTINCT; i++) {
        blocks[i] = (uintptr_t)make();
    }
    qsort(blocks, DISTINCT, sizeof blocks[0], by_address);
    for (size_t i = 0; i < DISTINCT; i++) {
        if (i != 0 && blocks[i] == blocks[i - 1]) {
            fail("two blocks have one address");
        }
    }
    for (size_t i = 0; i < DISTINCT; i++) {
        free(hide((void *)blocks[i]));
    }
}

/* More than there are addresses. */
static void check_many(void)
{
    static void *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = make();
    }
    for (size_t i = 0; i < MANY; i++) {
        free(blocks[i]);
    }
}

static void check_resized(void)
{
    char *block = realloc(make(), 100);
    if (block == NULL || malloc_usable_size(block) != 100) {
        fail("realloc of a block of size 0");
    }
    memset(block, 1, 100);
    free(block);
    free(realloc(hide(malloc(0)), 0));
    char *zeroed = realloc(hide(calloc(1, 0)), 3);
    memset(zeroed, 1, 3);
    free(zeroed);
}

int main(void)
{
    check_distinct();
    check_many();
    check_resized();
    require_cases(bugs, sizeof bugs / sizeof bugs[0]);
    return 0;
}
