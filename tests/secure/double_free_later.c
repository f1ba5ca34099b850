/* SPDX-License-Identifier: MIT */
/* A block is freed, then much else, then the block again. */
#include "bug.h"

BUG("double free")
{
    unsigned char *keep = make(48), *block = make(48);
    free(block);
    for (int i = 0; i < 20; i++) {
        unsigned char *others[200];
        for (int k = 0; k < 200; k++) {
            others[k] = make(16 * (size_t)(k % 60 + 4));
        }
        for (int k = 0; k < 200; k++) {
            if (others[k] == block) {
                return; /* it has a new owner: that is double_free_reused.c */
            }
        }
        for (int k = 0; k < 200; k += 2) {
            free(others[k]);
        }
    }
    free(hide(block));
    free(keep);
}
