/* SPDX-License-Identifier: MIT */
/* test_options.c: core/options: each kind of value, bad ones, unknown names, profiles, reading
 * twice. The environment is read once, before main, so each case is a program of its own that shows
 * all options as a report would, one NAME=value a line.
 *
 * ctest: no-qemu
 */
#include "options.h"

#include <sched.h>

static const struct child_end *defaults(void)
{
    static struct child_end end;
    if (end.length == 0) {
        end = SHOW_WITH("PATH=/bin");
    }
    return &end;
}

/* The option shows what it shows by default. */
static void expect_default(const struct child_end *end, const char *name)
{
    char line[64] = "";
    const char *at = strstr(defaults()->text, name);
    REQUIRE(at != NULL);
    for (size_t i = 0; at[i] != '\n'; i++) {
        REQUIRE(i + 1 < sizeof line);
        line[i] = at[i];
        line[i + 1] = '\0';
    }
    expect_line(end, line);
}

TEST(defaults)
{
    assert_int_equal(complaints_count(defaults()), 0);
    expect_line(defaults(), "profile=default");
    expect_line(defaults(), "abort_on_foreign=0");
    expect_line(defaults(), "stats=none");
    expect_line(defaults(), "stats_file=");
    expect_line(defaults(), "stats_pid=0");
    expect_line(defaults(), "announce=0");
    assert_false(has_line(defaults(), "cache_bytes_total=0"));
    assert_false(has_line(defaults(), "heaps=0"));
}

TEST(good_values)
{
    struct child_end end = SHOW_WITH(
        "HAKMEM_PURGE_DELAY_MS=4294967294", "HAKMEM_BIN_BYTES=4k", "HAKMEM_CACHE_BYTES=3MiB",
        "HAKMEM_CACHE_BYTES_TOTAL=5g", "HAKMEM_WHALE_CACHE_BYTES=0", "HAKMEM_HUGE_THRESHOLD=1T",
        "HAKMEM_ABORT_ON_FOREIGN=1", "HAKMEM_STATS_FILE=/dev/null", "HAKMEM_STATS_PID=1",
        "HAKMEM_ANNOUNCE=18446744073709551615", "HAKMEM_HEAPS=7", "HAKMEM_STATS=json");
    assert_int_equal(complaints_count(&end), 0);
    expect_line(&end, "purge_delay_ms=4294967294");
    expect_line(&end, "bin_bytes=4k");
    expect_line(&end, "cache_bytes=3m");
    expect_line(&end, "cache_bytes_total=5g");
    expect_line(&end, "whale_cache_bytes=0");
    expect_line(&end, "huge_threshold=1t");
    expect_line(&end, "abort_on_foreign=1");
    expect_line(&end, "stats_file=/dev/null");
    expect_line(&end, "stats_pid=1");
    expect_line(&end, "announce=18446744073709551615");
    expect_line(&end, "heaps=7");
    expect_line(&end, "stats=json");
}

TEST(limits_of_values)
{
    struct child_end end =
        SHOW_WITH("HAKMEM_PURGE_DELAY_MS=0", "HAKMEM_BIN_BYTES=4294967295",
                  "HAKMEM_CACHE_BYTES=18446744073709551614", "HAKMEM_CACHE_BYTES_TOTAL=1025",
                  "HAKMEM_HEAPS=4294967295", "HAKMEM_ABORT_ON_FOREIGN=0");
    assert_int_equal(complaints_count(&end), 0);
    expect_line(&end, "purge_delay_ms=0");
    expect_line(&end, "bin_bytes=4294967295");
    expect_line(&end, "cache_bytes=18446744073709551614");
    expect_line(&end, "cache_bytes_total=1025");
    expect_line(&end, "heaps=4294967295");
}

TEST(never)
{
    struct child_end end = SHOW_WITH("HAKMEM_PURGE_DELAY_MS=never", "HAKMEM_HUGE_THRESHOLD=never");
    assert_int_equal(complaints_count(&end), 0);
    expect_line(&end, "purge_delay_ms=never");
    expect_line(&end, "huge_threshold=never");
    end = SHOW_WITH("HAKMEM_CACHE_BYTES=never", "HAKMEM_STATS_PID=never");
    assert_int_equal(complaints_count(&end), 2);
    expect_default(&end, "cache_bytes=");
    expect_default(&end, "stats_pid=");
}

