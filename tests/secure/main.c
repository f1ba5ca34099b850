/* SPDX-License-Identifier: MIT */
/* main.c: runs the bug of a file, or looks how it ends. See bug.h. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bug.h"

static void child(const char *program, const char *library, int output)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(output, STDERR_FILENO);
    setenv("LD_PRELOAD", library, 1);
    alarm(240);
    execl(program, program, "--bug", (char *)NULL);
    _exit(5);
}

int main(int count, char **arguments)
{
    static char text[8192];
    size_t length = 0;
    int ends[2], status;
    ssize_t got;
    if (count != 2) {
        fprintf(stderr, "usage: %s --bug, or %s LIBRARY\n", arguments[0], arguments[0]);
        return 2;
    }
    if (strcmp(arguments[1], "--bug") == 0) {
        bug();
        return 0;
    }
    if (pipe(ends) != 0) {
        perror("pipe");
        return 2;
    }
    pid_t pid = fork();
    if (pid == 0) {
        child(arguments[0], arguments[1], ends[1]);
    }
    close(ends[1]);
    while ((got = read(ends[0], text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("child");
        return 2;
    }
    if (!WIFSIGNALED(status) || (WTERMSIG(status) != SIGABRT && WTERMSIG(status) != SIGSEGV) ||
        strstr(text, bug_report) == NULL) {
        fprintf(stderr, "expected a signal and the report \"%s\"; wait status %#x, and\n%s\n",
                bug_report, (unsigned)status, text);
        return 1;
    }
    printf("%s\n", bug_report);
    return 0;
}
