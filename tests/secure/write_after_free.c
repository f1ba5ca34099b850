/* SPDX-License-Identifier: MIT */
/* The program writes to a block that it has freed. */
#include "bug.h"

BUG("freed object was written")
{
    unsigned char *block = make(80);
    free(block);
    unsigned char *dangling = (unsigned char *)hide(block);
    dangling[40] = 'w';
    for (int i = 0; i < 100; i++) {
        work(80);
    }
    for (int i = 0; i < 5000; i++) { /* whichever free object it is now, it is handed out */
        make(80);
    }
}
