/* SPDX-License-Identifier: MIT */
/* questions.c: the secure form, preloaded, reports questions about freed blocks and sized frees
 * with another size than that of the request, and hands out first blocks at random places. */
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>

#include "child.h"

#define SWITCH_OFF "HAKMEM_ABORT_ON_SIZE=0"

/* The library has them; the C library may not. */
void free_sized(void *pointer, size_t size) __attribute__((weak));
void free_aligned_sized(void *pointer, size_t alignment, size_t size) __attribute__((weak));

/* --- bugs --- */

static void ask_freed(void)
{
    void *block = hide(malloc(100));
    free(hide(block));
    malloc_usable_size(hide(block));
}

static void ask_inside(void)
{
    malloc_usable_size((char *)hide(malloc(100)) + 16);
}

static void ask_misaligned(void)
{
    malloc_usable_size((char *)hide(malloc(100)) + 8);
}

static void free_one_more(void)
{
    free_sized(hide(malloc(100)), 101);
}

static void free_one_less(void)
{
    free_sized(hide(malloc(100)), 99);
}

static void free_large(void)
{
    free_sized(hide(malloc(200001)), 200002);
}

static void free_aligned(void)
{
    free_aligned_sized(hide(memalign(64, 640)), 64, 576);
}

static void free_huge(void)
{
    free_sized(hide(malloc((5 << 20) + 1)), 5 << 20); /* no whole pages, as pvalloc's are */
}

static void free_misaligned(void)
{
    char *block = hide(malloc(200001));
    size_t alignment = (uintptr_t)block & -(uintptr_t)block; /* what it has */
    free_aligned_sized(block, 2 * alignment, 200001);
}

static void free_resized(void)
{
    free_sized(hide(realloc(hide(malloc(100)), 102)), 100);
}

static const struct child_case bugs[] = {{ask_freed, "malloc_usable_size of a freed block"},
                                         {ask_inside, "at which no block starts"},
                                         {ask_misaligned, "at which no block starts"},
                                         {free_one_more, "sized free with another size"},
                                         {free_one_less, "sized free with another size"},
                                         {free_large, "sized free with another size"},
                                         {free_aligned, "sized free with another size"},
                                         {free_huge, "sized free with another size"},
                                         {free_misaligned, "an alignment that the block does not"},
                                         {free_resized, "sized free with another size"}};

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

int main(int count, char **arguments)
{
    check_first_places();
    check_right_sizes();
    if (count > 1) { /* the process itself: the switch is off */
        free_one_more();
        free_large();
        return 0;
    }
    require_cases(bugs, sizeof bugs / sizeof bugs[0]);
    putenv(SWITCH_OFF);
    execl(arguments[0], arguments[0], "off", (char *)NULL);
    perror(arguments[0]);
    return 1;
}
