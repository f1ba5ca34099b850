/* SPDX-License-Identifier: MIT */
/* limit.c: `./hakmem run --fail-above`. See launch.h. The program writes its report to a file of
 * ours, which is read when it has ended. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
        words_misuse("--fail-above needs a number of bytes such as 4096, 64k or 1m, not '%s'",
                     words_shown(text));
    }
    return unit == NULL ? bytes : bytes << (10 * (unit - units + 1));
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
    uint64_t most = read_bytes(bytes), in_use;
    char *file = words_file();
    int status;
    bool known;
    if (!watch_program(file, &status)) {
        settings_add("stats_file", file);
        return;
    }
    known = read_in_use(file, &in_use);
    unlink(file);
    if (status != 0) {
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
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
