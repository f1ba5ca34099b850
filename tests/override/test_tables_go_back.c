/* SPDX-License-Identifier: MIT */
/* test_tables_go_back.c: the tables that describe free memory go back to the kernel together with
 * it. The secure form has a byte of states for 16 bytes of heap: a sixteenth of the peak.
 *
 * ctest: secure-too no-qemu
 */
#include "override.h"

enum { BLOCK = 2000, OTHER_BLOCK = 3900, COUNT = 40000 };
#define MIB ((size_t)1 << 20)
#define LEFT_MAX (6 * MIB) /* states of 240 MiB are 15 MiB */

static void *blocks[COUNT], *others[COUNT];

/* Slabs of the two sizes lie side by side, so that one OS page has the states of both. */
static void fill(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = get_memory(BLOCK);
        others[i] = get_memory(OTHER_BLOCK);
        CHECK(blocks[i] != NULL && others[i] != NULL);
        memset(blocks[i], 1, BLOCK);
        memset(others[i], 1, OTHER_BLOCK);
    }
}

static void empty(void **list, size_t keep_one_in)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (keep_one_in == 0 || i % keep_one_in != 0) {
            give_back(list[i]);
            list[i] = NULL;
        }
    }
}

int main(void)
{
    prove_served();
    give_back(get_memory(BLOCK));
    memset(blocks, 0, sizeof blocks);
    memset(others, 0, sizeof others);
    size_t before = resident_bytes();
    fill();
    empty(blocks, 0);
    malloc_trim(0);
    empty(others, 0); /* the second slices of the pages of states, at another purge */
    malloc_trim(0);
    size_t left = resident_bytes() - before;
    CHECK(left <= LEFT_MAX);

    fill(); /* states that came back as zero serve again */
    empty(blocks, 4000);
    empty(others, 4000);
    malloc_trim(0);
    left = resident_bytes() - before;
    CHECK(left <= LEFT_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        give_back(blocks[i]);
        give_back(others[i]);
    }
    return 0;
}
