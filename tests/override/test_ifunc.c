/* SPDX-License-Identifier: MIT */
/* test_ifunc.c: the resolver of an indirect function allocates, while the loader still relocates
 * the program and has given no thread-local variable its initial value. The blocks stay valid, and
 * can be resized and freed in main.
 *
 * ctest: preload-only secure-too no-qemu */
#include "override.h"

enum { BLOCKS = 200, RESOLVED = 42 };

static const size_t sizes[] = {0, 1, 100, 1000, 5000, 70000, 3000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static unsigned char *blocks[BLOCKS];

static size_t size_of_block(size_t i)
{
    return sizes[i % SIZES];
}

static int answer(void)
{
    return RESOLVED;
}

__attribute__((used)) static int (*resolve(void))(void)
{
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
            blocks[i] = malloc(size_of_block(i));
            for (size_t byte = 0; blocks[i] != NULL && byte < size_of_block(i); byte++) {
                blocks[i][byte] = (unsigned char)i;
            }
        }
    }
    return answer;
}

int indirect(void) __attribute__((ifunc("resolve")));

int main(void)
{
    prove_served();
    CHECK(indirect() == RESOLVED);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] != NULL);
        unsigned char *grown = realloc(blocks[i], size_of_block(i) + 1);
        CHECK(grown != NULL);
        for (size_t byte = 0; byte < size_of_block(i); byte++) {
            CHECK(grown[byte] == (unsigned char)i);
        }
        free(grown);
    }
    return 0;
}
