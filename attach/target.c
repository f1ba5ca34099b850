/* SPDX-License-Identifier: MIT */
/* target.c: see attach.h. */
#include "attach.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define STATUS_SIZE 8192

/* Reads the start of a file. False: nothing was read, and `text` is empty. */
static bool read_text(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, size - 1) : -1;
    int error = errno;
    if (file >= 0) {
        close(file);
    }
    text[got > 0 ? got : 0] = '\0';
    errno = error;
    return got > 0;
}

static bool target_file(pid_t pid, const char *name, char *text, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return read_text(path, text, size);
}

/* The number after a name in /proc/PID/status; -1: there is none. */
static long status_number(const char *status, const char *name)
{
    const char *line = strstr(status, name);
    return line != NULL ? strtol(line + strlen(name), NULL, 10) : -1;
}

void target_ended(pid_t pid)
{
    refuse(STATUS_NO_PROCESS, "process %d has ended", (int)pid);
}

void target_changed(pid_t pid)
{
    char status[STATUS_SIZE];
    if (!target_file(pid, "status", status, sizeof status)) {
        target_ended(pid);
    }
    refuse(STATUS_CANNOT, "process %d has ended or started another program meanwhile", (int)pid);
}

static long yama_scope(void)
{
    char text[16];
    (void)read_text("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text);
    return strtol(text, NULL, 10);
}

pid_t target_living(pid_t pid)
{
    char path[64];
    pid_t living = 0;
    if (!target_task_ends(pid, pid)) {
        return pid;
    }
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid > 0 && (living == 0 || tid < living) && !target_task_ends(pid, tid)) {
            living = tid; /* the lowest, so that all tools lock the same one's file */
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return living;
}

/* True: its files in /proc are root's although the process is not, as the kernel makes them for
 * processes that may not be looked into. */
static bool is_protected(pid_t pid)
{
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)target_living(pid));
    return stat(path, &about) == 0 && about.st_uid == 0;
}

void target_refused(pid_t pid, int error)
{
    char status[STATUS_SIZE];
    if (!target_file(target_living(pid), "status", status, sizeof status) || error == ESRCH ||
        error == ENOENT) {
        target_ended(pid);
    }
    long tracer = status_number(status, "\nTracerPid:");
    long scope = yama_scope();
    if (tracer > 0) {
        refuse(STATUS_CANNOT, "process %d is traced by process %ld, perhaps a debugger", (int)pid,
               tracer);
    }
    if (geteuid() != 0 && status_number(status, "\nUid:") != (long)geteuid()) {
        refuse(STATUS_CANNOT, "process %d belongs to another user; ask as that user or as root",
               (int)pid);
    }
    if (scope == 3) {
        refuse(STATUS_CANNOT,
               "Linux lets nobody attach to process %d until the machine starts anew (sysctl "
               "kernel.yama.ptrace_scope is 3); start the process with HAKMEM_OBSERVE=1",
               (int)pid);
    }
    if (geteuid() != 0 && is_protected(pid)) {
        refuse(STATUS_CANNOT,
               "Linux does not let you attach to process %d, which has changed its user or "
               "protects itself (prctl PR_SET_DUMPABLE); attach as root, or start it with "
               "HAKMEM_OBSERVE=1",
               (int)pid);
    }
    if (geteuid() != 0 && scope > 0) {
        refuse(STATUS_CANNOT,
               "Linux does not let you attach to process %d, because kernel.yama.ptrace_scope is "
               "%ld; type: sudo sysctl kernel.yama.ptrace_scope=0 (until the next start of the "
               "machine), or start the process with HAKMEM_OBSERVE=1",
               (int)pid, scope);
    }
    if (geteuid() != 0) {
        refuse(STATUS_CANNOT,
               "Linux does not let you attach to process %d (%s); attach as root, or start it "
               "with HAKMEM_OBSERVE=1",
               (int)pid, strerror(error));
    }
    refuse(STATUS_CANNOT,
           "Linux does not let root attach to process %d here (%s), as in a container without "
           "CAP_SYS_PTRACE; start it with HAKMEM_OBSERVE=1",
           (int)pid, strerror(error));
}

static long thread_filters(const char *path, bool *is_strict)
{
    char text[STATUS_SIZE];
    long mode = read_text(path, text, sizeof text) ? status_number(text, "\nSeccomp:") : 0;
    long count = status_number(text, "\nSeccomp_filters:"); /* of Linux 5.9 */
    *is_strict = mode == 1;
    return mode != 2 ? 0 : count >= 0 ? count : 1;
}

enum filtered target_filtered(pid_t pid, pid_t tid)
{
    char path[64];
    bool is_strict, own_is_strict;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
    long count = thread_filters(path, &is_strict);
    long own = thread_filters("/proc/self/status", &own_is_strict);
    return is_strict ? FILTERED_ENDS : count > own ? FILTERED_UNKNOWN : FILTERED_HARMLESS;
}

