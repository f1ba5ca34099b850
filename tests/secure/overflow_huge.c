/* SPDX-License-Identifier: MIT */
/* The program writes beyond a block of 5 MiB. */
#include "bug.h"

BUG("access beyond the end of a block")
{
    unsigned char *block = make(5 << 20);
    block[5 << 20] = 'o';
    free(hide(block));
}
