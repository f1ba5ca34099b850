/* test_stats.c: hak_stats_get is exact for heaps at rest; hak_report is well-formed text and JSON
 * that agree. */
#include "../support.h"

#include <ctype.h>
#include <pthread.h>

static void require_same_use(struct hak_stats before, struct hak_stats after)
{
    assert_int_equal(after.objects_in_use_count, before.objects_in_use_count);
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
}

static void test_one_block_at_a_time(void **state)
{
    (void)state;
    struct hak_stats start = stats_now();
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        assert_non_null(block);
        struct hak_stats with = stats_now();
        assert_int_equal(with.objects_in_use_count - start.objects_in_use_count, 1);
        assert_int_equal(with.bytes_in_use - start.bytes_in_use, hak_usable_size(block));
        assert_true(with.bytes_mapped >= with.bytes_in_use);
        assert_true(with.heaps_count >= 1 && with.heaps_parked_count < with.heaps_count);
        assert_true(with.threads_count >= 1);
        block = hak_realloc(block, tier_sizes[i] * 2 + 1);
        assert_non_null(block);
        with = stats_now();
        assert_int_equal(with.objects_in_use_count - start.objects_in_use_count, 1);
        assert_int_equal(with.bytes_in_use - start.bytes_in_use, hak_usable_size(block));
        hak_free(block);
        require_same_use(start, stats_now());
    }
}

