/* SPDX-License-Identifier: MIT */
/* A block is freed twice in a row. */
#include "bug.h"

BUG("double free")
{
    unsigned char *block = make(100);
    free(block);
    free(hide(block));
    if (malloc(100) == malloc(100)) {
        harmed();
    }
}
