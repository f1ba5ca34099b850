/* SPDX-License-Identifier: MIT */
/* test_sites.c: names of sites, and the sums of each site in every view. The period is 1, so every
 * block is a sample and all sums are exact. */
#include "../child.h"
#include "../collect.h"
#include "../threads/threads.h"

#include <hakmem/profile.h>
#include <hakmem/site.h>

enum { NAMES_MAX = 1024 };

static struct collected seen, seen_elsewhere;

static const char *report_now(enum hak_report_format format)
{
    return collect_report(&seen, format);
}

/* The record of the list "sites" in which `field` stands. NULL: there is none. */
static const char *record_with(const char *text, const char *field)
{
    const char *list = strstr(text, "\"sites\": [");
    REQUIRE(list != NULL);
    const char *end = strchr(list, ']'), *found = strstr(list, field);
    if (found == NULL || found > end) {
        return NULL;
    }
    while (*found != '{') {
        found--;
    }
    return found;
}

static const char *record_named(const char *text, const char *name)
{
    char field[100];
    snprintf(field, sizeof field, "\"name\": \"%s\"", name);
    return record_with(text, field);
}

/* What stands behind the key in the record. */
static const char *field_of(const char *record, const char *key)
{
    char quoted[64];
    REQUIRE(record != NULL);
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(record, quoted);
    REQUIRE(at != NULL && at < strchr(record, '}'));
    return at + strlen(quoted);
}

static uint64_t number_of(const char *record, const char *key)
{
    return strtoull(field_of(record, key), NULL, 10);
}

static bool has_string(const char *record, const char *key, const char *wanted)
{
    const char *at = field_of(record, key);
    return *at == '"' && strncmp(at + 1, wanted, strlen(wanted)) == 0 &&
           at[1 + strlen(wanted)] == '"';
}

static uint64_t figure(const char *name, const char *key)
{
    const char *record = record_named(report_now(HAK_REPORT_JSON), name);
    return record != NULL ? number_of(record, key) : 0;
}

/* Allocates until this thread takes samples: it notices a start at a look at the clock. */
static void notice_start(struct collected *view, const char *name)
{
    uintptr_t probe = hak_site_register(name);
    do {
        for (size_t i = 0; i < 1000; i++) {
            hak_free(hak_alloc_at(100, probe));
        }
    } while (record_named(collect_report(view, HAK_REPORT_JSON), name) == NULL);
}

/* --- names --- */

