/* SPDX-License-Identifier: MIT */
/* The program reads a small block that it has freed. Only memory tags notice that. */
#include "../bug.h"

BUG("memory tag")
{
    unsigned char *block = make(80);
    free(block);
    volatile unsigned char *dangling = (unsigned char *)hide(block);
    (void)dangling[40];
}
