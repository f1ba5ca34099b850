/* SPDX-License-Identifier: MIT */
/* A block of 5 MiB is freed twice. */
#include "bug.h"

BUG("double free")
{
    unsigned char *block = make(5 << 20);
    free(block);
    free(hide(block));
}
