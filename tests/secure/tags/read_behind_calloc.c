/* SPDX-License-Identifier: MIT */
/* The program reads 8 bytes behind a cleared block of 3,000 bytes. Only memory tags notice that. */
#include "../bug.h"

BUG("memory tag")
{
    volatile unsigned char *block = (unsigned char *)hide(calloc(1, 3000));
    for (size_t i = 0; i < 3000; i++) {
        block[i] = 1;
    }
    (void)block[3080];
}
