/* SPDX-License-Identifier: MIT */
/* The program reads a block of 200,000 bytes that it has freed. */
#include "bug.h"

BUG("use after free")
{
    unsigned char *block = make(200000);
    free(block);
    if (((volatile unsigned char *)hide(block))[100000] == 'm') {
        harmed();
    }
}
