/* SPDX-License-Identifier: MIT */
/* os_signal.c: handlers for signals that end the process. See os.h. */
#include "os/os.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

bool hak__os_catch_default(int signal, void (*handler)(int))
{
    int saved = errno;
    bool caught = false;
    struct sigaction action;
    if (sigaction(signal, NULL, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
        action.sa_handler == SIG_DFL) {
        action = (struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        caught = sigaction(signal, &action, NULL) == 0;
    }
    errno = saved;
    return caught;
}

void hak__os_end_by_signal(int signal)
{
    int saved = errno;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t only;
    sigaction(signal, &action, NULL);
    sigemptyset(&only);
    sigaddset(&only, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL); /* here it ends, unless it is process 1 */
    errno = saved;
}
