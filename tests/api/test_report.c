/* SPDX-License-Identifier: MIT */
/* test_report.c: hak_report is well-formed text, JSON and Prometheus text that agree; names of
 * figures. */
#include "../support.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>

struct report {
    char *text;
    size_t length;
    size_t pieces;
};

enum { REPORT_MAX = 4 << 20 };

static void report_take(void *argument, const char *text, size_t size)
{
    struct report *report = argument;
    REQUIRE_SIZE(report->length + size, <, REPORT_MAX);
    memcpy(report->text + report->length, text, size);
    report->length += size;
    report->pieces++;
}

static struct report report_write(enum hak_report_format format)
{
    struct report report = {support_map(REPORT_MAX), 0, 0};
    errno = ERRNO_UNTOUCHED;
    hak_report(format, report_take, &report);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_true(report.pieces >= 1 && report.length > 0);
    for (size_t i = 0; i < report.length; i++) {
        assert_true(report.text[i] == '\n' || (report.text[i] >= ' ' && report.text[i] <= '~'));
    }
    return report;
}

static const char *json_skip_space(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
    }
    return at;
}

/* The number after the first "key": of the report. */
static size_t json_number(const struct report *report, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(report->text, quoted);
    if (at == NULL) {
        support_fail("the JSON report lacks the key %s\n", quoted);
    }
    at = json_skip_space(at + strlen(quoted));
    assert_int_equal(*at, ':');
    return strtoull(at + 1, NULL, 10);
}

enum { LIVE_THREADS = 7 };
static pthread_barrier_t live_barrier;

static void *live_thread(void *argument)
{
    void *block = hak_malloc(64);
    REQUIRE(block != NULL);
    pthread_barrier_wait(&live_barrier); /* all have a cache */
    pthread_barrier_wait(&live_barrier); /* the report is written */
    hak_free(block);
    return argument;
}

/* Times `text` stands after `start` in the report. */
static size_t report_count(const struct report *report, const char *start, const char *text)
{
    size_t count = 0;
    const char *at = strstr(report->text, start);
    REQUIRE(at != NULL);
    for (at = strstr(at, text); at != NULL; at = strstr(at + 1, text)) {
        count++;
    }
    return count;
}

/* A record for each thread that has a cache, and for each heap, of which they may share some. */
/* Before the others: nothing is in use yet. */
TEST(small_heap)
{
    void *block = hak_malloc(96);
    struct report report = report_write(HAK_REPORT_SUMMARY);
    assert_non_null(strstr(report.text, " 1 blocks of 96 B, touched or not\n"));
    munmap(report.text, REPORT_MAX);
    hak_free(block);
}

TEST(live_threads)
{
    pthread_t threads[LIVE_THREADS];
    struct hak_stats before = stats_now();
    assert_int_equal(pthread_barrier_init(&live_barrier, NULL, LIVE_THREADS + 1), 0);
    for (size_t i = 0; i < LIVE_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, live_thread, NULL), 0);
    }
    pthread_barrier_wait(&live_barrier);
    struct hak_stats during = stats_now();
    struct report report = report_write(HAK_REPORT_JSON);
    pthread_barrier_wait(&live_barrier);
    for (size_t i = 0; i < LIVE_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(during.threads_count, before.threads_count + LIVE_THREADS);
    assert_true(during.heaps_count <= before.heaps_count + LIVE_THREADS);
    assert_true(during.heaps_count - during.heaps_parked_count <= during.threads_count);
    assert_int_equal(during.objects_in_use_count, before.objects_in_use_count + LIVE_THREADS);
    assert_int_equal(report_count(&report, "\"threads\": [", "\"cached_bytes\""),
                     during.threads_count);
    assert_int_equal(report_count(&report, "\"heaps\": [", "\"span_cached_bytes\""),
                     during.heaps_count);
    assert_int_equal(stats_now().threads_count, before.threads_count);
    require_same_use(before, stats_now());
    pthread_barrier_destroy(&live_barrier);
    munmap(report.text, REPORT_MAX);
}

