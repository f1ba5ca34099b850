/* SPDX-License-Identifier: MIT */
/* The program writes a byte beyond a block of 5,112. */
#include "bug.h"

BUG("overflow")
{
    size_t size = 5112;
    unsigned char *block = make(size);
    block[size] = 'n'; /* even, which the canary's first byte never is */
    free(hide(block));
}
