/* SPDX-License-Identifier: MIT */
/* A pointer that is no multiple of 16 is freed. */
#include "bug.h"

BUG("invalid free (no object starts here)")
{
    unsigned char *block = make(100);
    free(hide(block + 8));
    work(100);
}
