/* SPDX-License-Identifier: MIT */
/* watched.h: a test that may hang runs in a child, under a watchdog: HANG_SECONDS without progress
 * end it. Then gdb, if it is there, writes the stacks of all threads of the processes that hang to
 * standard error.
 */
#ifndef TESTS_OVERRIDE_WATCHED_H
#define TESTS_OVERRIDE_WATCHED_H

#include "override.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

enum { HANG_SECONDS = 60 };
/* A child that hangs outlives the watchdog's patience, so that its stacks are seen. It ends by
 * itself if the watchdog was killed. */
enum { CHILD_SECONDS = 4 * HANG_SECONDS };

typedef void watched_body(const void *argument, size_t count, int progress);

static inline void note_progress(int progress)
{
    CHECK(write(progress, "", 1) == 1);
}

/* Writes the stacks of `worker` and its descendants to standard error, and kills its children. gdb
 * runs without the environment, which would preload hakmem. */
static inline void show_stacks(pid_t worker)
{
    char command[1000];
    snprintf(command, sizeof command,
             "show() { local child; grep -H State /proc/$1/status; gdb -q -batch -p $1 "
             "-ex 'info threads' -ex 'thread apply all bt' 2>&1; for child in "
             "$(cat /proc/$1/task/*/children); do show $child; kill -9 $child; done; }; "
             "show %d 1>&2",
             (int)worker);
    char shell[] = "sh", option[] = "-c", path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    char *const arguments[] = {shell, option, command, NULL}, *const environment[] = {path, NULL};
    pid_t child = fork();
    if (child == 0) {
        execve("/bin/sh", arguments, environment);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

/* Runs `body` in a child, which notes its progress. */
static inline void watch(const char *name, watched_body *body, const void *argument, size_t count)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t worker = fork();
    CHECK(worker >= 0);
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        body(argument, count, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    struct pollfd wanted = {ends[0], POLLIN, 0};
    char signs[256];
    do {
        if (poll(&wanted, 1, HANG_SECONDS * 1000) == 0) {
            dprintf(2, "fork beside %s hangs\n", name);
            show_stacks(worker);
            kill(worker, SIGKILL);
        }
    } while (read(ends[0], signs, sizeof signs) > 0);
    close(ends[0]);
    wait_for_success(worker, name);
}

#endif
