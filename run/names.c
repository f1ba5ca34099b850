/* SPDX-License-Identifier: MIT */
/* names.c: the names of functions in the guard's reports, for `./hakmem run`. See launch.h. The
 * library says addresses only: it may not start programs in a process that has failed. It writes
 * its report to a file of ours as well, which the package in Python reads in the end. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

static void print_names(const char *file)
{
    char *words[] = {words_join("/usr/bin/env"),
                     words_join("PATH=%s", launch.path),
                     words_join("python3"),
                     words_join("-IB"),
                     words_join("%s", launch.package),
                     words_join("--guard"),
                     words_join("%s", file),
                     NULL};
    pid_t child = fork();
    if (child == 0) {
        unsetenv("HAKMEM_GUARD");
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execv(words[0], words);
        _exit(STATUS_FAILED);
    }
    while (child > 0 && waitpid(child, NULL, 0) != child) {
    }
}

void names_watch(void)
{
    const char *guard = getenv("HAKMEM_GUARD"), *file = getenv("HAKMEM_GUARD_FILE");
    struct stat about;
    int status;
    if (guard == NULL || strspn(guard, "0") == strlen(guard) || file != NULL ||
        launch.package == NULL) {
        return;
    }
    file = words_file();
    if (!watch_program(file, &status)) {
        settings_add("guard_file", file);
        return;
    }
    if (stat(file, &about) == 0 && about.st_size != 0) {
        print_names(file);
    }
    unlink(file);
    watch_end_as(status);
}
