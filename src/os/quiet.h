/* SPDX-License-Identifier: MIT */
/* quiet.h: writing to a file or a pipe without the signals that the kernel sends when it is too
 * large (SIGXFSZ) or has no reader (SIGPIPE): the program did not write, so they must not end it.
 * Inside src/os only. */
#ifndef HAK_OS_QUIET_H
#define HAK_OS_QUIET_H

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

/* In the kernel's set of signals, bit 0 is signal 1. */
#define OS_SIGNAL(number) (UINT64_C(1) << ((number)-1))

struct os_quiet {
    bool blocked;     /* the kernel has blocked them */
    uint64_t before;  /* signals that the thread blocks by itself */
    uint64_t pending; /* of the two: sent earlier */
};

static inline struct os_quiet os_quiet_begin(void)
{
    struct os_quiet quiet = {false, 0, 0};
    uint64_t two = (OS_SIGNAL(SIGXFSZ) | OS_SIGNAL(SIGPIPE));
    /* a filter of system calls may kill for it */
    quiet.blocked = !hak__os_is_filtered() && syscall(SYS_rt_sigprocmask, SIG_BLOCK, &two,
                                                      &quiet.before, sizeof quiet.before) == 0;
    if ((quiet.before & two) != 0) { /* else none can be pending: it would have come */
        syscall(SYS_rt_sigpending, &quiet.pending, sizeof quiet.pending);
    }
    return quiet;
}

/* `error` is -errno of the write that failed, or 0. Its signal waits for this thread and is taken
 * away, unless one waited before. */
static inline void os_quiet_end(const struct os_quiet *quiet, int error)
{
    const struct timespec now = {0, 0};
    uint64_t sent = error == -EFBIG ? OS_SIGNAL(SIGXFSZ) : error == -EPIPE ? OS_SIGNAL(SIGPIPE) : 0;
    sent &= ~quiet->pending;
    if (quiet->blocked && sent != 0) {
        syscall(SYS_rt_sigtimedwait, &sent, NULL, &now, sizeof sent);
    }
    if (quiet->blocked) {
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &quiet->before, NULL, sizeof quiet->before);
    }
}

#endif
