/* SPDX-License-Identifier: MIT */
/* A block that was just allocated still holds what another one held. There is nothing to report:
 * the secure form has cleared it, so the program sees zeroes and ends itself. */
#include "bug.h"

BUG("the secret is gone")
{
    for (int round = 0; round < 200; round++) {
        unsigned char *block = make(200);
        memset(block, 's', 200);
        free(block);
        unsigned char *other = (unsigned char *)hide(malloc(200));
        for (int i = 0; i < 200; i++) {
            if (other[i] == 's') {
                harmed();
            }
        }
        free(other);
    }
    fputs("the secret is gone\n", stderr);
    abort();
}
