/* SPDX-License-Identifier: MIT */
/* summary_helper.c: preloaded beside hakmem by summary.sh. In programs of the name that
 * SUMMARY_PROGRAM says, a thread takes three summaries, each between two looks at the kernel's own
 * count of resident pages, appends them to the file SUMMARY_OUTPUT, and ends the process.
 *
 * Memory that the program takes and gives back between the two looks may be in the sum of neither.
 * So a sum that does not fit is taken again, up to TRIES times. One that is wrong never fits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hakmem/stats.h"

enum { TRIES = 10 };

static size_t kernel_rss(void)
{
    char text[512];
    int descriptor = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, "\nRss:");
    return line == NULL ? 0 : (size_t)strtoull(line + 5, NULL, 10) << 10;
}

/* Whether the RSS is between the looks, or within 1 %, as summary.sh asks of the sum of the parts.
 */
static bool fits(size_t before, size_t after, size_t rss)
{
    size_t low = before < after ? before : after;
    size_t high = before < after ? after : before;
    size_t margin = low / 100;
    return rss + margin >= low && rss <= high + margin;
}

static void take(int moment)
{
    struct hak_summary summary;
    char line[400];
    size_t before;
    size_t after;
    bool known;
    int tries = 0;
    do {
        before = kernel_rss();
        known = hak_summary_read(&summary, sizeof summary);
        after = kernel_rss();
        tries++;
    } while (known && !fits(before, after, (size_t)summary.rss) && tries < TRIES);
    int length = snprintf(
        line, sizeof line, "%s %d %d %d %zu %zu %llu %llu %llu %llu %llu %llu %llu %llu %llu\n",
        program_invocation_short_name, moment, known, tries, before, after,
        (unsigned long long)summary.rss, (unsigned long long)summary.in_use,
        (unsigned long long)summary.rounding, (unsigned long long)summary.thread_caches,
        (unsigned long long)summary.free_in_slabs, (unsigned long long)summary.kept,
        (unsigned long long)summary.tables, (unsigned long long)summary.not_hakmem,
        (unsigned long long)summary.rounding_requests_count);
    int descriptor =
        open(getenv("SUMMARY_OUTPUT"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (write(descriptor, line, (size_t)length) != length) {
        _exit(1);
    }
    close(descriptor);
}

static void *run(void *argument)
{
    static const unsigned waits_ms[] = {300, 700, 1000};
    for (int i = 0; i < 3; i++) {
        usleep(waits_ms[i] * 1000);
        take(i + 1);
    }
    _exit(0);
    return argument;
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("SUMMARY_PROGRAM");
    pthread_t thread;
    if (name != NULL && strcmp(name, program_invocation_short_name) == 0) {
        pthread_create(&thread, NULL, run, NULL);
    }
}
