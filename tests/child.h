/* SPDX-License-Identifier: MIT */
/* child.h: runs a part of a test in a child process and looks at how it ended and what it said on
 * stderr.
 *
 * child_fork goes on in a copy of this process. child_exec starts the program anew for a
 * CHILD(name), for what must be set before the library starts (limits, environment).
 */
#ifndef TESTS_CHILD_H
#define TESTS_CHILD_H

#include "support.h"

#include <poll.h>
#include <regex.h>

struct child_end {
    int status; /* as waitpid gives it */
    size_t length;
    char text[8192]; /* stderr, zero-terminated, cut when longer */
};

/* A crash in a child is expected here: no core file, and cmocka, which would take it for the
 * failure of a test and go on with the next one in the child, is kept out. A child that hangs ends
 * by SIGALRM. */
static inline void child_prepare(int stderr_descriptor)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGABRT};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < COUNT_OF(signals); i++) {
        signal(signals[i], SIG_DFL);
    }
    dup2(stderr_descriptor, STDERR_FILENO);
    alarm(280);
}

static inline void child_wait(pid_t pid, int descriptor, struct child_end *end)
{
    char rest[512];
    ssize_t got;
    end->length = 0;
    for (;;) { /* reads to the end, so that a talkative child does not block */
        size_t room = sizeof end->text - 1 - end->length;
        got = read(descriptor, room != 0 ? end->text + end->length : rest,
                   room != 0 ? room : sizeof rest);
        if (got > 0 && room != 0) {
            end->length += (size_t)got;
        } else if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
    }
    end->text[end->length] = '\0';
    close(descriptor);
    while (waitpid(pid, &end->status, 0) < 0) {
        REQUIRE(errno == EINTR);
    }
}

static inline void child_fork(void (*body)(void *), void *argument, struct child_end *end)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        child_prepare(ends[1]);
        body(argument);
        _exit(0);
    }
    close(ends[1]);
    child_wait(pid, ends[0], end);
}

/* Becomes `PROGRAM --child NAME`, under the emulator that runs this process if there is one. */
static inline void child_become(const char *name)
{
    char self[4096] = "";
    if (getenv("TEST_EMULATOR") == NULL) {
        execl("/proc/self/exe", "test", "--child", name, (char *)NULL);
    } else if (readlink("/proc/self/exe", self, sizeof self - 1) > 0) {
        execl("/bin/sh", "sh", "-c", "exec $TEST_EMULATOR \"$0\" --child \"$1\"", self, name,
              (char *)NULL);
    }
    support_fail("exec: %s\n", strerror(errno));
}

/* `setup`, which may be NULL, runs in the child before exec. */
static inline void child_exec(const char *name, void (*setup)(void *), void *argument,
                              struct child_end *end)
{
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    fflush(NULL);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        child_prepare(ends[1]);
        if (setup != NULL) {
            setup(argument);
        }
        child_become(name);
    }
    close(ends[1]);
    child_wait(pid, ends[0], end);
}

/* A `setup`: puts "NAME=VALUE" into the environment. */
static inline void child_put(void *variable)
{
    REQUIRE(putenv(variable) == 0);
}

static inline bool text_matches(const char *text, const char *pattern)
{
    regex_t regex;
    REQUIRE(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE) == 0);
    bool matches = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return matches;
}

/* For the main thread: these end the test, not the process.
 * The child aborted with a "hakmem: fatal: " line that matches `pattern`, an extended regular
 * expression. */
static inline void require_abort(const char *file, int line, const struct child_end *end,
                                 const char *pattern)
{
    bool aborted = WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGABRT;
    if (!aborted || !text_matches(end->text, "^hakmem: fatal: ") ||
        !text_matches(end->text, pattern)) {
        fail_msg("%s:%d: expected SIGABRT and /%s/, got %s %d and <%s>", file, line, pattern,
                 WIFSIGNALED(end->status) ? "signal" : "exit status",
                 WIFSIGNALED(end->status) ? WTERMSIG(end->status) : WEXITSTATUS(end->status),
                 end->text);
    }
}

/* The child ended well; `pattern` NULL: and said nothing, else what it said matches. */
static inline void require_exit(const char *file, int line, const struct child_end *end,
                                const char *pattern)
{
    bool well = WIFEXITED(end->status) && WEXITSTATUS(end->status) == 0;
    bool said = pattern == NULL ? end->length == 0 : text_matches(end->text, pattern);
    if (!well || !said) {
        fail_msg(
            "%s:%d: expected exit status 0 and /%s/, got %s %d and <%s>", file, line,
            pattern == NULL ? "" : pattern, WIFSIGNALED(end->status) ? "signal" : "exit status",
            WIFSIGNALED(end->status) ? WTERMSIG(end->status) : WEXITSTATUS(end->status), end->text);
    }
}

/* The child of that name ends well; `variable`, "NAME=VALUE" or NULL, is in its environment. */
static inline void require_child(const char *file, int line, const char *name, const char *variable,
                                 const char *pattern)
{
    struct child_end end;
    child_exec(name, variable == NULL ? NULL : child_put, (void *)(uintptr_t)variable, &end);
    require_exit(file, line, &end, pattern);
}

#define REQUIRE_CHILD(name, variable, pattern)                                                     \
    require_child(__FILE__, __LINE__, (name), (variable), (pattern))

/* A test whose body runs in the program started anew, says nothing, and ends well. */
#define TEST_ANEW(name)                                                                            \
    static void anew_##name(void);                                                                 \
    CHILD(name)                                                                                    \
    {                                                                                              \
        anew_##name();                                                                             \
    }                                                                                              \
    TEST(name)                                                                                     \
    {                                                                                              \
        REQUIRE_CHILD(#name, NULL, NULL);                                                          \
    }                                                                                              \
    static void anew_##name(void)

#define REQUIRE_ABORT(end, pattern) require_abort(__FILE__, __LINE__, (end), (pattern))
#define REQUIRE_EXIT(end, pattern) require_exit(__FILE__, __LINE__, (end), (pattern))

/* Forks, runs, and expects the abort. */
#define REQUIRE_DEATH(body, argument, pattern)                                                     \
    do {                                                                                           \
        struct child_end end_;                                                                     \
        child_fork((body), (argument), &end_);                                                     \
        REQUIRE_ABORT(&end_, (pattern));                                                           \
    } while (0)

#define REQUIRE_LIFE(body, argument, pattern)                                                      \
    do {                                                                                           \
        struct child_end end_;                                                                     \
        child_fork((body), (argument), &end_);                                                     \
        REQUIRE_EXIT(&end_, (pattern));                                                            \
    } while (0)

#endif
