/* SPDX-License-Identifier: MIT */
/* watch.c: waits for the program, for what is to be said when it has ended. See launch.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

char *watch_file(void)
{
    const char *folder = getenv("TMPDIR");
    char *file =
        words_join("%s/hakmem-report-XXXXXX", folder != NULL && folder[0] == '/' ? folder : "/tmp");
    int descriptor = mkstemp(file);
    if (descriptor < 0) {
        words_die(STATUS_FAILED, "cannot write %s: %s", file, strerror(errno));
    }
    close(descriptor);
    return file;
}

/* Waits for the program. What others send to this process is for the program; what the terminal
 * sends has reached it already. */
static int wait_for(pid_t program, const sigset_t *signals)
{
    int status;
    while (waitpid(program, &status, WNOHANG) == 0) {
        siginfo_t came;
        if (sigwaitinfo(signals, &came) > 0 && came.si_signo != SIGCHLD && came.si_code <= 0) {
            kill(program, came.si_signo);
        }
    }
    return status;
}

bool watch_program(const char *file, int *status)
{
    const int passed[] = {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    sigset_t signals, before;
    pid_t child;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        sigaddset(&signals, passed[i]);
    }
    sigprocmask(SIG_BLOCK, &signals, &before);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that takes too long is killed, and we are it */
        sigprocmask(SIG_SETMASK, &before, NULL);
        return false;
    }
    if (child < 0) {
        int error = errno;
        unlink(file);
        words_die(STATUS_FAILED, "cannot start a process: %s", strerror(error));
    }
    *status = wait_for(child, &signals);
    return true;
}
