/* SPDX-License-Identifier: MIT */
/* os_threads.c: sleeping, waking and signals, a part of os.h on Linux. See os_machine.c for how
 * the kernel is called. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "os/quiet.h"

/* Headers older than the kernel they run on lack these; the values are part of the kernel's ABI. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2u
#endif

static bool os_wait(uint32_t *word, int operation, uint32_t value, uint32_t duration_ms)
{
    HAK_KEEP_ERRNO;
    struct timespec duration = {(time_t)(duration_ms / 1000), (long)(duration_ms % 1000) * 1000000};
    os_count(OS_CALL_FUTEX);
    bool woken =
        syscall(SYS_futex, word, operation, value, &duration, NULL, 0) == 0 || errno == EAGAIN;
    if (!woken && errno != EINTR && errno != ETIMEDOUT) {
        syscall(SYS_sched_yield); /* futex is missing or denied: the caller tries again */
    }
    return woken;
}

bool hak__os_wait_ms(uint32_t *word, uint32_t value, uint32_t duration_ms)
{
    return os_wait(word, FUTEX_WAIT_PRIVATE, value, duration_ms);
}

void hak__os_wait_shared(uint32_t *word, uint32_t value, uint32_t duration_ms)
{
    (void)os_wait(word, FUTEX_WAIT, value, duration_ms);
}

/* By a futex that nobody wakes: filters of system calls know no other way for malloc to wait. */
void hak__os_sleep_ms(uint32_t duration_ms)
{
    uint32_t word = 0;
    (void)hak__os_wait_ms(&word, word, duration_ms);
}

static void os_wake(uint32_t *word, int operation, int count)
{
    HAK_KEEP_ERRNO;
    os_count(OS_CALL_FUTEX);
    syscall(SYS_futex, word, operation, count, NULL, NULL, 0);
}

void hak__os_wake(uint32_t *word)
{
    os_wake(word, FUTEX_WAKE_PRIVATE, 1);
}

void hak__os_wake_all(uint32_t *word)
{
    os_wake(word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void hak__os_wake_shared(uint32_t *word)
{
    os_wake(word, FUTEX_WAKE, INT_MAX);
}

static bool shared_os_cannot_block; /* the kernel has refused it once; relaxed */

uint64_t hak__os_block_signals(void)
{
    HAK_KEEP_ERRNO;
    uint64_t blocked, own = OS_SIGNAL(SIGSEGV) | OS_SIGNAL(SIGBUS) | OS_SIGNAL(SIGILL) |
                            OS_SIGNAL(SIGFPE) | OS_SIGNAL(SIGTRAP) | OS_SIGNAL(SIGSYS) |
                            OS_SIGNAL(SIGABRT);
    uint64_t all = ~own; /* those of the C library, too: glibc gives programs one of them, 34 */
    if (!hak__os_may_ask()) {
        blocked = OS_SIGNALS_UNCHANGED;
    } else if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &blocked, sizeof blocked) != 0) {
        blocked = OS_SIGNALS_UNCHANGED;
        atomic_store_relaxed(&shared_os_cannot_block, true); /* assertions read it */
    }
    return blocked;
}

void hak__os_restore_signals(uint64_t blocked)
{
    HAK_KEEP_ERRNO;
    if (blocked != OS_SIGNALS_UNCHANGED) {
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked);
    }
}

void hak__os_let_ending_signals(uint64_t blocked, bool come)
{
    HAK_KEEP_ERRNO;
    uint64_t ending = OS_SIGNAL(SIGHUP) | OS_SIGNAL(SIGINT) | OS_SIGNAL(SIGQUIT) |
                      OS_SIGNAL(SIGALRM) | OS_SIGNAL(SIGTERM);
    ending &= ~blocked;
    syscall(SYS_rt_sigprocmask, come ? SIG_UNBLOCK : SIG_BLOCK, &ending, NULL, sizeof ending);
}

/* Moving no waiters from a futex to itself makes the kernel compare the word with a number, and
 * changes nothing. It never sleeps, as a wait without duration does for a timer's slack. Every
 * sandbox allows it, and valgrind hands it on to the kernel. */
bool hak__os_is_readable(uintptr_t address)
{
    HAK_KEEP_ERRNO;
    return syscall(SYS_futex, address, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, address, 0) >= 0 ||
           errno == EAGAIN;
}

bool hak__os_signals_are_blocked(void)
{
    HAK_KEEP_ERRNO;
    uint64_t blocked = 0, usual = OS_SIGNAL(SIGUSR1) | OS_SIGNAL(SIGUSR2) | OS_SIGNAL(SIGPWR);
    bool known = syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &blocked, sizeof blocked) == 0;
    return !known || (blocked & usual) == usual || atomic_load_relaxed(&shared_os_cannot_block);
}

/* The kernel reads nothing for a main thread that has ended, because it has no memory any more. */
static bool os_main_thread_lives(void)
{
    char from = 0, to;
    struct iovec local = {&to, 1}, remote = {&from, 1};
    long process = syscall(SYS_getpid);
    return syscall(SYS_process_vm_readv, process, &local, 1L, &remote, 1L, 0L) == 1;
}

bool hak__os_is_last_thread(uint32_t others_count)
{
    HAK_KEEP_ERRNO;
    char path[1];
    struct stat tasks;
    /* It opens no file: an open file would change the descriptor that an open in another thread
     * returns. If the main thread has ended, the link to the program's file is gone. */
    if (syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &tasks, 0) != 0) {
        return !os_main_thread_lives(); /* after chroot, for example */
    }
    /* Of a process's directory of threads: its own two, besides one for each thread. */
    return tasks.st_nlink <= 2 + 2 + others_count &&
           syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, sizeof path) < 0;
}

uint64_t hak__os_process_space(void)
{
    HAK_KEEP_ERRNO;
    struct stat space;
    bool known = syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &space, 0) == 0;
    /* The kernel's fixed number for the machine's own name space of process ids
     * (PROC_PID_INIT_INO). */
    return known && space.st_ino != 0xeffffffcu ? space.st_ino : 0;
}

bool hak__os_leave_descriptors(void)
{
    HAK_KEEP_ERRNO;
    return syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0;
}

void hak__os_name_thread(const char *name)
{
    HAK_KEEP_ERRNO;
    syscall(SYS_prctl, PR_SET_NAME, name);
}

void hak__os_thread_name(char name[16])
{
    HAK_KEEP_ERRNO;
    name[0] = '\0';
    syscall(SYS_prctl, PR_GET_NAME, name);
}

/* --- signals that end the process --- */

bool hak__os_catch_default(int signal, void (*handler)(int))
{
    HAK_KEEP_ERRNO;
    bool caught = false;
    struct sigaction action;
    if (sigaction(signal, NULL, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
        action.sa_handler == SIG_DFL) {
        action = (struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        caught = sigaction(signal, &action, NULL) == 0;
    }
    return caught;
}

void hak__os_end_by_signal(int signal)
{
    HAK_KEEP_ERRNO;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t only;
    sigaction(signal, &action, NULL);
    sigemptyset(&only);
    sigaddset(&only, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL); /* here it ends, unless it is process 1 */
}
