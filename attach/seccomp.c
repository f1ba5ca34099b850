/* SPDX-License-Identifier: MIT */
/* seccomp.c: whether a thread's system call filter lets it start the observer, see attach.h.
 *
 * A filter (seccomp) may end the process at a call that its author did not foresee, such as that
 * which starts a thread. So the filters are read and run here, for each call that pthread_create
 * and the observer make. That a call fails is no harm: the process then says why. Filters see a
 * call's number and the values of its arguments; those that are addresses do not matter to them.
 * Only root may read filters. Those that this program has, too, are harmless as it seems to live on
 * with them: in a container all processes have them. */
#include "attach.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_rseq /* glibc's headers have the number of the machine */
#define SYS_rseq (-1)
#endif
#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#else
#define MACHINE AUDIT_ARCH_AARCH64
#endif
#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |            \
     CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

struct call {
    long number;
    uint64_t second, third, fourth; /* arguments that filters look at, or 0 */
    uint64_t first;
};

static const struct call calls[] = {
    /* pthread_create */
    {SYS_mmap, 0, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, 0},
    {SYS_mmap, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0},
    {SYS_mprotect, 0, PROT_READ | PROT_WRITE, 0, 0},
    {SYS_rt_sigprocmask, 0, 0, 0, SIG_BLOCK},
    {SYS_rt_sigprocmask, 0, 0, 0, SIG_SETMASK},
    {SYS_clone, 0, 0, 0, THREAD_FLAGS},
    {SYS_clone3, 0, 0, 0, 0},
    {SYS_set_robust_list, 24, 0, 0, 0},
    {SYS_rseq, 32, 0, 0, 0},
    {SYS_getpid, 0, 0, 0, 0},
    {SYS_gettid, 0, 0, 0, 0},
    {SYS_tgkill, 0, SIGTRAP, 0, 0},
    {SYS_tgkill, 0, SIGWINCH, 0, 0},
    /* the observer */
    {SYS_prctl, 0, 0, 0, PR_SET_NAME},
    {SYS_close_range, ~0u, 2, 0, 0},
    {SYS_geteuid, 0, 0, 0, 0},
    {SYS_newfstatat, 0, 0, 0, (uint64_t)-100},
    {SYS_readlinkat, 0, 0, 0, (uint64_t)-100},
    {SYS_openat, 0, 02000302, 0600, (uint64_t)-100}, /* O_CLOEXEC | O_RDWR | O_CREAT | O_EXCL */
    {SYS_openat, 0, 02000000, 0, (uint64_t)-100},    /* O_CLOEXEC | O_RDONLY */
    {SYS_read, 0, 0, 0, 3},
    {SYS_close, 0, 0, 0, 3},
    {SYS_fallocate, 0, 0, 4096, 3},
    {SYS_ftruncate, 4096, 0, 0, 3},
    {SYS_unlinkat, 0, 0, 0, (uint64_t)-100},
    {SYS_mmap, 0, PROT_READ | PROT_WRITE, MAP_SHARED, 0},
    {SYS_munmap, 0, 0, 0, 0},
    {SYS_mremap, 0, 0, MREMAP_MAYMOVE, 0},
    {SYS_madvise, 0, MADV_DONTFORK, 0, 0},
    {SYS_mincore, 0, 0, 0, 0},
    {SYS_futex, FUTEX_WAIT, 0, 0, 0},
    {SYS_futex, FUTEX_WAKE, 0, 0, 0},
    {SYS_futex, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0, 0},
    {SYS_futex, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 0, 0, 0},
    {SYS_exit, 0, 0, 0, 0},
};

/* --- a filter's program --- */

static bool compare(uint16_t code, uint32_t a, uint32_t b)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == b;
    case BPF_JGT:
        return a > b;
    case BPF_JGE:
        return a >= b;
    default: /* BPF_JSET */
        return (a & b) != 0;
    }
}

/* The action of a filter for one call. Only the instructions are known that the makers of filters
 * use (libseccomp, Chromium's, minijail); with another one the filter counts as one that ends the
 * process. */
static uint32_t filter_run(const struct sock_filter *steps, size_t count,
                           const struct seccomp_data *data)
{
    uint32_t a = 0;
    for (size_t at = 0; at < count; at++) {
        const struct sock_filter *step = &steps[at];
        if (step->code == (BPF_LD | BPF_W | BPF_ABS) && step->k <= sizeof *data - sizeof a) {
            memcpy(&a, (const char *)data + step->k, sizeof a);
        } else if (step->code == (BPF_ALU | BPF_AND | BPF_K)) {
            a &= step->k;
        } else if (step->code == (BPF_JMP | BPF_JA)) {
            at += step->k;
        } else if (BPF_CLASS(step->code) == BPF_JMP && BPF_SRC(step->code) == BPF_K) {
            at += compare(step->code, a, step->k) ? step->jt : step->jf;
        } else if (step->code == (BPF_RET | BPF_K)) {
            return step->k;
        } else {
            break;
        }
    }
    return SECCOMP_RET_KILL_PROCESS;
}

/* True: the filter ends the process, or sends it a signal, at one of the calls. */
static bool ends_process(const struct sock_filter *steps, size_t count)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const struct call *call = &calls[i];
        struct seccomp_data data = {.nr = (int)call->number, .arch = MACHINE};
        data.args[0] = call->first;
        data.args[1] = call->second;
        data.args[2] = call->third;
        data.args[3] = call->fourth;
        uint32_t action = filter_run(steps, count, &data) & SECCOMP_RET_ACTION_FULL;
        bool ends = action == SECCOMP_RET_KILL_PROCESS || action == SECCOMP_RET_KILL_THREAD ||
                    action == SECCOMP_RET_TRAP;
        if (ends && call->number >= 0) {
            return true;
        }
    }
    return false;
}

enum filtered seccomp_check(pid_t tid)
{
    static struct sock_filter steps[BPF_MAXINSNS];
    for (long index = 0;; index++) {
        long count = syscall(SYS_ptrace, (long)PTRACE_SECCOMP_GET_FILTER, (long)tid, index, NULL);
        if (count < 0) { /* behind the last one; or the first one may not be read */
            return index != 0 ? FILTERED_HARMLESS : FILTERED_UNKNOWN;
        }
        if (count > BPF_MAXINSNS || syscall(SYS_ptrace, (long)PTRACE_SECCOMP_GET_FILTER, (long)tid,
                                            index, steps) != count) {
            return FILTERED_UNKNOWN;
        }
        if (ends_process(steps, (size_t)count)) {
            return FILTERED_ENDS;
        }
    }
}
