/* SPDX-License-Identifier: MIT */
/* A pointer into a block is freed. */
#include "bug.h"

BUG("invalid free (no object starts here)")
{
    unsigned char *block = make(100);
    free(hide(block + 16));
    work(100);
}
