/* SPDX-License-Identifier: MIT */
/* A string of 24 bytes is ended behind its block. */
#include "bug.h"

BUG("overflow")
{
    unsigned char *block = make(24);
    block[24] = '\0';
    free(hide(block));
}