TEST(names)
{
    char longest[HAK_SITE_NAME_MAX + 20];
    errno = ERRNO_UNTOUCHED;
    uintptr_t one = hak_site_register("names.one"), two = hak_site_register("names.two");
    assert_true(one != 0 && two != 0 && one != two);
    char copy[] = "names.one";
    assert_int_equal(hak_site_register(copy), one);
    copy[0] = 'x'; /* the name was copied */
    assert_int_equal(hak_site_register("names.one"), one);
    assert_int_equal(hak_site_register(NULL), 0);
    assert_int_equal(hak_site_register(""), 0);
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    uintptr_t cut = hak_site_register(longest);
    longest[HAK_SITE_NAME_MAX] = '\0';
    assert_int_equal(hak_site_register(longest), cut);
    assert_int_equal(hak_site_register("names \"\\\n\377"), hak_site_register("names ????"));
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

TEST(scopes_nest)
{
    assert_int_equal(hak_site_enter(11), 0);
    assert_int_equal(hak_site_enter(22), 11);
    hak_site_leave(11);
    {
        HAK_SITE_SCOPE("names.one");
        assert_int_equal(hak_site_enter(33), hak_site_register("names.one"));
        hak_site_leave(hak_site_register("names.one"));
        HAK_SITE_SCOPE("names.two");
        hak_free(hak_alloc_at(100, 44)); /* ends with the call */
        assert_int_equal(hak_site_enter(hak_site_register("names.two")),
                         hak_site_register("names.two"));
    }
    assert_int_equal(hak_site_enter(0), 11);
    assert_int_equal(hak_site_enter(0), 0);
}

/* --- sums --- */

TEST(exact_sums)
{
    enum { COUNT = 200, SIZE = 1000, SPAN = 100000 };
    void *blocks[COUNT], *span;
    assert_int_equal(hak_profile_start(1), 0);
    notice_start(&seen, "probe");
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = HAK_MALLOC_AT("sums", SIZE);
        assert_non_null(blocks[i]);
    }
    span = HAK_MALLOC_AT("sums", SPAN);
    assert_non_null(span);
    size_t usable = hak_usable_size(blocks[0]) * COUNT + hak_usable_size(span);
    for (size_t i = 0; i < COUNT / 4; i++) {
        usable -= hak_usable_size(blocks[i]);
        hak_free(blocks[i]);
    }
    const char *record = record_named(report_now(HAK_REPORT_JSON), "sums");
    assert_true(has_string(record, "kind", "named") && has_string(record, "address", ""));
    assert_int_equal(number_of(record, "allocated_count"), COUNT + 1);
    assert_int_equal(number_of(record, "allocated_bytes"), COUNT * SIZE + SPAN);
    assert_int_equal(number_of(record, "freed_count"), COUNT / 4);
    assert_int_equal(number_of(record, "freed_bytes"), COUNT / 4 * SIZE);
    assert_int_equal(number_of(record, "live_count"), COUNT - COUNT / 4 + 1);
    assert_int_equal(number_of(record, "live_bytes"), (COUNT - COUNT / 4) * SIZE + SPAN);
    assert_int_equal(number_of(record, "live_usable_bytes"), usable);
    assert_int_equal(number_of(record, "size_min"), SIZE);
    assert_int_equal(number_of(record, "size_max"), SPAN);
    assert_int_equal(number_of(record, "samples"), COUNT + 1);
    assert_int_equal(number_of(record, "samples_live"), COUNT - COUNT / 4 + 1);
    assert_int_equal(number_of(record, "remote_permille"), 0);
    for (size_t i = COUNT / 4; i < COUNT; i++) {
        hak_free(blocks[i]);
    }
    hak_free(span);
    assert_int_equal(figure("sums", "live_bytes"), 0);
    assert_int_equal(figure("sums", "live_usable_bytes"), 0);
    assert_int_equal(figure("sums", "samples_live"), 0);
}

/* Every way to allocate counts at the thread's site. */
TEST(every_entry_point)
{
    void *blocks[6];
    {
        HAK_SITE_SCOPE("entries");
        blocks[0] = hak_malloc(100);
        blocks[1] = hak_calloc(2, 100);
        blocks[2] = hak_realloc(NULL, 300);
        blocks[3] = hak_aligned_alloc(64, 400);
        blocks[4] = hak_malloc(5 * MIB);
        blocks[5] = hak_alloc_at(500, 0); /* no site: that of the thread */
    }
    assert_int_equal(figure("entries", "live_bytes"), 100 + 200 + 300 + 400 + 5 * MIB + 500);
    FREE_ALL(blocks, COUNT_OF(blocks));
    assert_int_equal(figure("entries", "live_bytes"), 0);
}

TEST(number_without_a_name)
{
    void *block = hak_alloc_at(700, 0x1234);
    const char *record = record_named(report_now(HAK_REPORT_JSON), "site 0x1234");
    assert_true(has_string(record, "kind", "number"));
    assert_int_equal(number_of(record, "live_bytes"), 700);
    hak_free(block);
}

