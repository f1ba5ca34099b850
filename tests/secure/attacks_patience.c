/* SPDX-License-Identifier: MIT */
/* attacks_patience.c: what an attacker does who frees, waits, and allocates: how soon a freed block
 * is back, and whether writes to it are noticed then. */
#include "attacks.h"

enum { FIRST, BUSY }; /* the first block of its size, or 20 after others */

static void come_back(const struct attack *attack)
{
    enum { COUNT = 20 };
    size_t needed[COUNT], count = attack->at == BUSY ? COUNT : 1;
    if (attack->at == BUSY) {
        work(attack->size);
    }
    for (size_t i = 0; i < count; i++) {
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
    qsort(needed, count, sizeof *needed, compare_addresses);
    figure("pairs_least", needed[0]);
    figure("pairs_median", needed[count / 2]);
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
    for (size_t i = 0; i < 1000; i++) { /* it may lie behind what the pairs exchange */
        (void)hide(malloc(attack->size));
    }
    free(before);
    free(behind);
}

const struct attack patience_attacks[] = {
    {"reuse_16", "Pairs of malloc and free until a block of 16 is back", come_back, 16, BUSY, 2},
    {"reuse_64", "Pairs of malloc and free until a block of 64 is back", come_back, 64, BUSY, 2},
    {"reuse_256", "Pairs of malloc and free until a block of 256 is back", come_back, 256, BUSY, 2},
    {"reuse_1000", "Pairs of malloc and free until a block of 1,000 is back", come_back, 1000, BUSY,
     2},
    {"reuse_4000", "Pairs of malloc and free until a block of 4,000 is back", come_back, 4000, BUSY,
     2},
    {"reuse_16000", "Pairs of malloc and free until a block of 16,000 is back", come_back, 16000,
     BUSY, 2},
    {"reuse_60000", "Pairs of malloc and free until a block of 60,000 is back", come_back, 60000,
     BUSY, 2},
    {"reuse_200000", "Pairs of malloc and free until a block of 200,000 is back", come_back, 200000,
     BUSY, 2},
    {"reuse_200000_first", "Pairs until the first block of 200,000 is back", come_back, 200000,
     FIRST, 2},
    {"late_write_24_0", "8 bytes at 0 of a freed block of 24", write_after_free, 24, 0, 0},
    {"late_write_24_8", "8 bytes at 8 of a freed block of 24", write_after_free, 24, 8, 0},
    {"late_write_24_16", "8 bytes at 16 of a freed block of 24", write_after_free, 24, 16, 0},
    {"late_write_100_0", "8 bytes at 0 of a freed block of 100", write_after_free, 100, 0, 0},
    {"late_write_100_48", "8 bytes at 48 of a freed block of 100", write_after_free, 100, 48, 0},
    {"late_write_100_92", "8 bytes at 92 of a freed block of 100", write_after_free, 100, 92, 0},
    {"late_write_1000_496", "8 bytes at 496 of one of 1,000", write_after_free, 1000, 496, 0},
    {"late_write_1000_992", "8 bytes at 992 of one of 1,000", write_after_free, 1000, 992, 0},
    {"late_write_5000_8", "8 bytes at 8 of one of 5,000", write_after_free, 5000, 8, 0},
    {"late_write_5000_2496", "8 bytes at 2,496 of one of 5,000", write_after_free, 5000, 2496, 0},
    {"late_write_5000_4992", "8 bytes at 4,992 of one of 5,000", write_after_free, 5000, 4992, 0},
    {"late_write_30000_15000", "8 bytes in the middle of a freed block of 30,000", write_after_free,
     30000, 15000, 0},
    {"late_write_60000_59992", "The last 8 bytes of a freed block of 60,000", write_after_free,
     60000, 59992, 0},
    {0}};
