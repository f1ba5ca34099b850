/* SPDX-License-Identifier: MIT */
/* test_control.c: hak_option_set, hak_option_get and hak_control: what each refuses, and that what
 * they set has its effect.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"
#include "hakmem/control.h"
#include "hakmem/profile.h"

static const char *get(const char *name)
{
    static char value[2048];
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak_option_get(name, value, sizeof value), 0);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    return value;
}

static void set(const char *name, const char *value)
{
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak_option_set(name, value), 0);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

/* The answer, with room for reports. */
static char answer[1 << 20];

static const char *ask(const char *name, const char *value)
{
    int error = hak_control(name, value, answer, sizeof answer);
    if (error != 0) {
        fail_msg("%s: %s", name, strerror(error));
    }
    return answer;
}

TEST(what_is_set_is_got)
{
    static const char *const cases[][3] = {
        {"purge_delay_ms", "250", "250"},     {"PURGE_DELAY_MS", "never", "never"},
        {"HAKMEM_BIN_BYTES", "128k", "128k"}, {"hakmem_cache_bytes", "3m", "3m"},
        {"cache_bytes_total", "1g", "1g"},    {"huge_cache_bytes", "1048576", "1m"},
        {"huge_threshold", "never", "never"}, {"limit", "300g", "300g"},
        {"limit_hard", "400g", "400g"},       {"abort_on_foreign", "1", "1"},
        {"keep_deepbind", "1", "1"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char before[64];
        strcpy(before, get(cases[i][0]));
        set(cases[i][0], cases[i][1]);
        assert_string_equal(get(cases[i][0]), cases[i][2]);
        set(cases[i][0], before);
        assert_string_equal(get(cases[i][0]), before);
    }
}

TEST(refused)
{
    static const struct {
        const char *name;
        const char *value;
        int error;
    } cases[] = {
        {"nonsense", "1", ENOENT},          {"", "1", ENOENT},
        {"hakmem_", "1", ENOENT},           {"purge_delay_msx", "1", ENOENT},
        {"purge_delay", "1", ENOENT},       {"purge_delay_ms", "soon", EINVAL},
        {"purge_delay_ms", "-1", EINVAL},   {"purge_delay_ms", "1k", EINVAL},
        {"purge_delay_ms", "", EINVAL},     {"purge_delay_ms", NULL, EINVAL},
        {"bin_bytes", "4g", EINVAL},        {"cache_bytes_total", "0", EINVAL},
        {"limit", "much", EINVAL},          {"limit_hard", "1 m", EINVAL},
        {"sample_bytes", "often", EINVAL},  {"abort_on_foreign", "yes", EINVAL},
        {"profile", "small", EPERM},        {"arenas", "2", EPERM},
        {"guard", "1000", EPERM},           {"scavenger", "1", EPERM},
        {"stats_file", "/tmp/file", EPERM}, {"config_file", "/tmp/file", EPERM},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char before[2048];
        bool known = hak_option_get(cases[i].name, before, sizeof before) == 0;
        errno = ERRNO_UNTOUCHED;
        assert_int_equal(hak_option_set(cases[i].name, cases[i].value), cases[i].error);
        assert_int_equal(errno, ERRNO_UNTOUCHED);
        assert_int_equal(known, cases[i].error != ENOENT);
        if (known) {
            assert_string_equal(get(cases[i].name), before);
        }
    }
}

TEST(short_buffers)
{
    char value[8] = "xxxxxxx";
    set("purge_delay_ms", "12345");
    assert_int_equal(hak_option_get("purge_delay_ms", value, 4), ERANGE);
    assert_string_equal(value, "123");
    assert_int_equal(value[4], 'x');
    assert_int_equal(hak_option_get("purge_delay_ms", value, 6), 0);
    assert_string_equal(value, "12345");
    assert_int_equal(hak_option_get("purge_delay_ms", NULL, 0), ERANGE);
    assert_int_equal(hak_option_get("nonsense", value, sizeof value), ENOENT);
    assert_int_equal(hak_control("options.purge_delay_ms", NULL, value, 2), ERANGE);
    assert_string_equal(value, "1");
    assert_int_equal(hak_control("options.purge_delay_ms", "1000", NULL, 0), 0);
    assert_int_equal(hak_control("report.text", NULL, value, sizeof value), ERANGE);
    assert_int_equal(strlen(value), sizeof value - 1);
}

/* A freed huge block goes back at once when none may be kept. */
TEST(huge_follow_the_option)
{
    set("huge_cache_bytes", "0");
    char *block = hak_malloc(32 * MIB);
    assert_non_null(block);
    size_t before = stats_now().bytes_mapped;
    hak_free(block);
    assert_true(before - stats_now().bytes_mapped >= 32 * MIB);
    set("huge_cache_bytes", "never");
}

TEST(the_hard_limit_holds)
{
    char limit[32];
    struct hak_stats stats = stats_now();
    snprintf(limit, sizeof limit, "%zu", stats.bytes_mapped + stats.bytes_metadata + 16 * MIB);
    set("limit_hard", limit);
    errno = 0;
    assert_null(hak_malloc(64 * MIB));
    assert_int_equal(errno, ENOMEM);
    set("limit_hard", "never");
    void *block = hak_malloc(64 * MIB);
    assert_non_null(block);
    hak_free(block);
}

static size_t shared_calls;

static void note_limit(size_t mapped, void *argument)
{
    assert_ptr_equal(argument, &shared_calls);
    shared_calls++;
}

/* The callback of hak_limit_set stays when the option changes the limit. */
TEST(the_soft_limit_keeps_its_callback)
{
    hak_limit_set(SIZE_MAX, SIZE_MAX, note_limit, &shared_calls);
    set("limit", "1m");
    void *block = hak_malloc(8 * MIB);
    assert_non_null(block);
    assert_int_equal(shared_calls, 1);
    hak_free(block);
    set("limit", "never");
    block = hak_malloc(8 * MIB);
    assert_int_equal(shared_calls, 1);
    hak_free(block);
    hak_limit_set(SIZE_MAX, SIZE_MAX, NULL, NULL);
}

/* Bins that have grown shrink to a smaller bin_bytes, and the next tick of the thread does it:
 * frees after it find the bin full. */
TEST(bins_follow_the_option)
{
    enum { OBJECTS = 4000 };
    static void *objects[OBJECTS];
    SKIP_IF(HAK_LEVEL >= 2); /* tiny limits: bins do not grow */
    set("bin_bytes", "512k");
    set("purge_delay_ms", "never"); /* bins are not trimmed meanwhile */
    for (size_t round = 0; round < 8; round++) {
        ALLOCATE_ALL(objects, OBJECTS, 64);
        FREE_ALL(objects, OBJECTS);
    }
    uint64_t cached = 0, after = 0;
    assert_true(hak_stats_value("classes.64.cached", &cached));
    assert_true(cached * 64 >= 64 * KIB);
    set("bin_bytes", "4k");
    after = cached;
    for (uint64_t i = 0; after * 64 > 8 * KIB; i++) { /* as long as it takes to tick */
        void *large = hak_malloc(100 * KIB);
        void *small = hak_malloc(64);
        REQUIRE(large != NULL && small != NULL);
        hak_free(large);
        hak_free(small);
        if (i % 1000 == 0) {
            REQUIRE(hak_stats_value("classes.64.cached", &after));
        }
    }
    set("bin_bytes", "512k");
    set("purge_delay_ms", "1000");
}

TEST(samples_follow_the_option)
{
    uint64_t samples = 0;
    set("sample_bytes", "1");
    assert_string_equal(get("sample_bytes"), "1");
    for (size_t i = 0; i < 100; i++) {
        hak_free(hak_malloc(3 * MIB));
    }
    const char *profile = ask("profile.write", NULL);
    const char *at = strstr(profile, "\"samples\": ");
    assert_non_null(at);
    samples = strtoull(at + strlen("\"samples\": "), NULL, 10);
    assert_true(samples > 0);
    ask("profile.stop", NULL);
    assert_string_equal(get("sample_bytes"), "never");
    assert_int_equal(hak_profile_start(2000), 0);
    assert_string_equal(get("sample_bytes"), "2000");
    hak_profile_stop();
}

/* All names of the list are known, and the list has all that there is. */
TEST(the_list)
{
    static const char *const wanted[] = {
        "trim\tBYTES\t",          "list\tPREFIX\t",          "report.json\tFILE\t",
        "options.limit\tVALUE\t", "options.profile\t\t",     "counters.malloc_slow\t\t",
        "summary.rss_bytes\t\t",  "totals.bytes_mapped\t\t", "os_calls.mmap\t\t",
        "tiers.span_bytes\t\t",   "locks.lock_waits\t\t",    "huge_pages.bytes\t\t",
    };
    static char list[1 << 16];
    size_t lines = 0;
    strcpy(list, ask("list", NULL));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        char line[64];
        snprintf(line, sizeof line, "\n%s", wanted[i]);
        if (strstr(list, line) == NULL && strncmp(list, wanted[i], strlen(wanted[i])) != 0) {
            fail_msg("the list has no <%s>", wanted[i]);
        }
    }
    for (char *line = list, *end; *line != '\0'; line = end + 1, lines++) {
        end = strchr(line, '\n');
        char *tab = strchr(line, '\t');
        assert_true(end != NULL && tab != NULL && tab < end);
        *tab = '\0';
        char *second = strchr(tab + 1, '\t');
        assert_true(second != NULL && second < end);
        if (strchr(line, '.') == NULL || strncmp(line, "report.", 7) == 0 ||
            strncmp(line, "profile.", 8) == 0 || strncmp(line, "observe.", 8) == 0) {
            continue; /* actions have tests of their own */
        }
        int error = hak_control(line, NULL, answer, sizeof answer);
        bool may_be_unknown =
            strncmp(line, "summary.", 8) == 0 || strncmp(line, "huge_pages.", 11) == 0;
        if (error != 0 && !(error == ENOENT && may_be_unknown)) {
            fail_msg("%s: %s", line, strerror(error));
        }
    }
    assert_true(lines > 90);
    const char *options = ask("list", "options.");
    assert_true(strncmp(options, "options.", 8) == 0 && strstr(options, "\ncounters.") == NULL);
    assert_string_equal(ask("list", "no such thing"), "");
}