TEST(lifetimes)
{
    enum { COUNT = 10, SLEEP_MS = 40 };
    void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = HAK_MALLOC_AT("lives", 100);
    }
    assert_int_equal(figure("lives", "lifetime_ms"), 0);
    usleep(SLEEP_MS * 1000);
    FREE_ALL(blocks, COUNT);
    const char *record = record_named(report_now(HAK_REPORT_JSON), "lives");
    assert_true(number_of(record, "lifetime_ms") >= SLEEP_MS - 1); /* each clock read rounds down */
    const char *counts = field_of(record, "lifetime_counts") + 1;
    uint64_t sum = 0;
    for (size_t i = 0; i < 12; i++) {
        char *end;
        uint64_t count = strtoull(counts, &end, 10);
        assert_true(end != counts && (i >= 3 || count == 0)); /* none below 16 ms */
        sum += count;
        counts = end;
    }
    assert_int_equal(*counts, '"');
    assert_int_equal(sum, COUNT);
}

/* --- threads --- */

enum { SHARED_COUNT = 40 };
static void *shared_blocks[SHARED_COUNT];

static void *free_half(void *argument)
{
    FREE_ALL(shared_blocks, SHARED_COUNT / 2);
    return argument;
}

TEST(remote_share)
{
    for (size_t i = 0; i < SHARED_COUNT; i++) {
        shared_blocks[i] = HAK_MALLOC_AT("remote", 100);
    }
    threads_run(1, free_half, 0);
    assert_int_equal(figure("remote", "remote_permille"), 1000);
    for (size_t i = SHARED_COUNT / 2; i < SHARED_COUNT; i++) {
        hak_free(shared_blocks[i]);
    }
    assert_int_equal(figure("remote", "remote_permille"), 500);
}

static void *allocate_elsewhere(void *argument)
{
    notice_start(&seen_elsewhere, "probe.elsewhere");
    HAK_SITE_SCOPE("elsewhere");
    ALLOCATE_ALL(shared_blocks, SHARED_COUNT, 200);
    return argument;
}

/* A scope is its thread's alone. */
TEST(scope_of_one_thread)
{
    HAK_SITE_SCOPE("here");
    threads_run(1, allocate_elsewhere, 0);
    assert_int_equal(figure("elsewhere", "live_bytes"), SHARED_COUNT * 200);
    void *block = hak_malloc(300);
    assert_int_equal(figure("here", "size_max"), 300);
    assert_int_equal(figure("elsewhere", "live_bytes"), SHARED_COUNT * 200);
    hak_free(block);
    FREE_ALL(shared_blocks, SHARED_COUNT);
    assert_int_equal(figure("elsewhere", "live_bytes"), 0);
}

/* --- call sites without names --- */

enum { ADDRESS_SIZE = 77777 };

static __attribute__((noinline)) void *allocate_here(void)
{
    return hide(hak_malloc(ADDRESS_SIZE));
}

TEST(address)
{
    char program[4096];
    void *block = allocate_here();
    const char *record = record_with(report_now(HAK_REPORT_JSON), "\"size_max\": 77777,");
    assert_true(has_string(record, "kind", "address") && has_string(record, "name", ""));
    uintptr_t address = strtoull(field_of(record, "address") + 1, NULL, 16);
    assert_true(address - (uintptr_t)allocate_here < 4096);
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    if (getenv("TEST_EMULATOR") == NULL) { /* which has a /proc/self/exe of its own */
        assert_true(has_string(record, "module", program));
    }
    assert_true(strtoull(field_of(record, "offset") + 1, NULL, 16) != 0);
    hak_free(block);
}

/* --- the other views --- */

