/* SPDX-License-Identifier: MIT */
/* The parent frees a block, and its child does so again. */
#include "bug.h"
#include <sys/wait.h>
#include <unistd.h>

BUG("double free")
{
    unsigned char *block = make(64);
    int status = 0;
    free(block);
    pid_t pid = fork();
    if (pid == 0) {
        free(hide(block));
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
        abort();
    }
}