TEST(names)
{
    uint64_t value = 0;
    void *block = hak_malloc(100);
    assert_true(hak_stats_value("totals.threads_count", &value));
    assert_int_equal(strtoull(ask("totals.threads_count", NULL), NULL, 10), value);
    assert_true(strtoull(ask("classes.112.in_use", NULL), NULL, 10) >= 1);
    assert_string_equal(ask("version", NULL), hak_version());
    assert_string_equal(ask("options.abort_on_foreign", NULL), "0");
    assert_string_equal(ask("options.abort_on_foreign", "1"), "");
    assert_string_equal(ask("options.abort_on_foreign", NULL), "1");
    ask("options.abort_on_foreign", "0");
    assert_int_equal(hak_control("nonsense", NULL, answer, sizeof answer), ENOENT);
    assert_string_equal(answer, "");
    assert_int_equal(hak_control("", NULL, answer, sizeof answer), ENOENT);
    assert_int_equal(hak_control("options.", NULL, answer, sizeof answer), ENOENT);
    assert_int_equal(hak_control("options.nonsense", "1", answer, sizeof answer), ENOENT);
    assert_int_equal(hak_control("options.arenas", "3", answer, sizeof answer), EPERM);
    assert_int_equal(hak_control("options.limit", "x", answer, sizeof answer), EINVAL);
    assert_int_equal(hak_control("counters.malloc_slow", "0", answer, sizeof answer), EPERM);
    assert_int_equal(hak_control("counters", NULL, answer, sizeof answer), ENOENT);
    assert_int_equal(hak_control("version", "2", answer, sizeof answer), EINVAL);
    assert_int_equal(hak_control("purge", "now", answer, sizeof answer), EINVAL);
    assert_int_equal(hak_control("trim", "all", answer, sizeof answer), EINVAL);
    assert_int_equal(hak_control("profile.start", "x", answer, sizeof answer), EINVAL);
    hak_free(block);
}

