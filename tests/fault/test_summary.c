/* SPDX-License-Identifier: MIT */
/* test_summary.c: summaries when the kernel does not answer: what is unknown is said to be unknown,
 * and never 0; sums stay exact; reports stay well-formed. */
#include "../collect.h"
#include "../unit/unit.h"
#include "fault.h"

static struct collected text;

static const char *report(enum hak_report_format format)
{
    return collect_report(&text, format);
}

static void fail_all(enum fault_call call, int error)
{
    fault_arm((struct fault_plan){.calls = FAULT_SET(call), .nth = 1, .error = error, .on = true},
              1);
}

static uint64_t sum_of(const struct hak_summary *summary)
{
    return summary->in_use + summary->rounding + summary->thread_caches + summary->free_in_slabs +
           summary->kept + summary->tables;
}

/* Nobody says which pages are resident. */
TEST(no_mincore)
{
    static const int errors[] = {EAGAIN, ENOMEM, ENOSYS, EPERM};
    struct hak_summary summary;
    uint64_t value;
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        fail_all(FAULT_MINCORE, errors[i]);
        value = 5;
        REQUIRE(!hak_summary_read(&summary, sizeof summary));
        REQUIRE(summary.rss != UINT64_MAX && summary.rss != 0);
        REQUIRE(summary.in_use == UINT64_MAX && summary.tables == UINT64_MAX);
        REQUIRE(summary.kept == UINT64_MAX && summary.not_hakmem == UINT64_MAX);
        REQUIRE(summary.fragmentation_permille == UINT64_MAX);
        REQUIRE(!hak_stats_value("summary.in_use_bytes", &value) && value == 5);
        REQUIRE(!hak_stats_value("classes.64.resident", &value) && value == 5);
        REQUIRE(hak_stats_value("summary.rss_bytes", &value) && value != 0);
        REQUIRE(strstr(report(HAK_REPORT_SUMMARY), "its parts are unknown") != NULL);
        REQUIRE(strstr(report(HAK_REPORT_JSON), "\"in_use_bytes\": null, ") != NULL);
        REQUIRE(strstr(report(HAK_REPORT_JSON), "\"resident\": null}") != NULL);
        REQUIRE(strstr(report(HAK_REPORT_TEXT), "unknown") != NULL);
        REQUIRE(!hak_stats_value("huge_pages.bytes", &value));
        REQUIRE(strstr(report(HAK_REPORT_JSON), "\"huge_pages\": {\"bytes\": null, ") != NULL);
        fault_disarm();
    }
}

/* Nobody says how much memory the process has. */
TEST(no_proc)
{
    static const enum fault_call calls[] = {FAULT_OPENAT, FAULT_READ};
    struct hak_summary summary;
    uint64_t value;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        fail_all(calls[i], 0);
        value = 5;
        REQUIRE(!hak_summary_read(&summary, sizeof summary));
        REQUIRE(summary.rss == UINT64_MAX && summary.not_hakmem == UINT64_MAX);
        REQUIRE(summary.peak_rss == UINT64_MAX && summary.swapped == UINT64_MAX);
        REQUIRE(summary.in_use != UINT64_MAX && summary.in_use >= MIB);
        REQUIRE(!hak_stats_value("summary.rss_bytes", &value) && value == 5);
        REQUIRE(!hak_stats_value("summary.not_hakmem_bytes", &value) && value == 5);
        REQUIRE(hak_stats_value("summary.in_use_bytes", &value) && value >= MIB);
        REQUIRE(calls[i] == FAULT_READ || !hak_stats_value("huge_pages.bytes", &value));
        REQUIRE(strstr(report(HAK_REPORT_SUMMARY), "(RSS) is unknown") != NULL);
        REQUIRE(strstr(text.text, "the kernel seems to have none: ") != NULL);
        REQUIRE(strstr(text.text, "not hakmem's") == NULL && strstr(text.text, "in use") != NULL);
        REQUIRE(strstr(report(HAK_REPORT_JSON), "\"rss_bytes\": null, ") != NULL);
        REQUIRE(strstr(text.text, "\"not_hakmem_bytes\": null, ") != NULL);
        fault_disarm();
    }
}

/* Nobody says which pages are huge, as before Linux 6.7, but how many the process has. */
TEST(no_page_tables)
{
    struct hak_summary summary;
    uint64_t value;
    fail_all(FAULT_SYSINFO, EPERM); /* ioctl is among these */
    REQUIRE(hak_summary_read(&summary, sizeof summary));
    REQUIRE(!hak_stats_value("huge_pages.bytes", &value));
    REQUIRE(hak_stats_value("huge_pages.split_count", &value) && value == 0);
    const char *line = strstr(report(HAK_REPORT_SUMMARY), "\nhuge pages: ");
    bool some = hak__os_huge_page_bytes() != 0;
    REQUIRE(strstr(line, some ? " of the process; " : "huge pages: none") != NULL);
    fault_disarm();
}

/* Any one call fails: the figures are worse, and add up. */
TEST(one_failure)
{
    static const enum fault_call calls[] = {FAULT_MINCORE, FAULT_OPENAT, FAULT_READ};
    struct hak_summary summary;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        bool fired = true;
        for (uint32_t nth = 1; fired && nth < 200; nth++) {
            fault_arm((struct fault_plan){.calls = FAULT_SET(calls[i]), .nth = nth}, 1);
            bool known = hak_summary_read(&summary, sizeof summary);
            fired = fault_fired_count != 0;
            fault_disarm();
            REQUIRE(!known || summary.rss == sum_of(&summary) + summary.not_hakmem);
            REQUIRE(known || !fired || summary.rss == UINT64_MAX || summary.in_use == UINT64_MAX);
        }
        REQUIRE(!fired);
    }
}

/* At the hard limit, with nothing left to map. */
TEST(at_the_hard_limit)
{
    struct hak_summary summary;
    fault_arm((struct fault_plan){.calls = FAULT_MEMORY_SET, .nth = 1, .on = true}, 1);
    REQUIRE(hak_summary_read(&summary, sizeof summary));
    uint64_t value;
    size_t unknown = 0, expected = hak__os_clock_uncalled_ms() == 0; /* when the peak was */
    expected += !hak_stats_value("huge_pages.bytes", &value);
    expected += !hak_stats_value("huge_pages.in_use_permille", &value);
    for (const char *at = report(HAK_REPORT_JSON); (at = strstr(at, "null")) != NULL; at++) {
        unknown++;
    }
    REQUIRE_SIZE(unknown, ==, expected);
    REQUIRE(fault_planned_count == 0);
    fault_disarm();
}

static int start(void **state)
{
    static void *blocks[3];
    REQUIRE(unit_start(state) == 0);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_malloc(i == 0 ? 64 : i * i * MIB);
        memset(hide(blocks[i]), 1, i == 0 ? 64 : i * i * MIB);
    }
    return 0;
}

TESTS(start)
