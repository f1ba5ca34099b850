/* SPDX-License-Identifier: MIT */
/* watch.h: waits for a program, for hakmem-run and hakmem-trace, and ends as it did. */
#ifndef RUN_WATCH_H
#define RUN_WATCH_H

#include <stdbool.h>

/* False: in a new process, which is to become the program. True: this process has waited for it,
 * and has its status. If there is no new process, removes the file (NULL: none) and ends. */
bool watch_program(const char *file, int *status);

/* As the program has: by its signal, of which the shell tells. The program has left the core. */
_Noreturn void watch_end_as(int status);

#endif
