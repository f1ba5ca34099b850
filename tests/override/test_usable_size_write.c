/* SPDX-License-Identifier: MIT */
/* test_usable_size_write.c: malloc_usable_size() bytes may all be written, also by code compiled
 * with _FORTIFY_SOURCE=3 (systemd #22801), and touch no neighbour. */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 3 /* needs optimisation; without it glibc says so in a warning */
#include "override.h"

#include <malloc.h>

enum { NEIGHBOURS_COUNT = 64 };

/* The compiler knows nothing of the block's size: a fortified memset must not abort. */
static __attribute__((noinline)) void fill(void *block, int value, size_t size)
{
    memset(opaque_pointer(block), value, opaque_size(size));
}

static void check_filled(const unsigned char *block, int value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        CHECK_EQUAL(block[i], value);
    }
}

/* All blocks of a size, written to their ends, keep their contents. */
static void write_neighbours(size_t size, size_t count)
{
    unsigned char *blocks[NEIGHBOURS_COUNT];
    size_t usable[NEIGHBOURS_COUNT];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = get_memory(size);
        CHECK(blocks[i] != NULL);
        usable[i] = malloc_usable_size(blocks[i]);
        CHECK(usable[i] >= size);
        CHECK_EQUAL(malloc_usable_size(blocks[i]), usable[i]); /* the same each time */
        fill(blocks[i], (int)i + 1, usable[i]);
    }
    for (size_t i = 0; i < count; i++) {
        check_filled(blocks[i], (int)i + 1, usable[i]);
    }
    /* A realloc to the usable size stays where it is, and keeps what was written there. */
    for (size_t i = 0; i < count; i++) {
        size_t kept = usable[i] + (usable[i] == 0); /* size 0 in the secure form: realloc frees */
        unsigned char *same = realloc(opaque_pointer(blocks[i]), opaque_size(kept));
        CHECK(same != NULL && malloc_usable_size(same) >= usable[i]);
        check_filled(same, (int)i + 1, usable[i]);
        /* Growing keeps all that was usable only as far as it was asked for: that is usable[i] now.
         */
        same = realloc(opaque_pointer(same), opaque_size(usable[i] + usable[i] / 2 + 1));
        CHECK(same != NULL);
        check_filled(same, (int)i + 1, usable[i]);
        give_back(same);
    }
}

/* What the compiler does see: fortified calls up to the size asked for. */
static void write_with_known_size(void)
{
    for (size_t size = 1; size < 5000; size += 13) {
        char *block = malloc(opaque_size(size));
        CHECK(block != NULL);
        memset(block, 'x', size);
        snprintf(block, size, "%s", "a longer text than the smallest blocks can hold");
        char *copy = strdup(block);
        CHECK(copy != NULL);
        strcpy(copy, block);
        /* The systemd idiom: the compiler is told the larger size by a realloc. */
        size_t usable = malloc_usable_size(block);
        block = realloc(block, usable);
        CHECK(block != NULL);
        memset(block, 'y', usable);
        free(copy);
        free(block);
    }
}

int main(void)
{
    prove_served();
    for (size_t size = 0; size < 3000; size += size < 1200 ? 1 : 37) {
        write_neighbours(size, NEIGHBOURS_COUNT);
    }
    for (size_t size = 3000; size < 80000; size += size / 9 + 1) {
        write_neighbours(size, 8);
    }
    for (size_t size = 80000; size < 20000000; size += size / 2 + 1) {
        write_neighbours(size, 3);
    }
    for (size_t alignment = 32; alignment <= 65536; alignment *= 4) {
        void *block = memalign(alignment, opaque_size(alignment + 1));
        CHECK(block != NULL);
        fill(block, 1, malloc_usable_size(block));
        give_back(block);
    }
    write_with_known_size();
    return 0;
}
