/* SPDX-License-Identifier: MIT */
/* limit.c: `./hakmem run --fail-above`. See launch.h. The program writes its report to a file of
 * ours, which is read when it has ended. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

enum { STATUS_ABOVE = 1, REPORT_SIZE = 1 << 16 }; /* the totals are near its beginning */

static uint64_t read_bytes(const char *text)
{
    static const char units[] = "kmg";
    uint64_t bytes;
    char *end;
    const char *unit;
    errno = 0;
    bytes = strtoull(text, &end, 10);
    unit = *end != 0 ? strchr(units, *end | 0x20) : NULL;
    if (strchr("0123456789", text[0]) == NULL || text[0] == 0 || errno != 0 || bytes >> 33 != 0 ||
        (*end != 0 && (unit == NULL || end[1] != 0))) {
        words_refuse("--fail-above takes a number of bytes such as 4096, 64k or 1m, not '%s'",
                     words_shown(text));
    }
    return unit == NULL ? bytes : bytes << (10 * (unit - units + 1));
}

/* Waits for the program. What others send to this process is for the program; what the terminal
 * sends has reached it already. */
static int wait_for(pid_t program, const sigset_t *signals)
{
    int status;
    while (waitpid(program, &status, WNOHANG) == 0) {
        siginfo_t came;
        if (sigwaitinfo(signals, &came) > 0 && came.si_signo != SIGCHLD && came.si_code <= 0) {
            kill(program, came.si_signo);
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* False: the file has no report. */
static bool read_in_use(const char *file, uint64_t *in_use)
{
    static char report[REPORT_SIZE];
    const char key[] = "\"bytes_in_use\": ", *at;
    FILE *stream = fopen(file, "re");
    size_t length = stream != NULL ? fread(report, 1, sizeof report - 1, stream) : 0;
    report[length] = 0;
    if (stream != NULL) {
        fclose(stream);
    }
    at = strstr(report, "\"totals\"");
    at = at != NULL ? strstr(at, key) : NULL;
    *in_use = at != NULL ? strtoull(at + sizeof key - 1, NULL, 10) : 0;
    return at != NULL;
}

void limit_watch(const char *bytes, const char *program)
{
    const int passed[] = {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    uint64_t most = read_bytes(bytes), in_use;
    const char *folder = getenv("TMPDIR");
    char *file =
        words_join("%s/hakmem-report-XXXXXX", folder != NULL && folder[0] == '/' ? folder : "/tmp");
    sigset_t signals, before;
    int descriptor = mkstemp(file), status;
    pid_t child;
    bool known;
    if (descriptor < 0) {
        words_die(STATUS_FAILED, "cannot write %s: %s", file, strerror(errno));
    }
    close(descriptor);
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        sigaddset(&signals, passed[i]);
    }
    sigprocmask(SIG_BLOCK, &signals, &before);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that takes too long is killed, and we are it */
        sigprocmask(SIG_SETMASK, &before, NULL);
        settings_add("stats_file", file);
        return;
    }
    status = child > 0 ? wait_for(child, &signals) : STATUS_FAILED;
    known = read_in_use(file, &in_use);
    unlink(file);
    if (child < 0) {
        words_die(STATUS_FAILED, "cannot start a process: %s", strerror(errno));
    }
    if (status != 0) {
        exit(status);
    }
    if (!known) {
        words_die(STATUS_FAILED,
                  "%s left no report of its memory: it ended by the exit system "
                  "call, or became another program",
                  words_shown(program));
    }
    if (in_use > most) {
        words_die(STATUS_ABOVE,
                  "%s had %" PRIu64 " bytes in use at its end, more than %" PRIu64
                  " (./hakmem profile --leaks shows where)",
                  words_shown(program), in_use, most);
    }
    exit(0);
}
