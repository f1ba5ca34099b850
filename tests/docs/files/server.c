/* SPDX-License-Identifier: MIT */
/* server.c: the program of the documents' commands: allocates for a moment, leaks a little, ends.
 * With --stay it goes on until a signal ends it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 2000 };

static void *slots[SLOTS];
void *leaked[100];

int main(int count, char **arguments)
{
    struct timespec pause = {0, 1000000};
    int stays = count > 1 && strcmp(arguments[1], "--stay") == 0;
    for (unsigned round = 0; stays || round < 100; round++) {
        for (unsigned i = 0; i < SLOTS; i++) {
            unsigned slot = (i * 7919u + round) % SLOTS;
            free(slots[slot]);
            slots[slot] = malloc(16 + (i * 31u + round) % 3000);
            memset(slots[slot], 1, 16);
        }
        leaked[round % 100] = malloc(20000);
        nanosleep(&pause, NULL);
    }
    return 0;
}
