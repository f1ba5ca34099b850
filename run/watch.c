/* SPDX-License-Identifier: MIT */
/* watch.c: see watch.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
    struct sigaction told = {.sa_handler = SIG_DFL}, action;
    sigset_t signals, before;
    pid_t child;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        sigaddset(&signals, passed[i]);
    }
    sigprocmask(SIG_BLOCK, &signals, &before);
    sigaction(SIGCHLD, &told, &action); /* ignored, it would not say that the program ended */
    child = fork();
    if (child == 0) {
        sigaction(SIGCHLD, &action, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that takes too long is killed, and we are it */
        sigprocmask(SIG_SETMASK, &before, NULL);
        return false;
    }
    if (child < 0) {
        fprintf(stderr, "hakmem: cannot start a process: %s\n", strerror(errno));
        if (file != NULL) {
            unlink(file);
        }
        exit(125);
    }
    *status = wait_for(child, &signals);
    return true;
}

void watch_end_as(int status)
{
    if (WIFSIGNALED(status)) {
        sigset_t all;
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        raise(WTERMSIG(status));
    }
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
