/* SPDX-License-Identifier: MIT */
/* A pointer to memory that was never handed out is freed. */
#include "bug.h"

BUG("invalid free")
{
    unsigned char *block = make(100);
    free(hide((unsigned char *)((uintptr_t)block / 32768 * 32768 + 32768 - 112 * 2)));
    work(100);
}