TEST(actions)
{
    void *blocks[64];
    ALLOCATE_WRITTEN(blocks, COUNT_OF(blocks), 100 * KIB);
    FREE_ALL(blocks, COUNT_OF(blocks));
    assert_string_equal(ask("trim", "1t"), "0");
    const char *trimmed = ask("trim", NULL);
    assert_true(strcmp(trimmed, "0") == 0 || strcmp(trimmed, "1") == 0);
    ask("purge", NULL);
    ask("reset_peaks", NULL);
    struct hak_stats stats = stats_now();
    assert_true(stats.peak_bytes_mapped >= stats.bytes_mapped);
    assert_true(strncmp(ask("report.json", NULL), "{", 1) == 0);
    assert_true(strstr(ask("report.summary", NULL), "in use") != NULL);
    assert_true(strstr(ask("report.text", NULL), "malloc_slow") != NULL);
    assert_true(strncmp(ask("heap_map", NULL), "{", 1) == 0);
}

static size_t lines_of(const char *path)
{
    static char text[1 << 20];
    size_t lines = 0;
    REQUIRE(support_read_file(path, text, sizeof text) + 1 < sizeof text);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    return lines;
}

TEST(files)
{
    char directory[] = "/tmp/test_control_XXXXXX", path[64], none[80];
    REQUIRE(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(none, sizeof none, "%s/none/file", directory);
    assert_string_equal(ask("report.json", path), "");
    ask("report.json", path);
    assert_int_equal(lines_of(path), 2);
    ask("heap_map", path);
    ask("heap_map", path);
    assert_int_equal(lines_of(path), 1);
    REQUIRE(unlink(path) == 0);
    ask("profile.write", path);
    assert_int_equal(lines_of(path), 1);
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak_control("report.json", none, answer, sizeof answer), ENOENT);
    assert_int_equal(hak_control("heap_map", directory, answer, sizeof answer), EISDIR);
    assert_int_equal(hak_control("report.text", "/dev/full", answer, sizeof answer), ENOSPC);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    REQUIRE(unlink(path) == 0 && rmdir(directory) == 0);
}

