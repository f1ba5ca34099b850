/* SPDX-License-Identifier: MIT */
/* replace.h: threads that allocate and free blocks of all tiers until they are told to stop, beside
 * what a test does meanwhile. */
#ifndef TESTS_THREADS_REPLACE_H
#define TESTS_THREADS_REPLACE_H

#include "threads.h"

enum { SLOTS = 256 };

static int shared_stop;

/* Replaces blocks of all tiers, each with a mark at its ends. */
static inline void *replace(void *argument)
{
    unsigned char *blocks[SLOTS] = {NULL};
    size_t sizes[SLOTS] = {0};
    uint64_t random = (uintptr_t)argument;
    for (uint32_t i = 0; !__atomic_load_n(&shared_stop, __ATOMIC_RELAXED); i++) {
        size_t slot = random_below(&random, SLOTS);
        if (blocks[slot] != NULL) {
            REQUIRE(blocks[slot][0] == (unsigned char)slot);
            REQUIRE(blocks[slot][sizes[slot] - 1] == (unsigned char)slot);
            hak_free(blocks[slot]);
        }
        size_t most = i % 4096 == 0 ? 3 * MIB : i % 64 == 0 ? 200 * KIB : 2 * KIB;
        sizes[slot] = 1 + random_below(&random, most);
        blocks[slot] = hak_malloc(sizes[slot]);
        REQUIRE(blocks[slot] != NULL);
        blocks[slot][0] = blocks[slot][sizes[slot] - 1] = (unsigned char)slot;
    }
    FREE_ALL(blocks, SLOTS);
    return NULL;
}

#endif
