/* SPDX-License-Identifier: MIT */
/* attacks_patience.c: what an attacker does who frees, waits, and allocates: how soon a freed block
 * is back, and whether writes to it are noticed then. */
#include "attacks.h"

enum { FIRST, BUSY }; /* the first blocks of their size, or after others */

static void come_back(const struct attack *attack)
{
    enum { COUNT = 20 };
    size_t needed[COUNT];
    if (attack->at == BUSY) {
        work(attack->size);
    }
    for (size_t i = 0; i < COUNT; i++) {
        uintptr_t block = (uintptr_t)make(attack->size);
        free((void *)block);
        for (needed[i] = 1; needed[i] < PAIRS_MAX; needed[i]++) {
            void *other = hide(malloc(attack->size));
            bool is_back = (uintptr_t)other == block;
            free(other);
            if (is_back) {
                break;
            }
        }
    }
    qsort(needed, COUNT, sizeof *needed, compare_addresses);
    figure("pairs_least", needed[0]);
    figure("pairs_median", needed[COUNT / 2]);
    exit(STATUS_MEASURED);
}

static void write_after_free(const struct attack *attack)
{
    unsigned char *before = make(attack->size), *block = make(attack->size);
    unsigned char *behind = make(attack->size);
    free(block);
    memset(hide(block + attack->at), 'w', 8);
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        void *other = hide(malloc(attack->size));
        bool is_back = other == block;
        free(other);
        if (is_back) {
            figure("handed_out", 1);
            break;
        }
    }
    free(before);
    free(behind);
}

#define COME_BACK(size)                                                                            \
    {                                                                                              \
        "reuse_" #size, "Pairs of malloc and free until a block of " #size " bytes is back",       \
            come_back, size, BUSY, 2                                                               \
    }
#define WRITE(size, at)                                                                            \
    {                                                                                              \
        "late_write_" #size "_" #at, "8 bytes at " #at " of a freed block of " #size,              \
            write_after_free, size, at, 0                                                          \
    }

const struct attack patience_attacks[] = {COME_BACK(16),
                                          COME_BACK(64),
                                          COME_BACK(256),
                                          COME_BACK(1000),
                                          COME_BACK(4000),
                                          COME_BACK(16000),
                                          COME_BACK(60000),
                                          COME_BACK(200000),
                                          {"reuse_200000_first",
                                           "Pairs until the first freed block of 200000 is back",
                                           come_back, 200000, FIRST, 2},
                                          WRITE(24, 0),
                                          WRITE(24, 8),
                                          WRITE(24, 16),
                                          WRITE(100, 0),
                                          WRITE(100, 48),
                                          WRITE(100, 92),
                                          WRITE(1000, 496),
                                          WRITE(1000, 992),
                                          WRITE(5000, 8),
                                          WRITE(5000, 2496),
                                          WRITE(5000, 4992),
                                          WRITE(30000, 15000),
                                          WRITE(60000, 59992),
                                          {0}};
