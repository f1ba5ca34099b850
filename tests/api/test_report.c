/* SPDX-License-Identifier: MIT */
/* test_report.c: hak_report is well-formed text and JSON that agree; names of figures. */
#include "../report.h"
#include "../threads/threads.h"

#include <math.h>

static struct collected written, again;

static const char *report_write(struct collected *into, enum hak_report_format format)
{
    errno = ERRNO_UNTOUCHED;
    collect_report(into, format);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_true(into->length > 0);
    for (const char *at = into->text; *at != '\0'; at++) {
        assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
    }
    return into->text;
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

/* Times `part` stands after `start` in the text. */
static size_t count_parts(const char *text, const char *start, const char *part)
{
    size_t count = 0;
    const char *at = strstr(text, start);
    REQUIRE(at != NULL);
    for (at = strstr(at, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* Before the others: nothing is in use yet. */
TEST(small_heap)
{
    void *block = hak_malloc(96);
    const char *text = report_write(&written, HAK_REPORT_SUMMARY);
    assert_non_null(strstr(text, " 1 blocks of 96 B, touched or not\n"));
    assert_null(strstr(text, "fragmentation")); /* which so few slabs would alarm with */
    hak_free(block);
}

/* A record for each thread that has a cache, and for each arena, of which they may share some. */
TEST(live_threads)
{
    pthread_t threads[LIVE_THREADS];
    struct hak_stats before = stats_now();
    assert_int_equal(pthread_barrier_init(&live_barrier, NULL, LIVE_THREADS + 1), 0);
    threads_start(threads, LIVE_THREADS, live_thread, 0);
    pthread_barrier_wait(&live_barrier);
    struct hak_stats during = stats_now();
    const char *text = report_write(&written, HAK_REPORT_JSON);
    pthread_barrier_wait(&live_barrier);
    JOIN_ALL(threads, LIVE_THREADS);
    assert_int_equal(during.threads_count, before.threads_count + LIVE_THREADS);
    assert_true(during.arenas_count <= before.arenas_count + LIVE_THREADS);
    assert_true(during.arenas_count - during.arenas_parked_count <= during.threads_count);
    assert_int_equal(during.objects_in_use_count, before.objects_in_use_count + LIVE_THREADS);
    assert_int_equal(count_parts(text, "\"threads\": [", "\"cached_bytes\""), during.threads_count);
    assert_int_equal(count_parts(text, "\"arenas\": [", "\"span_cached_bytes\""),
                     during.arenas_count);
    assert_int_equal(stats_now().threads_count, before.threads_count);
    require_same_use(before, stats_now());
    pthread_barrier_destroy(&live_barrier);
}

TEST(json_report)
{
    void *small = hak_malloc(100);
    void *span = hak_malloc(800000);
    void *block = hak_malloc(9 * MIB);
    const char *text = report_write(&written, HAK_REPORT_JSON);
    if (!SUPPORT_EMULATED) { /* qemu-user does not start programs */
        FILE *reader = popen("python3 -m json.tool >/dev/null", "w");
        assert_non_null(reader);
        assert_int_equal(fwrite(text, 1, written.length, reader), written.length);
        assert_int_equal(pclose(reader), 0);
    }
    struct hak_stats stats = stats_now();
    assert_int_equal(report_number_at(text, "bytes_mapped"), stats.bytes_mapped);
    assert_int_equal(report_number_at(text, "bytes_metadata"), stats.bytes_metadata);
    assert_int_equal(report_number_at(text, "bytes_in_use"), stats.bytes_in_use);
    assert_int_equal(report_number_at(text, "bytes_cached"), stats.bytes_cached);
    assert_int_equal(report_number_at(text, "bytes_free_dirty"), stats.bytes_free_dirty);
    assert_int_equal(report_number_at(text, "objects_in_use_count"), stats.objects_in_use_count);
    assert_int_equal(report_number_at(text, "arenas_count"), stats.arenas_count);
    assert_int_equal(report_number_at(text, "arenas_parked_count"), stats.arenas_parked_count);
    assert_int_equal(report_number_at(text, "threads_count"), stats.threads_count);
    assert_int_equal(report_number_at(text, "superslabs_count"), stats.superslabs_count);
    assert_int_equal(report_number_at(text, "huge_count"), stats.huge_count);
    assert_true(report_number_at(text, "malloc_slow") > 0);
    assert_true(report_number_at(text, "refill_carve") > 0);
    assert_true(report_number_at(text, "mmap") > 0);
    hak_free(small);
    hak_free(span);
    hak_free(block);
}

/* The full text begins with the summary, whose columns add up. */
TEST(text_report)
{
    const char *text = report_write(&again, HAK_REPORT_TEXT);
    const char *summary = report_write(&written, HAK_REPORT_SUMMARY);
    size_t lines = count_parts(summary, "", "\n");
    assert_int_equal(text[again.length - 1], '\n');
    assert_int_equal(summary[written.length - 1], '\n');
    assert_non_null(strstr(text, hak_version()));
    assert_in_range(lines, 10, 16);
    assert_true(count_parts(text, "", "\n") > lines + 50);
    assert_memory_equal(text, summary, strcspn(summary, "\n"));
    if (strstr(summary, "unknown") != NULL) { /* an emulator, or nothing to estimate from */
        print_message("the summary has unknown parts:\n%s", summary);
    }
    double mib_sum = 0, percent_sum = 0, rss = 0, mib, percent;
    size_t parts = 0;
    for (const char *line = summary; line != NULL && *line != '\0';) {
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
    assert_true(parts == 7 || strstr(summary, "RSS) is unknown") != NULL ||
                strstr(summary, "parts are unknown") != NULL);
    assert_true(parts != 7 || (rss > 0 && fabs(mib_sum - rss) < 1e-6));
    assert_true(parts != 7 || fabs(percent_sum - 100) < 1e-6);
}

/* Every number of the JSON report, but those of threads, has a name. */
TEST(names)
{
    static const char *const wrong[] = {
        "",
        "totals.",
        "totals.bytes",
        "bytes_in_use",
        "totals.bytes_in_use.x",
        "classes.1.in_use",
        "threads.1.cached_bytes",
        "counters.malloc_slow ",
        "TOTALS.bytes_in_use",
    };
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
    assert_true(hak_stats_value("arenas.1.threads", &value));
    assert_true(hak_stats_value("arenas.1.counters.slab_from_region", &value) && value >= 1);
    if (hak_stats_value("summary.rss_bytes", &value)) { /* emulators lack it */
        assert_true(value > 100000);
    }
    munmap(longest, 5000);
    hak_free(block);
}

TESTS(NULL)