TEST(json_report)
{
    void *small = hak_malloc(100);
    void *span = hak_malloc(800000);
    void *whale = hak_malloc(9 * MIB);
    struct report report = report_write(HAK_REPORT_JSON);
    if (!SUPPORT_EMULATED) { /* qemu-user does not start programs */
        FILE *reader = popen("python3 -m json.tool >/dev/null", "w");
        assert_non_null(reader);
        assert_int_equal(fwrite(report.text, 1, report.length, reader), report.length);
        assert_int_equal(pclose(reader), 0);
    }
    struct hak_stats stats = stats_now();
    assert_int_equal(json_number(&report, "bytes_mapped"), stats.bytes_mapped);
    assert_int_equal(json_number(&report, "bytes_metadata"), stats.bytes_metadata);
    assert_int_equal(json_number(&report, "bytes_in_use"), stats.bytes_in_use);
    assert_int_equal(json_number(&report, "bytes_cached"), stats.bytes_cached);
    assert_int_equal(json_number(&report, "bytes_free_dirty"), stats.bytes_free_dirty);
    assert_int_equal(json_number(&report, "objects_in_use_count"), stats.objects_in_use_count);
    assert_int_equal(json_number(&report, "heaps_count"), stats.heaps_count);
    assert_int_equal(json_number(&report, "heaps_parked_count"), stats.heaps_parked_count);
    assert_int_equal(json_number(&report, "threads_count"), stats.threads_count);
    assert_int_equal(json_number(&report, "superslabs_count"), stats.superslabs_count);
    assert_int_equal(json_number(&report, "whales_count"), stats.whales_count);
    assert_true(json_number(&report, "malloc_slow") > 0);
    assert_true(json_number(&report, "refill_carve") > 0);
    assert_true(json_number(&report, "mmap") > 0);
    munmap(report.text, REPORT_MAX);
    hak_free(small);
    hak_free(span);
    hak_free(whale);
}

static size_t lines_count(const struct report *report)
{
    size_t lines = 0;
    for (size_t i = 0; i < report->length; i++) {
        lines += report->text[i] == '\n';
    }
    return lines;
}

/* The full text begins with the summary, whose columns add up. */
TEST(text_report)
{
    struct report report = report_write(HAK_REPORT_TEXT);
    struct report summary = report_write(HAK_REPORT_SUMMARY);
    assert_int_equal(report.text[report.length - 1], '\n');
    assert_int_equal(summary.text[summary.length - 1], '\n');
    assert_non_null(strstr(report.text, hak_version()));
    assert_true(lines_count(&summary) >= 10 && lines_count(&summary) <= 14);
    assert_true(lines_count(&report) > lines_count(&summary) + 50);
    assert_memory_equal(report.text, summary.text, strcspn(summary.text, "\n"));
    if (strstr(summary.text, "unknown") != NULL) { /* an emulator, or nothing to estimate from */
        print_message("the summary has unknown parts:\n%s", summary.text);
    }
    double mib_sum = 0, percent_sum = 0, rss = 0, mib, percent;
    size_t parts = 0;
    for (const char *line = summary.text; line != NULL && *line != '\0';) {
        char title[64];
        if (strncmp(line, "  ", 2) == 0 && line[2] != ' ' &&
            (sscanf(line, " %63[^0-9~] ~ %lf MiB %lf %%", title, &mib, &percent) == 3 ||
             sscanf(line, " %63[^0-9~] %lf MiB %lf %%", title, &mib, &percent) == 3)) {
            mib_sum += mib;
            percent_sum += percent;
            parts++;
        }
        sscanf(line, "resident memory (RSS) %lf MiB 100.0 %%", &rss);
        line = strchr(line, '\n');
        line += line != NULL;
    }
    assert_true(parts == 7 || strstr(summary.text, "RSS) is unknown") != NULL ||
                strstr(summary.text, "parts are unknown") != NULL);
    assert_true(parts != 7 || (rss > 0 && fabs(mib_sum - rss) < 1e-6));
    assert_true(parts != 7 || fabs(percent_sum - 100) < 1e-6);
    munmap(report.text, REPORT_MAX);
    munmap(summary.text, REPORT_MAX);
}

