/* SPDX-License-Identifier: MIT */
/* attach.c: hakmem-attach [--verbose] [--thread TID] PID: starts hakmem's observer in a running
 * process. With --thread, for tests, only that thread of it is stopped. */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long to look for a good moment. Doubled: a process that never has one is refused later. */
#define LOOK_US 3000000u
#define TASKS_MAX 4096u
/* Threads stopped in one round, before the mappings are read anew. */
#define ROUND_MAX 64u
#define LOCK_WAIT_US 5000000u
/* How long the process may take to let itself be read, and how long that of another user. A program
 * can let that take forever. */
#define READ_SECONDS 60u
#define READ_SECONDS_OTHER 3u
/* How long the process that attaches may take in all (its waits end in 35 s at the latest), and how
 * long after a signal. Then it is killed. */
#define CHILD_SECONDS 60
#define CHILD_END_SECONDS 5

static bool verbose;
static pid_t only_thread; /* 0: any */

void refuse(int status, const char *format, ...)
{
    va_list arguments;
    fputs("hakmem: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(status);
}

/* One tool at a time works on a process: two calls would share a stack. The lock is on a file that
 * only those who may attach can open. It goes with the last process that has it. */
static void lock_target(pid_t pid)
{
    char path[64];
    uint64_t until_us = clock_us() + LOCK_WAIT_US;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)target_living(pid));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) { /* target_check says why not */
        if (errno != EWOULDBLOCK || clock_us() > until_us) {
            refuse(STATUS_CANNOT, "another tool is attaching to process %d", (int)pid);
        }
        sleep_us(2000);
    }
}

struct result {
    struct urgency urgency; /* of the thread that is stopped */
    bool done;
    int error; /* of the process */
    unsigned stops;
    uint64_t stopped_us; /* the longest stop */
};

static void refuse_filtered(pid_t pid, enum filtered filtered)
{
    if (filtered == FILTERED_ENDS) {
        refuse(STATUS_CANNOT,
               "the system call filter (seccomp) of process %d would end it when it starts the "
               "observer; start it with HAKMEM_OBSERVE=1 if the program itself sets the filter",
               (int)pid);
    }
    refuse(STATUS_CANNOT,
           "process %d has a system call filter (seccomp) that may end it when it starts the "
           "observer, and only root may read the filter; attach as root, or start it with "
           "HAKMEM_OBSERVE=1",
           (int)pid);
}

/* Stops the thread and, if the moment is good, makes the call. In a process of its own: a thread
 * that does not stop in time is let go by the end of that. */
static void try_thread(const struct target *target, const struct symbols *symbols, pid_t tid,
                       struct state *state, struct result *result)
{
    int error = tracee_seize(tid);
    if (error == ESRCH || (error == EPERM && target_task_ends(target->pid, tid))) {
        return;
    }
    if (error != 0) {
        target_refused(target->pid, error);
    }
    enum filtered filtered = target_filtered(target->pid, tid);
    urgent_begin(tid, &result->urgency);
    uint64_t began_us = clock_us();
    enum stop stop = tracee_stop(tid);
    const char *why_not = stop == STOP_DONE ? "" : "does not stop";
    if (stop == STOP_DONE && filtered == FILTERED_UNKNOWN) {
        filtered = seccomp_check(tid);
    }
    if (filtered == FILTERED_HARMLESS && stop == STOP_DONE && tracee_read(tid, state) &&
        (why_not = moment_why_not(target, symbols, tid, state)) == NULL) {
        result->error = tracee_call(tid, symbols, &result->urgency, state);
        result->done = result->error >= 0 && result->error != EBUSY;
        why_not = result->error == EBUSY ? "is in hakmem" : "has ended";
    }
    tracee_release(tid);
    uint64_t stopped_us = clock_us() - began_us;
    alarm_end();
    urgent_end(&result->urgency);
    result->urgency.known = false;
    if (stop == STOP_STOPPED) {
        refuse(STATUS_CANNOT, "process %d is stopped; let it go on first (kill -CONT %d)",
               (int)target->pid, (int)target->pid);
    }
    if (stop == STOP_DONE && filtered != FILTERED_HARMLESS) {
        refuse_filtered(target->pid, filtered);
    }
    if (stop == STOP_DONE) {
        result->stops++;
        result->stopped_us = stopped_us > result->stopped_us ? stopped_us : result->stopped_us;
    }
    if (verbose) {
        printf("thread %d stopped for %llu us: %s\n", (int)tid, (unsigned long long)stopped_us,
               result->done ? "the observer starts" : why_not);
    }
}

/* Ends this process as the signal would that it has got and blocks. */
static void end_by_signal(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    exit(128 + number);
}

static void end_if_told(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t pending;
    sigpending(&pending);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (sigismember(&pending, ends[i]) == 1) {
            end_by_signal(ends[i]);
        }
    }
}

/* Waits for the child, passes a signal on to it, and kills it when it takes too long. Returns its
 * status. */
static int await_child(pid_t child)
{
    sigset_t wakes;
    int status;
    uint64_t until_us = clock_us() + CHILD_SECONDS * UINT64_C(1000000);
    bool told = false;
    sigemptyset(&wakes);
    sigaddset(&wakes, SIGCHLD);
    while (waitpid(child, &status, WNOHANG) != child) {
        struct timespec pause = {0, 20000000};
        if (!told && is_told_to_end()) {
            told = true;
            until_us = clock_us() + CHILD_END_SECONDS * UINT64_C(1000000);
            kill(child, SIGTERM);
        }
        if (clock_us() > until_us) {
            kill(child, SIGKILL);
        }
        sigtimedwait(&wakes, NULL, &pause);
    }
    return status;
}