/* The value stays, and one line says which variable and why. */
TEST(bad_values)
{
    static const struct {
        const char *variable;
        const char *reason;
        const char *name;
    } cases[] = {
        {"HAKMEM_PURGE_DELAY_MS=soon", "must be never or a number of milliseconds below 2.32 - 1$",
         "purge_delay_ms="},
        {"HAKMEM_PURGE_DELAY_MS=1k", "must be never or a number of milliseconds below 2.32 - 1$",
         "purge_delay_ms="},
        {"HAKMEM_PURGE_DELAY_MS=-1", "must be never or a number of milliseconds below 2.32 - 1$",
         "purge_delay_ms="},
        {"HAKMEM_PURGE_DELAY_MS=4294967295", "must be never or a number", "purge_delay_ms="},
        {"HAKMEM_BIN_BYTES=4g", "must be a number of bytes below 2.32,", "bin_bytes="},
        {"HAKMEM_BIN_BYTES=many", "must be a number of bytes", "bin_bytes="},
        {"HAKMEM_CACHE_BYTES=1kk", "must be a number of bytes below 2.64,", "cache_bytes="},
        {"HAKMEM_CACHE_BYTES_TOTAL=16777216t", "must be a number of bytes", "cache_bytes_total="},
        {"HAKMEM_HUGE_THRESHOLD=x", "must be never or a number of bytes", "huge_threshold="},
        {"HAKMEM_HUGE_THRESHOLD=18446744073709551615", "must be never or .* 2.64 - 1,",
         "huge_threshold="},
        {"HAKMEM_HEAPS=many", "must be a number below 2.32$", "heaps="},
        {"HAKMEM_HEAPS=-1", "must be a number below 2.32$", "heaps="},
        {"HAKMEM_HEAPS=4k", "must be a number below 2.32$", "heaps="},
        {"HAKMEM_HEAPS=never", "must be a number below 2.32$", "heaps="},
        {"HAKMEM_HEAPS=4294967296", "must be a number below 2.32$", "heaps="},
        {"HAKMEM_ABORT_ON_FOREIGN=2", "must be 0 or 1$", "abort_on_foreign="},
        {"HAKMEM_ABORT_ON_FOREIGN=yes", "must be 0 or 1$", "abort_on_foreign="},
        {"HAKMEM_ABORT_ON_FOREIGN=10", "must be 0 or 1$", "abort_on_foreign="},
        {"HAKMEM_STATS=xml", "must be none, summary, full, json or prometheus$", "stats="},
        {"HAKMEM_STATS_PID=1k", "must be a process id, or 0$", "stats_pid="},
        {"HAKMEM_PROFILE_SIGNAL=11", "must be the number of a signal", "profile_signal="},
        {"HAKMEM_PROFILE_SIGNAL=65", "must be the number of a signal", "profile_signal="},
        {"HAKMEM_PROFILE_SIGNAL=USR2", "must be the number of a signal", "profile_signal="},
        {"HAKMEM_PROFILE_SIGNAL=15", "must be the number of a signal", "profile_signal="},
        {"HAKMEM_PROFILE_DUMP=above", "must be none, or words such as", "profile_dump="},
        {"HAKMEM_PROFILE_DUMP=peak,", "must be none, or words such as", "profile_dump="},
        {"HAKMEM_PROFILE_DUMP=peaks", "must be none, or words such as", "profile_dump="},
        {"HAKMEM_PROFILE_DUMP=peak=0", "must be none, or words such as", "profile_dump="},
        {"HAKMEM_PROFILE_DUMP=limit=100", "must be none, or words such as", "profile_dump="},
        {"HAKMEM_PROFILE_DUMP=every_s=1m", "must be none, or words such as", "profile_dump="},
        {"HAKMEM_ANNOUNCE=me", "must be a process id, or 0$", "announce="},
        {"HAKMEM_PROFILE=slow", "must be default, fast, small or debug$", "profile="},
        {"HAKMEM_PROFILE=Default", "must be default", "profile="},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char pattern[256];
        struct child_end end = SHOW_WITH(cases[i].variable);
        snprintf(pattern, sizeof pattern, "^hakmem: %s ignored: %s", cases[i].variable,
                 cases[i].reason);
        if (!text_matches(end.text, pattern)) {
            fail_msg("no /%s/ in <%s>", pattern, end.text);
        }
        assert_int_equal(complaints_count(&end), 1);
        expect_default(&end, cases[i].name);
    }
}

