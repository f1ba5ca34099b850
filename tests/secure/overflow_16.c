/* SPDX-License-Identifier: MIT */
/* The program writes 16 bytes beyond a block of 24. */
#include "bug.h"

BUG("overflow")
{
    unsigned char *block = make(24);
    for (int i = 0; i < 16; i++) {
        block[24 + i] = 'o';
    }
    free(hide(block));
}