TEST(views)
{
    void *large = HAK_MALLOC_AT("views.large", 300 * MIB),
         *small = HAK_MALLOC_AT("views.small", 64);
    assert_true(large != NULL && small != NULL);
    const char *text = report_now(HAK_REPORT_SUMMARY);
    const char *line = strstr(text, "\nlargest sites: views.large with 300.00 MiB");
    assert_non_null(line);
    assert_non_null(strstr(line, " samples)\npeak RSS: "));
    assert_true(strchr(line + 1, '\n') == strstr(line, "\npeak"));

    text = report_now(HAK_REPORT_TEXT);
    assert_non_null(strstr(text, "\nsites\n  kind named name views.large address "));

    text = strstr(report_now(HAK_REPORT_JSON), "\"named_sites\": [");
    assert_non_null(text);
    assert_non_null(strstr(text, "{\"name\": \"views.large\", \"live_bytes\": 314572800, "));
    assert_non_null(strstr(text, "{\"name\": \"views.small\", \"live_bytes\": 64, "
                                 "\"live_count\": 1, \"allocated_bytes\": 64}"));
    assert_null(strstr(text, "0x1234")); /* named sites alone */

    seen.length = 0;
    hak_heap_map(collect, &seen);
    const char *record = record_named(seen.text, "views.small");
    assert_int_equal(number_of(record, "live_bytes"), 64);
    assert_int_equal(number_of(record, "live_usable_bytes"), hak_usable_size(small));

    seen.length = 0;
    hak_profile_write(collect, &seen);
    const char *stack = strstr(seen.text, "\"site\": \"views.large\"");
    assert_non_null(stack);
    assert_non_null(strstr(seen.text, "\"site\": \"\""));
    assert_int_equal(strtoull(strstr(stack, "\"live_bytes\": ") + 14, NULL, 10), 300 * MIB);
    hak_free(large);
    hak_free(small);
    assert_null(strstr(report_now(HAK_REPORT_SUMMARY), "views.large"));
}

/* --- processes --- */

static void go_on_in_child(void *argument)
{
    uintptr_t id = *(uintptr_t *)argument;
    REQUIRE(hak_site_register("forks") == id);
    REQUIRE(hak_site_register("forks.child") != 0);
    REQUIRE(figure("forks", "live_bytes") == 500);
    void *block = hak_alloc_at(600, id);
    REQUIRE(block != NULL);
    REQUIRE(figure("forks", "live_bytes") == 1100);
}

TEST(fork)
{
    uintptr_t id = hak_site_register("forks");
    void *block = hak_alloc_at(500, id);
    REQUIRE_LIFE(go_on_in_child, &id, "");
    assert_int_equal(figure("forks", "live_bytes"), 500);
    hak_free(block);
}

/* --- bounds --- */

static void fill_names(void *argument)
{
    char name[32];
    uintptr_t last = 0;
    for (size_t i = 0; i < NAMES_MAX; i++) {
        snprintf(name, sizeof name, "fill.%zu", i);
        last = hak_site_register(name);
        REQUIRE(last != 0);
    }
    uintptr_t other = hak_site_register("one more");
    REQUIRE(other != 0 && other == hak_site_register("and one more"));
    REQUIRE(hak_site_register("names.one") != other); /* known names keep their ids */
    void *block = hak_alloc_at(12345, other);
    REQUIRE(block != NULL);
    const char *record = record_named(report_now(HAK_REPORT_JSON), "other");
    REQUIRE(has_string(record, "kind", "other"));
    REQUIRE(number_of(record, "live_bytes") >= 12345);
}

static void fill_numbers(void *argument)
{
    enum { COUNT = 5000 };
    uint64_t before = figure("other", "live_bytes");
    for (uintptr_t i = 1; i <= COUNT; i++) {
        REQUIRE(hak_alloc_at(1000, i << 20) != NULL);
    }
    uint64_t rest = figure("other", "live_bytes") - before;
    REQUIRE(rest % 1000 == 0 && rest >= 1000 * (COUNT - 4096) && rest < 1000 * COUNT);
    REQUIRE(hak_site_register("late") != 0); /* names have room of their own */
    void *block = HAK_MALLOC_AT("late", 5 * MIB);
    REQUIRE(block != NULL && figure("late", "live_bytes") == 5 * MIB);
}

TEST(full_tables)
{
    struct child_end end;
    child_fork(fill_names, NULL, &end);
    REQUIRE_EXIT(&end, "");
    REQUIRE_LIFE(fill_numbers, NULL, "");
}

TESTS(NULL)