bool target_is_own(pid_t pid)
{
    char status[STATUS_SIZE];
    return target_file(pid, "status", status, sizeof status) &&
           status_number(status, "\nUid:") == (long)geteuid();
}

/* A child of vfork, which runs on its parent's memory until it execs. */
static bool shares_memory(pid_t pid, long parent)
{
    return parent > 0 && syscall(SYS_kcmp, (long)pid, parent, KCMP_VM, 0, 0) == 0;
}

/* What the kernel says of a thread's memory and state. */
static void check_living(pid_t pid, pid_t living)
{
    char status[STATUS_SIZE], head[6] = "", letter = '?';
    if (living == 0 || !target_file(living, "status", status, sizeof status)) {
        refuse(STATUS_NO_PROCESS,
               "process %d has ended; its parent has not waited for it yet (zombie)", (int)pid);
    }
    const char *state = strstr(status, "\nState:");
    if (state != NULL) {
        sscanf(state + 7, " %c", &letter);
    }
    if (letter == 'T') {
        refuse(STATUS_CANNOT, "process %d is stopped; let it go on first (kill -CONT %d)", (int)pid,
               (int)pid);
    }
    if (status_number(status, "\nTracerPid:") > 0) {
        target_refused(pid, EPERM);
    }
    if (strstr(status, "\nVmSize:") == NULL) {
        refuse(STATUS_CANNOT, "process %d has no memory of its own: it is the kernel's, or ends",
               (int)pid);
    }
    if (shares_memory(living, status_number(status, "\nPPid:"))) {
        refuse(STATUS_CANNOT, "process %d is about to start another program; try again", (int)pid);
    }
    if (!target_file(living, "exe", head, sizeof head) && (errno == EACCES || errno == EPERM)) {
        target_refused(pid, errno);
    }
    if (head[0] == 0x7f && head[4] == 1) {
        refuse(STATUS_CANNOT, "process %d is a 32-bit program, which hakmem cannot serve",
               (int)pid);
    }
}

void target_check(pid_t pid)
{
    char status[STATUS_SIZE];
    if (!target_file(pid, "status", status, sizeof status)) {
        refuse(STATUS_NO_PROCESS, "there is no process %d", (int)pid);
    }
    long group = status_number(status, "\nTgid:");
    if (group != pid) {
        refuse(STATUS_USAGE, "%d is a thread of process %ld; give that number", (int)pid, group);
    }
    check_living(pid, target_living(pid));
}

static enum object object_of(const char *path)
{
    const char *name = strrchr(path, '/');
    static const struct {
        const char *start;
        enum object object;
    } names[] = {{"libc.so", OBJECT_LIBC},  {"libc-", OBJECT_LIBC},  {"libpthread", OBJECT_LIBC},
                 {"libdl.so", OBJECT_LIBC}, {"libdl-", OBJECT_LIBC}, {"librt.so", OBJECT_LIBC},
                 {"librt-", OBJECT_LIBC},   {"ld-", OBJECT_LOADER},  {"ld.so", OBJECT_LOADER}};
    if (path[0] == '[') {
        return strcmp(path, "[vdso]") == 0 || strcmp(path, "[vsyscall]") == 0 ? OBJECT_KERNEL
                                                                              : OBJECT_NONE;
    }
    name = name != NULL ? name + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncmp(name, names[i].start, strlen(names[i].start)) == 0) {
            return names[i].object;
        }
    }
    return OBJECT_OTHER;
}

bool target_read(struct target *target)
{
    char path[64], *line = NULL;
    size_t size = 0, room = 0;
    target->living = target_living(target->pid);
    snprintf(path, sizeof path, "/proc/%d/maps", (int)target->living);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        if (errno == EACCES || errno == EPERM) {
            target_refused(target->pid, errno);
        }
        return false;
    }
    target->mappings_count = 0;
    target->mappings = NULL;
    while (getline(&line, &size, file) > 0) {
        struct mapping now = {0};
        char rights[8] = "";
        int at = 0;
        if (sscanf(line, "%lx-%lx %7s %lx %*s %lu %n", &now.start, &now.end, rights, &now.offset,
                   &now.inode, &at) < 5) {
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        now.executable = strchr(rights, 'x') != NULL;
        now.path = strdup(line + at);
        if (target->mappings_count == room) {
            room = room != 0 ? room * 2 : 256;
            target->mappings = realloc(target->mappings, room * sizeof now);
        }
        if (now.path == NULL || target->mappings == NULL) {
            refuse(STATUS_FAILED, "there is no memory");
        }
        now.object = object_of(now.path);
        target->mappings[target->mappings_count++] = now;
    }
    int error = ferror(file);
    fclose(file);
    free(line);
    return error == 0 && target->mappings_count != 0;
}

const struct mapping *target_mapping(const struct target *target, uintptr_t address)
{
    size_t low = 0, high = target->mappings_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct mapping *mapping = &target->mappings[middle];
        if (address >= mapping->end) {
            low = middle + 1;
        } else if (address < mapping->start) {
            high = middle;
        } else {
            return mapping;
        }
    }
    return NULL;
}

