/* SPDX-License-Identifier: MIT */
/* A pointer into a block of 5 MiB is freed. */
#include "bug.h"

BUG("inside an allocation")
{
    unsigned char *block = make(5 << 20);
    free(hide(block + 4096));
}
