/* SPDX-License-Identifier: MIT */
/* The program reads a block of 5 MiB that it has freed. */
#include "bug.h"

BUG("use after free")
{
    unsigned char *block = make(5 << 20);
    free(block);
    if (((volatile unsigned char *)hide(block))[1 << 20] == 'm') {
        harmed();
    }
}
