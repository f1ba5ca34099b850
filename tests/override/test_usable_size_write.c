/* SPDX-License-Identifier: MIT */
/* test_usable_size_write.c: code compiled with _FORTIFY_SOURCE=3 may write all malloc_usable_size()
 * bytes (systemd #22801). That no two blocks share one is asked by model/. */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 3 /* needs optimisation; without it glibc says so in a warning */
#include "override.h"

#include <malloc.h>

static void check_filled(const unsigned char *block, int value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        CHECK_EQUAL(block[i], value);
    }
}

/* The compiler knows nothing of the block's size; then a realloc tells it the larger one, as
 * systemd does. It stays where it is, and keeps what was written there. */
static void write_usable(size_t size)
{
    unsigned char *block = malloc(opaque_size(size));
    CHECK(block != NULL);
    memset(block, 'x', size);
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= size);
    memset(opaque_pointer(block), 'y', opaque_size(usable));
    block = realloc(block, usable);
    CHECK(block != NULL && malloc_usable_size(block) >= usable);
    check_filled(block, 'y', usable);
    memset(block, 'z', usable);
    block = realloc(block, usable + usable / 2 + 1);
    CHECK(block != NULL);
    check_filled(block, 'z', usable);
    free(block);
}

int main(void)
{
    prove_served();
    for (size_t size = 1; size < 20000000; size += size < 5000 ? 1 : size / 9) {
        write_usable(size);
    }
    return 0;
}
