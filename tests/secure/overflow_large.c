/* SPDX-License-Identifier: MIT */
/* The program writes beyond a block of 200,000 bytes. */
#include "bug.h"

BUG("access beyond the end of a block")
{
    unsigned char *block = make(200000);
    block[200000] = 'o';
    free(hide(block));
}
