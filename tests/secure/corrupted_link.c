/* SPDX-License-Identifier: MIT */
/* The program overwrites the first word of a freed block with an address of its own. */
#include "bug.h"

BUG("corrupted free list")
{
    static unsigned char target[4096] __attribute__((aligned(4096)));
    void *blocks[3000];
    for (int i = 0; i < 3000; i++) {
        blocks[i] = make(80);
    }
    for (int i = 0; i < 3000; i++) {
        free(blocks[i]);
    }
    for (int i = 0; i < 3000; i++) {
        void *address = target;
        memcpy(hide(blocks[i]), &address, sizeof address);
    }
    for (int i = 0; i < 3000; i++) {
        if (malloc(80) == target) {
            harmed();
        }
    }
}