TEST(stats_by_number)
{
    struct child_end end = SHOW_WITH("HAKMEM_STATS=0");
    expect_line(&end, "stats=none");
    end = SHOW_WITH("HAKMEM_STATS=1", "HAKMEM_STATS_FILE=/dev/null");
    expect_line(&end, "stats=summary");
    end = SHOW_WITH("HAKMEM_STATS=2", "HAKMEM_STATS_FILE=/dev/null");
    expect_line(&end, "stats=none");
    assert_int_equal(complaints_count(&end), 1);
}

TEST(names)
{
    struct child_end end = SHOW_WITH(
        "HAKMEM_NONSENSE=1", "HAKMEM_PURGE_DELAY_MSX=1", "HAKMEM_PURGE_DELAY=1", "HAKMEM_=1",
        "HAKMEM_purge_delay_ms=1", "HAKMEM_TEST_ANYTHING=1", "HAKMEM_TRACE_FILE=x",
        "hakmem_stats=1", "XHAKMEM_STATS=1", "HAKMEM=1", "HAKMEM_CACHE_BYTES=", "HAKMEM_PROFILE=");
    assert_int_equal(complaints_count(&end), 5);
    expect_line(&end, "hakmem: HAKMEM_NONSENSE=1 ignored: unknown option");
    expect_line(&end, "hakmem: HAKMEM_PURGE_DELAY_MSX=1 ignored: unknown option");
    expect_line(&end, "hakmem: HAKMEM_PURGE_DELAY=1 ignored: unknown option");
    expect_line(&end, "hakmem: HAKMEM_=1 ignored: unknown option");
    expect_line(&end, "hakmem: HAKMEM_purge_delay_ms=1 ignored: unknown option");
    expect_default(&end, "purge_delay_ms=");
    expect_default(&end, "cache_bytes=");
    expect_default(&end, "profile=");
}

/* What is said stays one line of printable characters, however odd and long the value. */
TEST(odd_values)
{
    char variable[2000] = "HAKMEM_NONSENSE=a\nb\033[2Jc";
    struct child_end end = SHOW_WITH(variable);
    expect_line(&end, "hakmem: HAKMEM_NONSENSE=a?b?[2Jc ignored: unknown option");
    for (size_t i = strlen(variable); i + 1 < sizeof variable; i++) {
        variable[i] = 'x';
    }
    end = SHOW_WITH(variable);
    assert_true(
        text_matches(end.text, "^hakmem: HAKMEM_NONSENSE=.{50,200} ignored: unknown option$"));
}

TEST(profiles)
{
    struct child_end fast = SHOW_WITH("HAKMEM_PROFILE=fast");
    struct child_end small = SHOW_WITH("HAKMEM_PROFILE=small");
    struct child_end debug = SHOW_WITH("HAKMEM_PROFILE=debug");
    struct child_end same = SHOW_WITH("HAKMEM_PROFILE=default");
    assert_int_equal(complaints_count(&fast) + complaints_count(&small) + complaints_count(&debug),
                     0);
    assert_string_equal(same.text, defaults()->text);
    expect_line(&fast, "profile=fast");
    expect_line(&small, "profile=small");
    expect_line(&small, "huge_threshold=never");
    expect_line(&debug, "profile=debug");
    expect_line(&debug, "purge_delay_ms=0");
    expect_line(&debug, "abort_on_foreign=1");
    assert_string_not_equal(strchr(fast.text, '\n'), strchr(small.text, '\n'));
    assert_string_not_equal(strchr(fast.text, '\n'), strchr(defaults()->text, '\n'));
}