/* Every number of the JSON report, but those of threads, has a name. */
TEST(names)
{
    static const char *const wrong[] = {"",
                                        ".",
                                        "totals",
                                        "totals.",
                                        "totals.bytes",
                                        "bytes_in_use",
                                        "totals.bytes_in_use.x",
                                        "classes.in_use",
                                        "classes.1.in_use",
                                        "hakmem.version",
                                        "threads.1.cached_bytes",
                                        "counters.malloc_slow ",
                                        "TOTALS.bytes_in_use"};
    uint64_t value = 77;
    char *longest = support_map(5000);
    void *block = hak_malloc(64);
    memset(longest, 'x', 4999);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        if (hak_stats_value(wrong[i], &value)) {
            fail_msg("%s has a value", wrong[i]);
        }
    }
    assert_false(hak_stats_value(longest, &value));
    assert_int_equal(value, 77);
    struct hak_stats stats = stats_now();
    assert_true(hak_stats_value("totals.bytes_in_use", &value));
    assert_int_equal(value, stats.bytes_in_use);
    assert_true(hak_stats_value("classes.64.in_use", &value) && value >= 1);
    assert_true(hak_stats_value("heaps.1.threads", &value));
    assert_true(hak_stats_value("heaps.1.counters.slab_from_region", &value) && value >= 1);
    if (hak_stats_value("summary.rss_bytes", &value)) { /* emulators lack it */
        assert_true(value > 100000);
    }
    munmap(longest, 5000);
    hak_free(block);
}

/* A strict reader: a line is a comment, or a name, labels and a number. Every metric has its help
 * and type before its samples, which stand together, and no sample comes twice. */
TEST(prometheus_report)
{
    static const char *const kinds[] = {
        "^# HELP hakmem_[a-z][a-z0-9_]* [^\n\\\\]+$",
        "^# TYPE hakmem_[a-z][a-z0-9_]* (counter|gauge)$",
        "^hakmem_[a-z][a-z0-9_]*(\\{[a-z_]+=\"[^\"\\\\]*\"\\})? [0-9]+$",
    };
    regex_t patterns[COUNT_OF(kinds)];
    char previous[256] = "", metric[256] = "", *save = NULL;
    size_t samples = 0;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        assert_int_equal(regcomp(&patterns[i], kinds[i], REG_EXTENDED | REG_NOSUB), 0);
    }
    struct report report = report_write(HAK_REPORT_PROMETHEUS);
    struct report again = report_write(HAK_REPORT_PROMETHEUS);
    for (char *line = strtok_r(report.text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char name[256], *end = NULL;
        size_t kind = line[0] != '#' ? 2 : line[2] == 'T';
        if (regexec(&patterns[kind], line, 0, NULL, 0) != 0) {
            fail_msg("no line of Prometheus: <%s>", line);
        }
        snprintf(name, sizeof name, "%s", kind == 2 ? line : line + strlen("# HELP "));
        if (kind == 2) {
            name[strcspn(name, "{ ")] = '\0';
            assert_string_equal(name, metric);
            end = strrchr(line, ' ');
            *end = '\0';
            assert_string_not_equal(line, previous);
            snprintf(previous, sizeof previous, "%s", line);
            samples++;
            continue;
        }
        name[strcspn(name, " ")] = '\0';
        if (kind == 1) { /* right after its help */
            assert_string_equal(name, metric);
            assert_int_equal(strstr(line, " counter") != NULL,
                             strcmp(name + strlen(name) - 6, "_total") == 0);
            continue;
        }
        snprintf(metric, sizeof metric, "%s", name);
        char help[300];
        snprintf(help, sizeof help, "# HELP %s ", metric);
        const char *first = strstr(again.text, help);
        assert_non_null(first);
        assert_null(strstr(first + 1, help)); /* one group */
    }
    assert_true(samples > 50);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        regfree(&patterns[i]);
    }
    munmap(report.text, REPORT_MAX);
    munmap(again.text, REPORT_MAX);
}

TESTS(NULL)
