/* SPDX-License-Identifier: MIT */
/* The program writes 1 byte beyond a block of 24. */
#include "bug.h"

BUG("overflow")
{
    unsigned char *block = make(24);
    for (int i = 0; i < 1; i++) {
        block[24 + i] = 'n'; /* even, which the canary's first byte never is */
    }
    free(hide(block));
}
