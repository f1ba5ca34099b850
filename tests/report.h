/* SPDX-License-Identifier: MIT */
/* report.h: single figures of the library's own report: what it asked the kernel for, what its slow
 * paths did. Counts are exact where times are not. */
#ifndef TESTS_REPORT_H
#define TESTS_REPORT_H

#include "collect.h"

/* A report as JSON, which the next call overwrites. For the main thread. */
static inline struct collected *report_now(void)
{
    static struct collected report;
    (void)collect_report(&report, HAK_REPORT_JSON);
    return &report;
}

/* The first figure of that name from `text` on. */
static inline size_t report_number_at(const char *text, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(text, quoted);
    if (at == NULL) {
        support_fail("the report has no %s\n", name);
    }
    return (size_t)strtoull(at + strlen(quoted), NULL, 10);
}

/* The first figure of that name in the report: totals, counters and OS calls come before lists. */
static inline size_t report_number_in(const struct collected *report, const char *name)
{
    return report_number_at(report->text, name);
}

static inline size_t report_number(const char *name)
{
    return report_number_in(report_now(), name);
}

/* All calls into the kernel but futex, which is another thread's doing. */
static inline size_t report_os_calls(void)
{
    return report_number("mmap") + report_number("munmap") + report_number("mremap") +
           report_number("madvise_dontneed") + report_number("madvise_hugepage") +
           report_number("mincore");
}

#endif
