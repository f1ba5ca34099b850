/* SPDX-License-Identifier: MIT */
/* questions.c: the secure form, preloaded, reports questions about freed blocks, sized frees with
 * another size than that of the request, and each use of a block of size 0; each such block has an
 * address of its own; first blocks lie at random places. */

#include "child.h"

#define SWITCH_OFF "HAKMEM_ABORT_ON_SIZE=0"

/* The library has them; the C library may not. */
void free_sized(void *pointer, size_t size) __attribute__((weak));
void free_aligned_sized(void *pointer, size_t alignment, size_t size) __attribute__((weak));

/* --- bugs --- */

CASE(ask_freed, "malloc_usable_size of a freed block")
{
    void *block = hide(malloc(100));
    free(hide(block));
    malloc_usable_size(hide(block));
}

BUG_CASE(ask_inside, "at which no block starts", malloc_usable_size((char *)hide(malloc(100)) + 16))
BUG_CASE(free_one_more, "sized free with another size than that of the request (101): pointer",
         free_sized(hide(malloc(100)), 101))
BUG_CASE(free_large, "sized free with another size", free_sized(hide(malloc(200001)), 200002))
BUG_CASE(free_aligned, "sized free with another size",
         free_aligned_sized(hide(memalign(64, 640)), 64, 576))
BUG_CASE(free_huge, "sized free with another size",
         free_sized(hide(malloc((5 << 20) + 1)), 5 << 20)) /* no whole pages, as pvalloc's are */

CASE(free_misaligned, "an alignment that the block does not")
{
    char *block = hide(malloc(200001));
    size_t alignment = (uintptr_t)block & -(uintptr_t)block; /* what it has */
    free_aligned_sized(block, 2 * alignment, 200001);
}

BUG_CASE(free_resized, "sized free with another size",
         free_sized(hide(realloc(hide(malloc(100)), 102)), 100))

/* --- blocks of size 0 --- */

static void *make_empty(void)
{
    hide(malloc(1)); /* now this thread has free objects of the size that would serve */
    void *block = hide(malloc(0));
    if (block == NULL || (uintptr_t)block % 16 != 0 || malloc_usable_size(block) != 0) {
        fputs("malloc(0) is no block of 0 bytes\n", stderr);
        exit(1);
    }
    return block;
}

BUG_CASE(read_empty, "access to a block of size 0",
         _exit(*(volatile unsigned char *)make_empty() == 77))
BUG_CASE(write_empty, "access to a block of size 0", *(volatile unsigned char *)make_empty() = 1)
BUG_CASE(write_empty_of_calloc, "access to a block of size 0",
         *(volatile unsigned char *)hide(calloc(0, 10)) = 1)

CASE(write_empty_of_memalign, "access to a block of size 0")
{
    hide(malloc(1));
    *(volatile unsigned char *)hide(memalign(16, 0)) = 1;
}

CASE(free_empty_twice, "double free")
{
    void *block = make_empty();
    free(hide(block));
    for (int i = 0; i < 1000; i++) {
        make_empty();
    }
    free(hide(block));
}

BUG_CASE(free_inside_empty, "invalid free", free(hide((char *)make_empty() + 8)))

CASE(ask_freed_empty, "double free")
{
    void *block = make_empty();
    free(hide(block));
    malloc_usable_size(hide(block));
}

CASE(realloc_freed_empty, "double free")
{
    void *block = make_empty();
    free(hide(block));
    hide(realloc(hide(block), 10));
}

/* --- what must work --- */

static void check_right_sizes(void)
{
    static const size_t sizes[] = {1, 16, 100, 1000, 5000, 65656, 65657, 200000, 3000001, 4 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        free_sized(hide(malloc(sizes[i])), sizes[i]);
        free_sized(hide(calloc(1, sizes[i])), sizes[i]);
        free_sized(hide(realloc(hide(malloc(10)), sizes[i])), sizes[i]);
        free_aligned_sized(hide(memalign(64, sizes[i])), 64, sizes[i]);
    }
    free_sized(hide(malloc(0)), 0);
    free_aligned_sized(hide(memalign(64, 0)), 64, 0);
    free_aligned_sized(hide(memalign(1 << 17, 0)), 1 << 17, 0);
    free_aligned_sized(hide(memalign(1 << 23, 0)), 1 << 23, 0);
    free_sized(NULL, 10);
    free_aligned_sized(hide(pvalloc(100)), 4096, 100);
    free_aligned_sized(hide(pvalloc(100000)), 4096, 100000);
    free_aligned_sized(hide(pvalloc(5000000)), 4096, 5000000);
}

/* The first block of each class would start a page by chance in one of eight processes or fewer. */
static void check_first_places(void)
{
    bool moved = false;
    for (size_t size = 8; size <= 448; size += 16) {
        moved |= (uintptr_t)hide(malloc(size)) % 4096 != 0;
    }
    if (!moved) {
        fprintf(stderr, "the first block of each class starts its slab\n");
        exit(1);
    }
}

static int by_address(const void *a, const void *b)
{
    uintptr_t left = *(const uintptr_t *)a, right = *(const uintptr_t *)b;
    return left < right ? -1 : left > right;
}

/* The first have an address each; there are more than addresses. Each can be resized. */
static void check_empty(void)
{
    enum { MANY = 300000, DISTINCT = 4000 };
    static uintptr_t blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = (uintptr_t)make_empty();
    }
    qsort(blocks, DISTINCT, sizeof blocks[0], by_address);
    for (size_t i = 1; i < DISTINCT; i++) {
        if (blocks[i] == blocks[i - 1]) {
            fputs("two blocks of size 0 have one address\n", stderr);
            exit(1);
        }
    }
    for (size_t i = 0; i < MANY; i++) {
        free(hide((void *)blocks[i]));
    }
    char *block = realloc(make_empty(), 100), *zeroed = realloc(hide(calloc(1, 0)), 3);
    if (block == NULL || malloc_usable_size(block) != 100 || zeroed == NULL) {
        fputs("realloc of a block of size 0\n", stderr);
        exit(1);
    }
    memset(block, 1, 100);
    memset(zeroed, 1, 3);
    free(block);
    free(zeroed);
    free(realloc(hide(malloc(0)), 0));
}

int main(int count, char **arguments)
{
    check_first_places();
    check_right_sizes();
    check_empty();
    if (count > 1) { /* the process itself: the switch is off */
        free_one_more();
        free_large();
        return 0;
    }
    require_cases(run_case, "");
    putenv(SWITCH_OFF);
    execl(arguments[0], arguments[0], "off", (char *)NULL);
    perror(arguments[0]);
    return 1;
}
