/* SPDX-License-Identifier: MIT */
/* child.h: what the programs of this folder share that run under the preloaded secure form: a
 * function in fork's child, and what it says. */
#ifndef TESTS_SECURE_CHILD_H
#define TESTS_SECURE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

/* Something that must end by a signal, with this report; NULL: it must end well and say
 * nothing of hakmem. */
struct child_case {
    void (*run)(void);
    const char *report;
};

static inline void run_case(const void *argument)
{
    ((const struct child_case *)argument)->run();
}

/* Ends the test if the case was not as it must be. */
static inline void require_case(size_t number, const struct child *child, const char *report,
                                const char *printed)
{
    bool right = report == NULL ? child->status == 0 && strstr(child->text, "hakmem") == NULL
                                : WIFSIGNALED(child->status) && strstr(child->text, report) != NULL;
    if (!right || strstr(child->text, printed) == NULL) {
        fprintf(stderr, "case %zu: status %#x\n%s", number, (unsigned)child->status, child->text);
        exit(1);
    }
}

static inline void require_cases(const struct child_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct child child = run_child(run_case, &cases[i]);
        require_case(i, &child, cases[i].report, "");
    }
}

#endif
