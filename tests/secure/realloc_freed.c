/* SPDX-License-Identifier: MIT */
/* A freed block is given to realloc. */
#include "bug.h"

BUG("double free")
{
    unsigned char *block = make(100);
    free(block);
    block = (unsigned char *)realloc(hide(block), 1000);
    free(block);
}
