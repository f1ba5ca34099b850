/* SPDX-License-Identifier: MIT */
/* silent.c: a library that says that it is hakmem, and never comes back when its program is
 * attached to: see silent_program.c. */
#include <unistd.h>

char hak_observe_stack[65536];

void hak_observe_enter(void);
void hak_observe_enter(void)
{
    for (volatile unsigned turn = 0;; turn++) {
        if (turn > 1u << 28) { /* a processor is not to be busy for half a minute */
            usleep(100000);
        }
    }
}