static void test_a_known_set(void **state)
{
    enum { COUNT = 6000 };
    (void)state;
    uint64_t random = 3;
    void **blocks = support_map(COUNT * sizeof *blocks);
    struct hak_stats start = stats_now();
    size_t bytes = 0;
    for (size_t i = 0; i < COUNT; i++) {
        size_t size = random_size(&random, i % 50 == 0 ? 22 : 12);
        blocks[i] = i % 4 == 0   ? hak_memalign((size_t)16 << (i / 4 % 10), size)
                    : i % 4 == 1 ? hak_calloc(1, size)
                                 : hak_malloc(size);
        assert_non_null(blocks[i]);
        bytes += hak_usable_size(blocks[i]);
    }
    struct hak_stats full = stats_now();
    assert_int_equal(full.objects_in_use_count - start.objects_in_use_count, COUNT);
    assert_int_equal(full.bytes_in_use - start.bytes_in_use, bytes);
    for (size_t i = 0; i < COUNT; i += 2) {
        bytes -= hak_usable_size(blocks[i]);
        hak_free(blocks[i]);
    }
    struct hak_stats half = stats_now();
    assert_int_equal(half.objects_in_use_count - start.objects_in_use_count, COUNT / 2);
    assert_int_equal(half.bytes_in_use - start.bytes_in_use, bytes);
    hak_trim(0);
    half = stats_now();
    assert_int_equal(half.bytes_in_use - start.bytes_in_use, bytes);
    for (size_t i = 1; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    require_same_use(start, stats_now());
    munmap(blocks, COUNT * sizeof *blocks);
}

static void test_whales_and_superslabs(void **state)
{
    (void)state;
    struct hak_stats start = stats_now();
    void *small = hak_malloc(100);
    void *whale = hak_malloc(50 * MIB);
    assert_non_null(small);
    assert_non_null(whale);
    struct hak_stats with = stats_now();
    assert_int_equal(with.whales_count, start.whales_count + 1);
    assert_true(with.superslabs_count >= 1);
    assert_true(with.bytes_metadata > 0);
    assert_true(with.bytes_mapped >= start.bytes_in_use + 50 * MIB);
    hak_free(small);
    hak_free(whale);
    hak_trim(0);
    with = stats_now();
    assert_int_equal(with.whales_count, start.whales_count);
    assert_true(with.bytes_cached < 4 * MIB);
}

enum { THREAD_BLOCKS = 2000 };

static void *thread_allocate(void *argument)
{
    void **blocks = argument;
    for (size_t i = 0; i < THREAD_BLOCKS; i++) {
        blocks[i] = hak_malloc(i * 37 % 3000);
        REQUIRE(blocks[i] != NULL);
    }
    return NULL;
}

static void *thread_free(void *argument)
{
    void **blocks = argument;
    for (size_t i = 0; i < THREAD_BLOCKS; i++) {
        hak_free(blocks[i]);
    }
    return NULL;
}

static void thread_run(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Objects of ended threads, freed by this one and by others: nobody's cache or buffer may hide or
 * invent any. */
static void test_other_threads(void **state)
{
    (void)state;
    void **blocks = support_map(THREAD_BLOCKS * sizeof *blocks);
    struct hak_stats start = stats_now();
    for (unsigned way = 0; way < 4; way++) {
        if (way % 2 == 0) {
            thread_run(thread_allocate, blocks);
        } else {
            thread_allocate(blocks);
        }
        size_t bytes = 0;
        for (size_t i = 0; i < THREAD_BLOCKS; i++) {
            bytes += hak_usable_size(blocks[i]);
        }
        struct hak_stats full = stats_now();
        assert_int_equal(full.objects_in_use_count - start.objects_in_use_count, THREAD_BLOCKS);
        assert_int_equal(full.bytes_in_use - start.bytes_in_use, bytes);
        if (way < 2) {
            thread_run(thread_free, blocks);
        } else {
            thread_free(blocks);
        }
        require_same_use(start, stats_now());
    }
    assert_true(stats_now().heaps_count <= start.heaps_count + 1);
    assert_int_equal(stats_now().threads_count, start.threads_count);
    munmap(blocks, THREAD_BLOCKS * sizeof *blocks);
}

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

/* A reader of JSON that only says where it ends: NULL when it is malformed. */
static const char *json_skip_value(const char *at, unsigned depth);

static const char *json_skip_space(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
    }
    return at;
}

static const char *json_skip_string(const char *at)
{
    if (*at != '"') {
        return NULL;
    }
    for (at++; *at != '"'; at++) {
        if (*at == '\0' || *at == '\n' || (*at == '\\' && *++at == '\0')) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *json_skip_group(const char *at, char close, unsigned depth)
{
    at = json_skip_space(at + 1);
    if (*at == close) {
        return at + 1;
    }
    for (;;) {
        if (close == '}') {
            at = json_skip_string(at);
            if (at == NULL || *(at = json_skip_space(at)) != ':') {
                return NULL;
            }
            at++;
        }
        at = json_skip_value(at, depth + 1);
        if (at == NULL) {
            return NULL;
        }
        at = json_skip_space(at);
        if (*at == close) {
            return at + 1;
        }
        if (*at++ != ',') {
            return NULL;
        }
        at = json_skip_space(at);
    }
}

static const char *json_skip_value(const char *at, unsigned depth)
{
    at = json_skip_space(at);
    if (depth > 32) {
        return NULL;
    }
    if (*at == '{' || *at == '[') {
        return json_skip_group(at, *at == '{' ? '}' : ']', depth);
    }
    if (*at == '"') {
        return json_skip_string(at);
    }
    for (const char *const *word = (const char *const[]){"true", "false", "null", NULL};
         *word != NULL; word++) {
        if (strncmp(at, *word, strlen(*word)) == 0) {
            return at + strlen(*word);
        }
    }
    char *end;
    strtod(at, &end);
    return end == at || !(isdigit((unsigned char)*at) || *at == '-') ? NULL : end;
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
static void test_live_threads(void **state)
{
    pthread_t threads[LIVE_THREADS];
    (void)state;
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

static void test_json_report(void **state)
{
    (void)state;
    void *small = hak_malloc(100);
    void *span = hak_malloc(800000);
    void *whale = hak_malloc(9 * MIB);
    struct report report = report_write(HAK_REPORT_JSON);
    assert_int_equal(*json_skip_space(report.text), '{');
    const char *end = json_skip_value(report.text, 0);
    if (end == NULL || *json_skip_space(end) != '\0') {
        support_fail("the JSON report is malformed:\n%s\n", report.text);
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
    const char *path = getenv("HAKMEM_TEST_JSON"); /* for a reader with another parser */
    if (path != NULL) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(report.text, 1, report.length, file), report.length);
        fclose(file);
    }
    munmap(report.text, REPORT_MAX);
    hak_free(small);
    hak_free(span);
    hak_free(whale);
}

static void test_text_report(void **state)
{
    (void)state;
    struct report report = report_write(HAK_REPORT_TEXT);
    assert_int_equal(report.text[report.length - 1], '\n');
    assert_non_null(strstr(report.text, hak_version()));
    munmap(report.text, REPORT_MAX);
}

static size_t counter_now(const char *key)
{
    struct report report = report_write(HAK_REPORT_JSON);
    size_t value = json_number(&report, key);
    munmap(report.text, REPORT_MAX);
    return value;
}

static void test_reallocs_are_counted(void **state)
{
    (void)state;
    char *block = hak_malloc(100);
    assert_non_null(block);
    size_t copied = counter_now("realloc_copied");
    size_t in_place = counter_now("realloc_in_place");
    static const size_t copying[] = {2000, 300 * KIB, 3 * MIB, 2 * MIB, 50000, 10};
    for (size_t i = 0; i < COUNT_OF(copying); i++) {
        block = hak_realloc(block, copying[i]);
        assert_non_null(block);
        assert_int_equal(counter_now("realloc_copied"), copied + i + 1);
    }
    block = hak_realloc(block, 5 * MIB);
    for (size_t i = 0; i < 5; i++) { /* page tables move */
        block = hak_realloc(block, (6 + i) * MIB + 1);
        assert_non_null(block);
        assert_int_equal(counter_now("realloc_in_place"), in_place + i + 1);
    }
    assert_int_equal(counter_now("realloc_copied"), copied + COUNT_OF(copying) + 1);
    hak_free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_block_at_a_time),   cmocka_unit_test(test_a_known_set),
        cmocka_unit_test(test_whales_and_superslabs), cmocka_unit_test(test_other_threads),
        cmocka_unit_test(test_live_threads),          cmocka_unit_test(test_json_report),
        cmocka_unit_test(test_text_report),           cmocka_unit_test(test_reallocs_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
