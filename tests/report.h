/* report.h: single figures of the library's own report: what it asked the kernel for, what its slow
 * paths did. Counts are exact where times are not. */
#ifndef TESTS_REPORT_H
#define TESTS_REPORT_H

#include "support.h"

struct report_text {
    size_t length;
    char text[1 << 20];
};

static inline void report_take(void *argument, const char *text, size_t size)
{
    struct report_text *report = argument;
    REQUIRE_SIZE(report->length + size, <, sizeof report->text);
    memcpy(report->text + report->length, text, size);
    report->length += size;
}

/* The first figure of that name in the report: totals, counters and OS calls come before lists. */
static inline size_t report_number(const char *name)
{
    static struct report_text report; /* for the main thread */
    char quoted[64];
    report.length = 0;
    hak_report(HAK_REPORT_JSON, report_take, &report);
    report.text[report.length] = '\0';
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(report.text, quoted);
    if (at == NULL) {
        support_fail("the report has no %s\n", name);
    }
    return (size_t)strtoull(at + strlen(quoted), NULL, 10);
}

/* All calls into the kernel but futex, which is another thread's doing. */
static inline size_t report_os_calls(void)
{
    return report_number("mmap") + report_number("munmap") + report_number("mremap") +
           report_number("madvise_dontneed") + report_number("madvise_hugepage") +
           report_number("mincore");
}

#endif
