/* SPDX-License-Identifier: MIT */
/* A block of 200,000 bytes is freed twice. */
#include "bug.h"

BUG("no allocation starts here")
{
    unsigned char *block = make(200000);
    free(block);
    free(hide(block));
}
