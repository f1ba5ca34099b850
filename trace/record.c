/* record.c: runs a program with the recorder before its allocator, and says what was recorded. */
#define _GNU_SOURCE
#include "record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "decode.h"
#include "output.h"

#define STATUS_FAILED 125
#define STATUS_CANNOT_RUN 126
#define STATUS_NOT_FOUND 127

static volatile sig_atomic_t child_pid;

/* --- files --- */

static bool is_trace(const char *name)
{
    char magic[8] = "";
    int descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = descriptor >= 0 && read(descriptor, magic, sizeof magic) == sizeof magic &&
              memcmp(magic, TRACE_MAGIC, sizeof magic) == 0;
    if (descriptor >= 0) {
        close(descriptor);
    }
    return is;
}

/* What is done with each trace FILE.<pid>. */
typedef void for_trace(const char *name, void *argument);

static void for_other_traces(const char *file, for_trace *visit, void *argument)
{
    char folder_copy[PATH_MAX], name_copy[PATH_MAX], path[PATH_MAX];
    const char *folder, *name;
    struct dirent *entry;
    DIR *directory;
    snprintf(folder_copy, sizeof folder_copy, "%s", file);
    snprintf(name_copy, sizeof name_copy, "%s", file);
    folder = dirname(folder_copy);
    name = basename(name_copy);
    directory = opendir(folder);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        size_t length = strlen(name);
        const char *rest = entry->d_name + length + 1;
        if (strncmp(entry->d_name, name, length) != 0 || entry->d_name[length] != '.' ||
            *rest == 0 || rest[strspn(rest, "0123456789.")] != 0) {
            continue;
        }
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path &&
            is_trace(path)) {
            visit(path, argument);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

static void remove_trace(const char *name, void *argument)
{
    (void)argument;
    unlink(name);
}

/* Old traces of this name go. False: the file is something else. */
static bool clear_place(const char *file)
{
    if (access(file, F_OK) == 0 && !is_trace(file)) {
        fprintf(stderr, "hakmem: record: %s is there already and is no trace\n", file);
        return false;
    }
    unlink(file);
    for_other_traces(file, remove_trace, NULL);
    /* The recorder says nothing if it cannot write. */
    int descriptor = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0) {
        fprintf(stderr, "hakmem: record: cannot write %s: %s\n", file, strerror(errno));
        return false;
    }
    close(descriptor);
    unlink(file);
    return true;
}

/* --- the program --- */

static void forward(int signal_number)
{
    if (child_pid > 0) {
        kill(child_pid, signal_number);
    }
}

/* The terminal sends its signals to the program as well; others are passed on. */
static void catch_signals(void)
{
    static const int passed[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_handler = forward, .sa_flags = SA_RESTART};
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        sigaction(passed[i], &action, NULL);
    }
}

static _Noreturn void become(const char *file, const char *libraries, char **words)
{
    char pid[24], *preload, *before = getenv("LD_PRELOAD");
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (asprintf(&preload, "%s%s%s", libraries, before != NULL && *before != 0 ? ":" : "",
                 before != NULL ? before : "") < 0) {
        _exit(STATUS_FAILED);
    }
    setenv("LD_PRELOAD", preload, 1);
    setenv(OUTPUT_FILE_VARIABLE, file, 1);
    setenv(OUTPUT_PID_VARIABLE, pid, 1);
    execvp(words[0], words);
    fprintf(stderr, "hakmem: record: cannot start %s: %s\n", words[0], strerror(errno));
    _exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

/* --- the line at the end --- */

struct others {
    uint64_t files, calls;
};

static void add_other(const char *name, void *argument)
{
    struct others *others = argument;
    struct trace_file file;
    if (trace_open(&file, name) == NULL) {
        others->files++;
        others->calls += file.calls;
    }
    trace_close(&file);
}

static void report(const char *name)
{
    struct trace_file file;
    struct others others = {0, 0};
    const char *problem = trace_open(&file, name);
    char more[160] = "";
    for_other_traces(name, add_other, &others);
    if (others.files != 0) {
        snprintf(more, sizeof more,
                 "; %" PRIu64 " calls of %" PRIu64 " other process%s in files %s.PID", others.calls,
                 others.files, others.files == 1 ? "" : "es", strrchr(name, '/') + 1);
    }
    if (problem == NULL) {
        fprintf(stderr,
                "hakmem: %" PRIu64 " calls of %" PRIu32 " thread%s, %zu bytes in %s, %.2f bytes a "
                "call%s\n",
                file.calls, file.threads, file.threads == 1 ? "" : "s", file.length, name,
                file.calls != 0 ? (double)file.length / (double)file.calls : 0.0, more);
    } else if (access(name, F_OK) != 0) {
        fprintf(stderr, "hakmem: 0 calls: nothing was recorded of the program itself%s\n", more);
    } else {
        fprintf(stderr, "hakmem: %s: %s%s\n", name, problem, more);
    }
    trace_close(&file);
}

/* Ends as the program did. */
static int end_as(int status)
{
    if (WIFSIGNALED(status)) {
        struct rlimit none = {0, 0};
        sigset_t all;
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        raise(WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

int record_program(const char *file, const char *libraries, char **words)
{
    int status;
    pid_t pid;
    if (file[0] != '/' || strlen(file) >= PATH_MAX - 32 || !clear_place(file)) {
        return STATUS_FAILED;
    }
    pid = fork();
    if (pid < 0) {
        fprintf(stderr, "hakmem: record: cannot start a process: %s\n", strerror(errno));
        return STATUS_FAILED;
    }
    if (pid == 0) {
        become(file, libraries, words);
    }
    child_pid = pid;
    catch_signals();
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    child_pid = 0;
    report(file);
    return end_as(status);
}