TEST(paths)
{
    char variable[3000] = "HAKMEM_STATS_FILE=/tmp/";
    memset(variable + strlen(variable), 'p', 100);
    struct child_end end = SHOW_WITH(variable); /* a view is cut */
    assert_int_equal(complaints_count(&end), 0);
    assert_true(text_matches(end.text, "^stats_file=/tmp/p{26}$"));
    memset(variable + strlen(variable), 'p', 2000);
    end = SHOW_WITH(variable);
    assert_int_equal(complaints_count(&end), 1);
    expect_line(&end, "stats_file=");
    end = SHOW_WITH("HAKMEM_STATS_FILE=/dev/null", variable); /* refused: changes nothing */
    assert_int_equal(complaints_count(&end), 1);
    expect_line(&end, "stats_file=/dev/null");
    end = SHOW_WITH("HAKMEM_STATS_FILE=/dev/null", "HAKMEM_HEAP_MAP_FILE=/tmp/%p.map");
    expect_line(&end, "stats_file=/dev/null");
    expect_line(&end, "heap_map_file=/tmp/%p.map");
}

static void read_twice(void *argument)
{
    static char first[] = "HAKMEM_PURGE_DELAY_MS=123", second[] = "HAKMEM_NONSENSE=1";
    static char *const other[] = {first, second, NULL};
    hak__options_read(NULL); /* too early: the next one counts */
    hak__options_read(environ);
    REQUIRE_SIZE(hak__knobs.purge_delay_ms, ==, 77);
    hak__options_read(other);
    hak__options_read(NULL);
    REQUIRE_SIZE(hak__knobs.purge_delay_ms, ==, 77);
    REQUIRE(hak__start());
    REQUIRE_SIZE(hak__knobs.purge_delay_ms, ==, 77);
}

TEST(reading_twice)
{
    struct child_end end =
        run_with("twice", (const char *const[]){"HAKMEM_PURGE_DELAY_MS=77", NULL});
    assert_int_equal(end.length, 0);
}

static void check_automatic(void *argument)
{
    REQUIRE(hak__start());
    REQUIRE_SIZE(hak__knobs.heaps_max, ==, HAK_TINY_LIMITS ? 2 : hak__os_processors());
    REQUIRE_SIZE(hak__knobs.heaps_crowded_max, ==, 2 * hak__knobs.heaps_max);
    uint64_t share = hak__os_ram_size() / 64;
    REQUIRE_SIZE(hak__knobs.cache_bytes_total, ==, share > 32 * MIB ? share : 32 * MIB);
}

static void show_one_processor(void *argument)
{
    REQUIRE_SIZE(hak__os_processors(), ==, 1);
    show(NULL);
}

/* The child's program inherits it. */
static void set_one_processor(void *argument)
{
    static unsigned char set[1024]; /* as many as any kernel has, one bit each */
    set_environment(argument);
    REQUIRE(sched_getaffinity(0, sizeof set, (cpu_set_t *)(void *)set) == 0);
    bool found = false;
    for (size_t i = 0; i < sizeof set; i++) {
        set[i] = found ? 0 : set[i] & (unsigned char)-set[i]; /* the lowest bit */
        found = found || set[i] != 0;
    }
    REQUIRE(sched_setaffinity(0, sizeof set, (cpu_set_t *)(void *)set) == 0);
}

/* As many as there are processors for the process, not in the machine. */
TEST(heaps_of_one_processor)
{
    struct child_end end;
    child_exec("one", set_one_processor, (char *[]){NULL}, &end);
    assert_true(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0);
    expect_line(&end, HAK_TINY_LIMITS ? "heaps=2" : "heaps=1");
}

TEST(automatic_values)
{
    run_with("automatic", (const char *const[]){"PATH=/bin", NULL});
    run_with("automatic",
             (const char *const[]){"HAKMEM_CACHE_BYTES_TOTAL=0", "HAKMEM_HEAPS=0", NULL});
}

int main(int count, char **arguments)
{
    static const struct child_case cases[] = {{"show", show, NULL},
                                              {"twice", read_twice, NULL},
                                              {"automatic", check_automatic, NULL},
                                              {"one", show_one_processor, NULL}};
    child_main(count, arguments, cases, COUNT_OF(cases));
    return tests_run(unit_start, NULL);
}