size_t target_memory(pid_t pid, uintptr_t address, void *bytes, size_t size)
{
    struct iovec here = {bytes, size};
    struct iovec there = {(void *)address, size};
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    return got > 0 ? (size_t)got : 0;
}

/* Waits for a futex by which the C library waits for events: condition variables, semaphores, the
 * end of a thread. For its locks, and while it holds one (setuid), it uses the plain FUTEX_WAIT, by
 * which runtimes with system calls of their own (Go) wait for anything. */
static bool is_event(const struct mapping *code, uint64_t operation)
{
    uint32_t flags = FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
    uint32_t kind = (uint32_t)operation & ~flags;
    bool is_own = code != NULL && code->object == OBJECT_OTHER && !code->is_hakmem;
    return kind == FUTEX_WAIT_BITSET || (kind == FUTEX_WAIT && is_own);
}

/* A sleep, a poll or a futex with a time limit goes on by SYS_restart_syscall after a stop. The C
 * library waits for its locks without a limit. */
enum doing target_call(const struct mapping *code, long number, uint64_t second)
{
    static const long waits[] = {
#ifdef SYS_poll
        SYS_poll, SYS_select, SYS_pause, SYS_epoll_wait,
#endif
        SYS_ppoll, SYS_pselect6, SYS_epoll_pwait,
#ifdef SYS_epoll_pwait2
        SYS_epoll_pwait2,
#endif
        SYS_nanosleep, SYS_clock_nanosleep, SYS_read, SYS_recvfrom, SYS_recvmsg, SYS_accept,
        SYS_accept4, SYS_wait4, SYS_waitid, SYS_rt_sigtimedwait, SYS_rt_sigsuspend,
        SYS_restart_syscall,
        /* Of programs that are busy with files. Not open and close, which hakmem does not make by
         * `syscall`. */
        SYS_write, SYS_writev, SYS_pwrite64, SYS_readv, SYS_pread64, SYS_sendto, SYS_sendmsg,
        SYS_getdents64, SYS_newfstatat, SYS_fstat, SYS_statx, SYS_lseek, SYS_readlinkat, SYS_fsync,
        SYS_fdatasync};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        if (number == waits[i]) {
            return DOING_WAIT;
        }
    }
    return number == SYS_futex && is_event(code, second) ? DOING_FUTEX : DOING_NOTHING_GOOD;
}

/* What a thread does now, by /proc. */
static enum doing task_doing(const struct target *target, pid_t tid)
{
    char name[64], text[256];
    pid_t pid = target->pid;
    snprintf(name, sizeof name, "task/%d/comm", (int)tid);
    /* ended, or hakmem's own, of which none is a main thread */
    if (!target_file(pid, name, text, sizeof text) || strcmp(text, "hakmem-observe\n") == 0 ||
        strcmp(text, "hakmem-profile\n") == 0 || (tid != pid && strcmp(text, "hakmem\n") == 0)) {
        return DOING_NOTHING_GOOD;
    }
    snprintf(name, sizeof name, "task/%d/syscall", (int)tid);
    if (!target_file(pid, name, text, sizeof text)) {
        int error = errno;
        if (target_task_ends(pid, tid)) { /* which is only root's to look at */
            return DOING_NOTHING_GOOD;
        }
        if (error == EACCES || error == EPERM) {
            target_refused(pid, error);
        }
        /* This kernel has no such file: any thread may be in any call. */
        return error == ENOENT ? DOING_RUN : DOING_NOTHING_GOOD;
    }
    if (isdigit((unsigned char)text[0])) {
        unsigned long second = 0, pc = 0; /* of: number, six arguments, stack, pc */
        sscanf(text, "%*s %*s %lx %*s %*s %*s %*s %*s %lx", &second, &pc);
        return target_call(target_mapping(target, pc), strtol(text, NULL, 10), second);
    }
    return strncmp(text, "running", 7) == 0 ? DOING_RUN : DOING_NOTHING_GOOD;
}

bool target_task_ends(pid_t pid, pid_t tid)
{
    char name[64], text[512];
    snprintf(name, sizeof name, "task/%d/stat", (int)tid);
    (void)target_file(pid, name, text, sizeof text);
    const char *state = strrchr(text, ')');
    return state == NULL || state[1] == '\0' || strchr("ZX", state[2]) != NULL;
}

static int by_doing(const void *a, const void *b)
{
    const struct task *left = a, *right = b;
    return (left->doing > right->doing) - (left->doing < right->doing);
}

size_t target_tasks(const struct target *target, struct task *tasks, size_t most)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)target->pid);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        target_ended(target->pid);
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && count < most;) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        enum doing doing = tid > 0 ? task_doing(target, tid) : DOING_NOTHING_GOOD;
        if (doing != DOING_NOTHING_GOOD) {
            tasks[count++] = (struct task){tid, doing};
        }
    }
    closedir(directory);
    qsort(tasks, count, sizeof *tasks, by_doing);
    return count;
}
