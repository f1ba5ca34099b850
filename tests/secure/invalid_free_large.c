/* SPDX-License-Identifier: MIT */
/* A pointer into a block of 200,000 bytes is freed. */
#include "bug.h"

BUG("no allocation starts here")
{
    unsigned char *block = make(200000);
    free(hide(block + 64));
}
