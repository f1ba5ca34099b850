/* SPDX-License-Identifier: MIT */
/* urgent.c: lets a thread run soon on a busy machine, while it is stopped for us: see attach.h.
 *
 * A thread that waits behind others for a processor would make the stop longer by milliseconds. So
 * it gets short time slices, which Linux 6.12 and later run sooner, and with the right to do so
 * (CAP_SYS_NICE) the largest weight; threads that it creates do not inherit that. Not real time: a
 * thread that does not end its call would keep everybody else from its processor, us included. */
#include "attach.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NICE (-20)
/* The shortest that the kernel takes. */
#define SLICE_NS 100000u

void urgent_begin(pid_t tid, struct urgency *before)
{
    struct sched_attr now;
    before->known = false;
    memset(&now, 0, sizeof now);
    now.size = sizeof now;
    if (syscall(SYS_sched_getattr, tid, &now, (unsigned)sizeof now, 0) != 0 ||
        now.sched_policy != SCHED_NORMAL) {
        return;
    }
    _Static_assert(sizeof now <= sizeof before->bytes, "room for the kernel's struct");
    memcpy(before->bytes, &now, sizeof now);
    before->tid = tid;
    before->known = true; /* first: whoever is left when this process is killed puts it back */
    struct sched_attr urgent = {.size = sizeof urgent,
                                .sched_policy = SCHED_NORMAL,
                                .sched_flags = SCHED_FLAG_RESET_ON_FORK,
                                .sched_nice = NICE,
                                .sched_runtime = SLICE_NS};
    if (syscall(SYS_sched_setattr, tid, &urgent, 0) != 0) {
        now.sched_runtime = SLICE_NS;
        syscall(SYS_sched_setattr, tid, &now, 0);
    }
}

void urgent_end(const struct urgency *before)
{
    if (before->known) {
        syscall(SYS_sched_setattr, before->tid, before->bytes, 0);
    }
}
