/* SPDX-License-Identifier: MIT */
/* child.h: what the programs of this folder share that run under the preloaded secure form: a
 * function in fork's child, and what it says. */
#ifndef TESTS_SECURE_CHILD_H
#define TESTS_SECURE_CHILD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    int status; /* as waitpid gives it */
    size_t length;
    char text[8192]; /* of standard output and standard error */
};

/* Hides from the compiler where a pointer comes from. */
static inline void *hide(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

/* The child ends by `run`, or with status 0 and unflushed streams; it leaves no core file. */
static inline struct child run_child(void (*run)(const void *), const void *argument)
{
    struct child child = {0};
    int ends[2];
    ssize_t got;
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(3);
    }
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(280);
        run(argument);
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], child.text + child.length, sizeof child.text - 1 - child.length)) >
           0) {
        child.length += (size_t)got;
    }
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &child.status, 0) != pid) {
        perror("child");
        exit(3);
    }
    return child;
}

/* CASE(name, "report") { ... }: a function that must end by a signal, with this report; NULL: it
 * must end well and say nothing of hakmem. BUG_CASE has its only statement behind the report. */
struct child_case {
    const char *name, *report;
    void (*run)(void);
};

extern const struct child_case *const __start_secure_cases[] __attribute__((weak));
extern const struct child_case *const __stop_secure_cases[] __attribute__((weak));

#define CASE(name, report)                                                                         \
    static void name(void);                                                                        \
    static const struct child_case case_##name = {#name, report, name};                            \
    static const struct child_case *const listed_##name                                            \
        __attribute__((used, section("secure_cases"))) = &case_##name;                             \
    static void name(void)

#define BUG_CASE(name, report, ...)                                                                \
    CASE(name, report)                                                                             \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }

static inline void run_case(const void *argument)
{
    ((const struct child_case *)argument)->run();
}

/* Ends the test if the child was not as it must be. */
static inline void require_case(const char *name, const struct child *child, const char *report,
                                const char *printed)
{
    bool right = report == NULL ? child->status == 0 && strstr(child->text, "hakmem") == NULL
                                : WIFSIGNALED(child->status) && strstr(child->text, report) != NULL;
    if (!right || strstr(child->text, printed) == NULL) {
        fprintf(stderr, "%s: status %#x\n%s", name, (unsigned)child->status, child->text);
        exit(1);
    }
}

/* `run`: run_case, or what calls it. */
static inline void require_cases(void (*run)(const void *), const char *printed)
{
    const struct child_case *const *at = __start_secure_cases;
    if (at == __stop_secure_cases) {
        fputs("there are no cases\n", stderr);
        exit(1);
    }
    for (; at < __stop_secure_cases; at++) {
        struct child child = run_child(run, *at);
        require_case((*at)->name, &child, (*at)->report, printed);
    }
}

#endif
