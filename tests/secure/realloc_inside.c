/* SPDX-License-Identifier: MIT */
/* A pointer into a block is given to realloc. */
#include "bug.h"

BUG("invalid free (no object starts here)")
{
    unsigned char *block = make(100);
    block = (unsigned char *)realloc(hide(block + 16), 1000);
}
