/* SPDX-License-Identifier: MIT */
/* The program writes the 8 bytes before a block. */
#include "bug.h"

BUG("overflow")
{
    unsigned char *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = make(40);
    }
    memset(hide(blocks[32] - 8), 'u', 8);
    for (int i = 0; i < 64; i++) {
        free(blocks[i]);
    }
    work(40);
}