static void set_in_child(void *argument)
{
    char value[32];
    REQUIRE(hak_option_set("purge_delay_ms", "77") == 0);
    REQUIRE(hak_option_set("limit", "1t") == 0);
    REQUIRE(hak_option_get("limit", value, sizeof value) == 0 && strcmp(value, "1t") == 0);
    REQUIRE(hak_control("trim", NULL, NULL, 0) == 0);
    REQUIRE(hak_control("report.json", NULL, answer, sizeof answer) == 0);
}

TEST(forked_child)
{
    set("purge_delay_ms", "500");
    REQUIRE_LIFE(set_in_child, NULL, NULL);
    assert_string_equal(get("purge_delay_ms"), "500");
    assert_string_equal(get("limit"), "never");
}

/* The process learns: what the learner turns is its own. */
CHILD(learn)
{
    char value[32];
    hak_free(hak_malloc(100));
    REQUIRE(hak_option_set("purge_delay_ms", "77") == EBUSY);
    REQUIRE(hak_option_set("bin_bytes", "64k") == EBUSY);
    REQUIRE(hak_option_set("huge_threshold", "never") == EBUSY);
    REQUIRE(hak_option_get("bin_bytes", value, sizeof value) == 0 && value[0] != '\0');
    REQUIRE(hak_option_set("cache_bytes_total", "64m") == 0);
    REQUIRE(hak_option_set("limit", "1t") == 0);
}

TEST(the_learner_comes_first)
{
    REQUIRE_CHILD("learn", "HAKMEM_LEARN=on", NULL);
}

/* The first call of the process starts hakmem with what the environment says. */
CHILD(first)
{
    char value[32];
    REQUIRE(hak_option_set("bin_bytes", "64k") == 0);
    REQUIRE(hak_option_get("purge_delay_ms", value, sizeof value) == 0);
    REQUIRE(strcmp(value, "321") == 0);
    hak_free(hak_malloc(100));
    REQUIRE(hak_option_get("bin_bytes", value, sizeof value) == 0 && strcmp(value, "64k") == 0);
}

TEST(the_first_call)
{
    REQUIRE_CHILD("first", "HAKMEM_PURGE_DELAY_MS=321", NULL);
}

TESTS(NULL)
