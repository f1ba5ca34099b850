/* SPDX-License-Identifier: MIT */
/* record.c: runs a program with the recorder before its allocator, and says what was recorded. */
#define _GNU_SOURCE
#include "commands.h"

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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "output.h"
#include "remarks.h"
#include "watch.h"

#define STATUS_CANNOT_RUN 126
#define STATUS_NOT_FOUND 127

/* --- files --- */

/* Or an empty file, which is what a full disk leaves of a trace. */
static bool is_trace(const char *name)
{
    char magic[8] = "";
    struct stat status;
    ssize_t got;
    int descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    if (is) {
        got = read(descriptor, magic, sizeof magic);
        is = got == 0 || (got == sizeof magic && memcmp(magic, TRACE_MAGIC, sizeof magic) == 0);
    }
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

/* Whether there is room for the beginning of a trace. Without it the program need not start. */
static bool try_place(const char *file)
{
    static const struct trace_header empty;
    int descriptor = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool fine = descriptor >= 0 && write(descriptor, &empty, sizeof empty) == sizeof empty;
    if (!fine) {
        remarks_say("record: cannot write %s: %s", file, strerror(errno));
    }
    if (descriptor >= 0) {
        close(descriptor);
        unlink(file);
    }
    return fine;
}

/* Old traces of this name go. Not 0: the exit status, because the file is something else or cannot
 * be written. */
static int clear_place(const char *file)
{
    if (access(file, F_OK) == 0 && !is_trace(file)) {
        remarks_say("record: %s is there already and is not a trace", file);
        return STATUS_CANNOT_RUN;
    }
    unlink(file);
    for_other_traces(file, remove_trace, NULL);
    return try_place(file) ? 0 : STATUS_FAILED;
}

/* --- the program --- */

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
    remarks_say("record: cannot start %s: %s", words[0], strerror(errno));
    _exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

/* --- the line at the end --- */

struct others {
    uint64_t files, calls, early;
};

static void add_other(const char *name, void *argument)
{
    struct others *others = argument;
    struct trace_file file;
    if (trace_open(&file, name) == NULL) {
        others->calls += file.calls;
    }
    others->files++;
    others->early += file.bytes == NULL || file.header.stopped_by != 0;
    trace_close(&file);
}

/* After all else, so that nobody misses it. */
static void report_early_end(const struct trace_file *file, const char *name, int status)
{
    if (file->header.stopped_by != 0) {
        remarks_say("the trace ends early: cannot write %s: %s", name,
                    strerror((int)file->header.stopped_by));
    } else if (WIFSIGNALED(status)) {
        remarks_say("the program died by signal %d (%s): up to %d last calls of each thread are "
                    "not in the trace",
                    WTERMSIG(status), strsignal(WTERMSIG(status)), TRACE_EVENTS_MAX);
    } else if (file->bytes == NULL) {
        remarks_say("the trace ends early: %s could not be written (is the disk full?)", name);
    } else {
        remarks_say("the trace ends early: the program could not reach %s at its end, became "
                    "one that is not recorded, or did not end by exit",
                    name);
    }
}

static void report(const char *name, int status)
{
    struct trace_file file;
    struct others others = {0};
    const char *problem = trace_open(&file, name);
    bool is_there = access(name, F_OK) == 0;
    char more[200] = "";
    int length = 0;
    for_other_traces(name, add_other, &others);
    if (others.files != 0) {
        length = snprintf(more, sizeof more,
                          "; %" PRIu64 " calls of %" PRIu64 " other process%s in files %.64s.PID",
                          others.calls, others.files, others.files == 1 ? "" : "es",
                          strrchr(name, '/') + 1);
    }
    if (others.early != 0) {
        snprintf(more + length, sizeof more - (size_t)length,
                 ", of which %" PRIu64 " could not be written to the end", others.early);
    }
    if (problem == NULL) {
        remarks_say("%" PRIu64 " calls of %" PRIu32 " thread%s, %zu bytes in %s, %.2f bytes a "
                    "call%s",
                    file.calls, file.threads, file.threads == 1 ? "" : "s", file.length, name,
                    file.calls != 0 ? (double)file.length / (double)file.calls : 0.0, more);
    } else if (!is_there) {
        remarks_say("0 calls: nothing was recorded of the program itself%s", more);
    } else {
        remarks_say("%s: %s%s", name, problem, more);
    }
    if (file.end.threads == 0 && (is_there || WIFSIGNALED(status)) &&
        (problem == NULL || file.bytes == NULL)) {
        report_early_end(&file, name, status);
    }
    trace_close(&file);
}

int record_program(const char *file, const char *libraries, char **words)
{
    /* A limit of the file's size is an error like others, here; the program has it as it was. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    int status, unfit;
    sigaction(SIGXFSZ, &ignore, &before);
    if (file[0] != '/' || strlen(file) >= PATH_MAX - 32) {
        return STATUS_FAILED;
    }
    if ((unfit = clear_place(file)) != 0) {
        return unfit;
    }
    if (!watch_program(NULL, &status)) {
        sigaction(SIGXFSZ, &before, NULL);
        become(file, libraries, words);
    }
    report(file, status);
    watch_end_as(status);
}