/* If one of the two processes is killed, the other puts the thread's urgency back: the child gets a
 * signal when this one ends, and is in a session of its own, where no signal to the terminal's
 * processes or to the group reaches it. */
static void try_apart(const struct target *target, const struct symbols *symbols, pid_t tid,
                      struct state *state, struct result *result)
{
    struct urgency mine;
    pid_t parent = getpid();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        refuse(STATUS_FAILED, "cannot start a process: %s", strerror(errno));
    }
    if (child == 0) {
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) {
            exit(STATUS_FAILED);
        }
        urgent_begin(0, &mine);
        alarm_begin();
        try_thread(target, symbols, tid, state, result);
        exit(0);
    }
    int status = await_child(child);
    urgent_end(&result->urgency);
    end_if_told();
    if (WIFSIGNALED(status)) {
        refuse(STATUS_FAILED, "the process that attached to process %d was killed",
               (int)target->pid);
    }
    if (WEXITSTATUS(status) != 0) {
        exit(WEXITSTATUS(status)); /* it has said why */
    }
}

/* Looks for a thread at a good moment, again and again for LOOK_US. */
static struct result try_threads(struct target *target, const struct symbols *symbols)
{
    static struct task tasks[TASKS_MAX];
    struct result *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct state *state = state_make();
    if (shared == MAP_FAILED) {
        refuse(STATUS_FAILED, "there is no memory");
    }
    uint64_t until_us = clock_us() + LOOK_US;
    long pause_us = 500;
    do {
        size_t count = target_tasks(target, tasks, TASKS_MAX);
        if (only_thread != 0) {
            tasks[0] = (struct task){only_thread, DOING_RUN};
            count = 1;
        }
        for (size_t i = 0; i < count && i < ROUND_MAX && !shared->done; i++) {
            try_apart(target, symbols, tasks[i].tid, state, shared);
        }
        if (!shared->done) {
            sleep_us(pause_us);
            end_if_told();
            pause_us = pause_us < 20000 ? pause_us * 2 : pause_us;
            if (!target_read(target)) {
                target_ended(target->pid);
            }
            for (size_t i = 0; i < target->mappings_count; i++) {
                target->mappings[i].is_hakmem = target->mappings[i].inode == symbols->object;
            }
            const struct mapping *code = target_mapping(target, symbols->enter);
            if (code == NULL || !code->executable || !code->is_hakmem) {
                target_changed(target->pid);
            }
        }
    } while (!shared->done && clock_us() < until_us);
    free(state);
    return *shared;
}

static void block_signals(void)
{
    sigset_t most;
    sigfillset(&most);
    sigprocmask(SIG_BLOCK, &most, NULL);
}

static void attach(pid_t pid)
{
    struct target target = {.pid = pid};
    alarm(target_is_own(pid) ? READ_SECONDS : READ_SECONDS_OTHER);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* who asked for this has ended */
    lock_target(pid);                 /* first: another tool's work looks like a debugger's */
    target_check(pid);
    if (!target_read(&target)) {
        target_refused(pid, ESRCH);
    }
    struct symbols symbols = symbols_find(&target);
    for (size_t i = 0; i < target.mappings_count; i++) {
        target.mappings[i].is_hakmem = target.mappings[i].inode == symbols.object;
    }
    moment_prepare(&target);
    /* From here on this process should not end at a bad moment. Signals are looked for instead. */
    alarm(0);
    block_signals();
    struct result result = try_threads(&target, &symbols);
    if (verbose) {
        printf("stops %u, longest %llu us\n", result.stops, (unsigned long long)result.stopped_us);
    }
    if (!result.done) {
        refuse(STATUS_CANNOT,
               "process %d has no thread that could be used: all are busy in the C library, the "
               "kernel or signal handlers; try again, or start it with HAKMEM_OBSERVE=1",
               (int)pid);
    }
    if (result.error == ETIMEDOUT) {
        refuse(STATUS_CANNOT,
               "process %d did not come back from starting the observer; it goes on as before",
               (int)pid);
    }
    if (result.error != 0) {
        refuse(STATUS_CANNOT, "process %d cannot start another thread: %s", (int)pid,
               strerror(result.error));
    }
}

/* A number of at least 1; 0: it is none. */
static pid_t parse_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    return *end == '\0' && number > 0 && number <= INT32_MAX ? (pid_t)number : 0;
}

int main(int count, char **arguments)
{
    int at = 1;
    for (; at + 1 < count; at++) {
        if (strcmp(arguments[at], "--verbose") == 0) {
            verbose = true;
        } else if (strcmp(arguments[at], "--thread") == 0 && at + 2 < count) {
            only_thread = parse_number(arguments[++at]);
        } else {
            break;
        }
    }
    pid_t pid = at + 1 == count ? parse_number(arguments[at]) : 0;
    if (pid == 0) {
        refuse(STATUS_USAGE, "usage: hakmem-attach [--verbose] [--thread TID] PID");
    }
    attach(pid);
    return 0;
}
