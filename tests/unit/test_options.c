/* SPDX-License-Identifier: MIT */
/* test_options.c: core/options: each kind of value, bad ones, unknown names, profiles, reading
 * twice; core/option_sources: the file of options, and which source overrides which. The program's
 * own string of options is in tests/override/test_program_options.cc.
 *
 * The environment is read once, before main, so each case is a program of its own that shows all
 * options as a report would, one NAME=value a line.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "unit.h"

#include "core/options.h"
#include "hakmem/control.h"

#include <ctype.h>
#include <sys/stat.h>

enum { VARIABLES_MAX = 16 };

extern char **environ;

CHILD(show)
{
    struct option_view view;
    REQUIRE(hak__start());
    for (uint32_t i = 0; hak__options_view(i, &view); i++) {
        fprintf(stderr, "%s=%s\n", view.name, view.value);
    }
}

/* Exactly these strings, in this order, also when a name comes twice. */
static void set_environment(void *argument)
{
    environ = argument;
}

static struct child_end run_with(const char *child, const char *const *variables)
{
    static char copies[VARIABLES_MAX][4096];
    char *pointers[VARIABLES_MAX + 1] = {NULL};
    struct child_end end;
    for (size_t i = 0; variables[i] != NULL; i++) {
        REQUIRE(i < VARIABLES_MAX && strlen(variables[i]) < sizeof copies[i]);
        strcpy(copies[i], variables[i]);
        pointers[i] = copies[i];
    }
    child_exec(child, set_environment, pointers, &end);
    REQUIRE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0);
    return end;
}

#define SHOW_WITH(...) run_with("show", (const char *const[]){__VA_ARGS__, NULL})

static bool has_line(const struct child_end *end, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = strstr(end->text, line); at != NULL; at = strstr(at + 1, line)) {
        if ((at == end->text || at[-1] == '\n') && at[length] == '\n') {
            return true;
        }
    }
    return false;
}

static void expect_line(const struct child_end *end, const char *line)
{
    if (!has_line(end, line)) {
        fail_msg("no line <%s> in <%s>", line, end->text);
    }
}

static void expect_complaints(const struct child_end *end, size_t expected)
{
    size_t count = 0;
    const char *at = end->text;
    for (; (at = strstr(at, "hakmem: ")) != NULL; at++) {
        count++;
    }
    if (count != expected) {
        fail_msg("%zu complaints, not %zu, in <%s>", count, expected, end->text);
    }
}

/* So many complaints, and each of these lines. */
static void expect_all(const struct child_end *end, size_t complaints, const char *const *lines)
{
    expect_complaints(end, complaints);
    for (; *lines != NULL; lines++) {
        expect_line(end, *lines);
    }
}

#define EXPECT(end, complaints, ...)                                                               \
    expect_all(&(end), (complaints), (const char *const[]){__VA_ARGS__, NULL})

static const struct child_end *defaults(void)
{
    static struct child_end end;
    if (end.length == 0) {
        end = SHOW_WITH("PATH=/bin");
    }
    return &end;
}

/* The option, "name=", shows what it shows by default. */
static void expect_default(const struct child_end *end, const char *name)
{
    char line[64] = "";
    const char *at = strstr(defaults()->text, name);
    REQUIRE(at != NULL);
    size_t length = strcspn(at, "\n");
    REQUIRE(length < sizeof line);
    memcpy(line, at, length);
    expect_line(end, line);
}

/* What is shown; lines that end with "=" are as by default. */
TEST(values)
{
    static const struct {
        const char *variables[VARIABLES_MAX];
        size_t complaints;
        const char *lines[VARIABLES_MAX];
    } cases[] = {
        {{"PATH=/bin"},
         0,
         {"profile=default", "abort_on_foreign=0", "stats=none", "stats_file=", "announce=0"}},
        {{"HAKMEM_PURGE_DELAY_MS=4294967294", "HAKMEM_BIN_BYTES=4k", "HAKMEM_CACHE_BYTES=3MiB",
          "HAKMEM_CACHE_BYTES_TOTAL=5g", "HAKMEM_HUGE_CACHE_BYTES=0", "HAKMEM_HUGE_THRESHOLD=1T",
          "HAKMEM_ABORT_ON_FOREIGN=1", "HAKMEM_STATS_FILE=/dev/null", "HAKMEM_STATS_PID=1",
          "HAKMEM_ANNOUNCE=18446744073709551615", "HAKMEM_ARENAS=7", "HAKMEM_STATS=json",
          "HAKMEM_HEAP_MAP_FILE=/tmp/%p.map"},
         0,
         {"purge_delay_ms=4294967294", "bin_bytes=4k", "cache_bytes=3m", "cache_bytes_total=5g",
          "huge_cache_bytes=0", "huge_threshold=1t", "abort_on_foreign=1", "stats_file=/dev/null",
          "stats_pid=1", "announce=18446744073709551615", "arenas=7", "stats=json",
          "heap_map_file=/tmp/%p.map"}},
        {{"HAKMEM_PURGE_DELAY_MS=0", "HAKMEM_BIN_BYTES=4294967295",
          "HAKMEM_CACHE_BYTES=18446744073709551614", "HAKMEM_CACHE_BYTES_TOTAL=1025",
          "HAKMEM_ARENAS=4294967295", "HAKMEM_ABORT_ON_FOREIGN=0"},
         0,
         {"purge_delay_ms=0", "bin_bytes=4294967295", "cache_bytes=18446744073709551614",
          "cache_bytes_total=1025", "arenas=4294967295"}},
        {{"HAKMEM_PURGE_DELAY_MS=never", "HAKMEM_HUGE_THRESHOLD=never", "HAKMEM_CACHE_BYTES=never",
          "HAKMEM_STATS_PID=never"},
         2,
         {"purge_delay_ms=never", "huge_threshold=never", "cache_bytes=", "stats_pid="}},
        {{"HAKMEM_STATS=1", "HAKMEM_STATS_FILE=/dev/null"}, 0, {"stats=summary"}},
        {{"HAKMEM_STATS=2", "HAKMEM_STATS_FILE=/dev/null"}, 1, {"stats=none"}},
        {{"HAKMEM_PROFILE=small"}, 0, {"profile=small", "huge_threshold=never"}},
        {{"HAKMEM_PROFILE=debug"}, 0, {"profile=debug", "purge_delay_ms=0", "abort_on_foreign=1"}},
        {{"HAKMEM_NONSENSE=1", "HAKMEM_PURGE_DELAY_MSX=1", "HAKMEM_PURGE_DELAY=1", "HAKMEM_=1",
          "HAKMEM_purge_delay_ms=1", "HAKMEM_TEST_ANYTHING=1", "HAKMEM_TRACE_FILE=x",
          "hakmem_stats=1", "XHAKMEM_STATS=1", "HAKMEM=1",
          "HAKMEM_CACHE_BYTES=", "HAKMEM_PROFILE="},
         5,
         {"hakmem: HAKMEM_NONSENSE=1 ignored: unknown option",
          "hakmem: HAKMEM_PURGE_DELAY_MSX=1 ignored: unknown option",
          "hakmem: HAKMEM_PURGE_DELAY=1 ignored: unknown option",
          "hakmem: HAKMEM_=1 ignored: unknown option",
          "hakmem: HAKMEM_purge_delay_ms=1 ignored: unknown option",
          "purge_delay_ms=", "cache_bytes=", "profile="}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct child_end end = run_with("show", cases[i].variables);
        expect_complaints(&end, cases[i].complaints);
        for (size_t j = 0; cases[i].lines[j] != NULL; j++) {
            const char *line = cases[i].lines[j];
            if (line[strlen(line) - 1] == '=') {
                expect_default(&end, line);
            } else {
                expect_line(&end, line);
            }
        }
    }
    struct child_end fast = SHOW_WITH("HAKMEM_PROFILE=fast"),
                     same = SHOW_WITH("HAKMEM_PROFILE=default");
    expect_line(&fast, "profile=fast");
    assert_string_not_equal(strchr(fast.text, '\n'), strchr(defaults()->text, '\n'));
    assert_string_equal(same.text, defaults()->text);
}

/* The value stays, and one line says which variable and why. */
TEST(bad_values)
{
    static const char *const cases[][2] = {
        {"PURGE_DELAY_MS=soon", "must be never or a number of milliseconds below 2.32 - 1$"},
        {"PURGE_DELAY_MS=4294967295", "must be never or a number"},
        {"BIN_BYTES=4g", "must be a number of bytes below 2.32,"},
        {"CACHE_BYTES=1kk", "must be a number of bytes below 2.64,"},
        {"CACHE_BYTES_TOTAL=16777216t", "must be a number of bytes"},
        {"HUGE_THRESHOLD=18446744073709551615", "must be never or .* 2.64 - 1,"},
        {"ARENAS=-1", "must be a number below 2.32$"},
        {"ARENAS=4294967296", "must be a number below 2.32$"},
        {"ABORT_ON_FOREIGN=10", "must be 0 or 1$"},
        {"STATS=xml", "must be none, summary, full or json$"},
        {"STATS_PID=1k", "must be a process id, or 0$"},
        {"PROFILE_SIGNAL=11", "must be the number of a signal"},
        {"PROFILE_SIGNAL=USR2", "must be the number of a signal"},
        {"PROFILE_DUMP=peak,", "must be none, or words such as"},
        {"PROFILE_DUMP=peak=0", "must be none, or words such as"},
        {"PROFILE_DUMP=limit=100", "must be none, or words such as"},
        {"PROFILE_DUMP=every_s=1m", "must be none, or words such as"},
        {"PROFILE=slow", "must be default, fast, small or debug$"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char variable[64], pattern[256], name[32] = "";
        snprintf(variable, sizeof variable, "HAKMEM_%s", cases[i][0]);
        struct child_end end = SHOW_WITH(variable);
        snprintf(pattern, sizeof pattern, "^hakmem: %s ignored: %s", variable, cases[i][1]);
        if (!text_matches(end.text, pattern)) {
            fail_msg("no /%s/ in <%s>", pattern, end.text);
        }
        expect_complaints(&end, 1);
        for (size_t j = 0; j == 0 || name[j - 1] != '='; j++) {
            name[j] = (char)tolower(cases[i][0][j]);
        }
        expect_default(&end, name);
    }
}

/* What is said stays one line of printable characters, however odd and long the value. */
TEST(odd_values)
{
    char variable[2000] = "HAKMEM_NONSENSE=a\nb\033[2Jc";
    struct child_end end = SHOW_WITH(variable);
    expect_line(&end, "hakmem: HAKMEM_NONSENSE=a?b?[2Jc ignored: unknown option");
    memset(variable + strlen(variable), 'x', sizeof variable - 1 - strlen(variable));
    end = SHOW_WITH(variable);
    assert_true(
        text_matches(end.text, "^hakmem: HAKMEM_NONSENSE=.{50,400} ignored: unknown option$"));
}

TEST(paths)
{
    char variable[3000] = "HAKMEM_STATS_FILE=/tmp/";
    memset(variable + strlen(variable), 'p', 100);
    struct child_end end = SHOW_WITH(variable); /* a view is cut */
    expect_complaints(&end, 0);
    assert_true(text_matches(end.text, "^stats_file=/tmp/p{26}$"));
    memset(variable + strlen(variable), 'p', 2000);
    end = SHOW_WITH("HAKMEM_STATS_FILE=/dev/null", variable); /* refused: changes nothing */
    EXPECT(end, 1, "stats_file=/dev/null");
}

CHILD(twice)
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

CHILD(automatic)
{
    REQUIRE(hak__start());
    REQUIRE_SIZE(hak__knobs.arenas_max, ==, HAK_TINY_LIMITS ? 2 : hak__os_processors());
    REQUIRE_SIZE(hak__knobs.arenas_crowded_max, ==, 2 * hak__knobs.arenas_max);
    uint64_t share = hak__os_ram_size() / 64;
    REQUIRE_SIZE(hak__knobs.cache_bytes_total, ==, share > 32 * MIB ? share : 32 * MIB);
}

TEST(automatic_values)
{
    run_with("automatic", (const char *const[]){"PATH=/bin", NULL});
    run_with("automatic",
             (const char *const[]){"HAKMEM_CACHE_BYTES_TOTAL=0", "HAKMEM_ARENAS=0", NULL});
}

static char directory[] = "/tmp/test_option_sources_XXXXXX";
static char file_path[64];

/* The program's options when the file has this text. Its name is FILE in messages. */
static struct child_end with_bytes(const char *text, size_t length, const char *variable)
{
    char name[96];
    int descriptor = open(file_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(descriptor >= 0 && write(descriptor, text, length) == (ssize_t)length);
    REQUIRE(close(descriptor) == 0);
    snprintf(name, sizeof name, "HAKMEM_CONFIG_FILE=%s", file_path);
    struct child_end end = run_with("show", (const char *const[]){name, variable, NULL});
    for (char *at; (at = strstr(end.text, file_path)) != NULL;) {
        memmove(at + 4, at + strlen(file_path), strlen(at + strlen(file_path)) + 1);
        memcpy(at, "FILE", 4);
    }
    return end;
}

static struct child_end with_file(const char *text)
{
    return with_bytes(text, strlen(text), NULL);
}

TEST(lines)
{
    struct child_end end = with_file("# a comment\n"
                                     "; another\n"
                                     "\n"
                                     "  purge_delay_ms = 123  \n"
                                     "HAKMEM_BIN_BYTES=64k\r\n"
                                     "\tCache_Bytes =\t2m\n"
                                     "stats_file=/tmp/a file, with = and # in it\n"
                                     "arenas=\n"
                                     "limit=5g");
    EXPECT(end, 0, "purge_delay_ms=123", "bin_bytes=64k", "cache_bytes=2m",
           "stats_file=/tmp/a file, with = and # in it", "limit=5g");
}

/* Children start as /proc/self/exe (tests/child.h), so their name is exe. */
TEST(sections)
{
    struct child_end end = with_file("bin_bytes=8k\n"
                                     "[other]\n"
                                     "bin_bytes=16k\n"
                                     "this line is not looked at\n"
                                     "[exe]\n"
                                     "purge_delay_ms=11\n"
                                     "[ex]\n"
                                     "purge_delay_ms=12\n"
                                     "[exe2]\n"
                                     "purge_delay_ms=13\n"
                                     "[other ex* third]\n"
                                     "cache_bytes=3m\n"
                                     "[e*e]\n"
                                     "cache_bytes=4m\n"
                                     "[]\n"
                                     "cache_bytes=5m\n"
                                     "[*]\n"
                                     "limit=6g\n");
    EXPECT(end, 0, "bin_bytes=8k", "purge_delay_ms=11", "cache_bytes=3m", "limit=6g");
}

TEST(bad_lines)
{
    struct child_end end = with_file("purge_delay_ms=soon\n"
                                     "\n"
                                     "nonsense=1\n"
                                     "no setting\n"
                                     "[exe\n"
                                     "bin_bytes=8k\n"
                                     "[exe]\n"
                                     "profile=slow\n"
                                     "profile\n"
                                     "=5\n"
                                     "config_file=/etc/passwd\n"
                                     "bin_bytes=16k\n");
    EXPECT(end, 8,
           "hakmem: FILE:1 ignored: must be never or a number of milliseconds below 2^32 - 1",
           "hakmem: FILE:3 ignored: unknown option",
           "hakmem: FILE:4 ignored: it is not of the form NAME=VALUE",
           "hakmem: FILE:5 ignored: a section begins with [PROGRAM]",
           "hakmem: FILE:8 ignored: must be default, fast, small or debug",
           "hakmem: FILE:9 ignored: it is not of the form NAME=VALUE",
           "hakmem: FILE:10 ignored: unknown option",
           "hakmem: FILE:11 ignored: only the environment sets this option", "bin_bytes=16k");
}

TEST(bad_files)
{
    static char text[20000];
    char name[128];
    memset(text, '#', sizeof text);
    memcpy(text, "bin_bytes=8k\n", 13);
    struct child_end end = with_bytes(text, 16384, NULL);
    EXPECT(end, 1, "hakmem: FILE ignored: it is longer than 16383 bytes");
    assert_false(has_line(&end, "bin_bytes=8k"));
    end = with_bytes(text, 16383, NULL);
    EXPECT(end, 0, "bin_bytes=8k");
    text[100] = '\0';
    end = with_bytes(text, 200, NULL);
    EXPECT(end, 1, "hakmem: FILE ignored: it is not a text");
    assert_false(has_line(&end, "bin_bytes=8k"));
    end = with_bytes("", 0, NULL);
    expect_complaints(&end, 0);

    snprintf(name, sizeof name, "HAKMEM_CONFIG_FILE=%s/none", directory);
    end = run_with("show", (const char *const[]){name, NULL});
    assert_true(text_matches(end.text, "^hakmem: .*/none ignored: there is no such file$"));
    expect_complaints(&end, 1);
    snprintf(name, sizeof name, "HAKMEM_CONFIG_FILE=%s", directory);
    end = run_with("show", (const char *const[]){name, NULL});
    assert_true(text_matches(end.text, "^hakmem: .* ignored: it is a directory$"));
    end = run_with("show", (const char *const[]){"HAKMEM_CONFIG_FILE=/dev/null", NULL});
    expect_complaints(&end, 0);
    end = run_with("show", (const char *const[]){"HAKMEM_CONFIG_FILE=/dev/zero", NULL});
    expect_complaints(&end, 1);
    snprintf(name, sizeof name, "HAKMEM_CONFIG_FILE=%s",
             file_path); /* nobody writes to this pipe */
    REQUIRE(unlink(file_path) == 0 && mkfifo(file_path, 0600) == 0);
    end = run_with("show", (const char *const[]){name, NULL});
    expect_complaints(&end, 0);
    REQUIRE(unlink(file_path) == 0);
    text[0] = '\0'; /* not all are named */
    for (size_t i = 0; i < 200; i++) {
        strcat(text, "nonsense=1\n");
    }
    end = with_file(strcat(text, "purge_delay_ms=9\n"));
    EXPECT(end, 10, "purge_delay_ms=9");
}

/* What a signal handler finds that interrupted the allocator: nothing is set, and nobody waits. */
TEST(inside_an_operation)
{
    char before[32], after[32];
    assert_int_equal(hak_option_get("purge_delay_ms", before, sizeof before), 0);
    hak__inside = INSIDE_LOCK;
    assert_int_equal(hak_option_set("purge_delay_ms", "7"), EAGAIN);
    assert_int_equal(hak_option_set("limit", "1t"), EAGAIN);
    assert_int_equal(hak_option_set("sample_bytes", "1m"), EAGAIN);
    assert_int_equal(hak_control("purge", NULL, NULL, 0), EAGAIN);
    assert_int_equal(hak_option_get("purge_delay_ms", after, sizeof after), 0);
    hak__inside = 0;
    assert_string_equal(after, before);
    assert_int_equal(hak_option_set("purge_delay_ms", before), 0);
}

static int make_directory(void **state)
{
    REQUIRE(mkdtemp(directory) != NULL);
    snprintf(file_path, sizeof file_path, "%s/hakmem.conf", directory);
    return unit_start(state);
}

static int remove_directory(void **state)
{
    unlink(file_path);
    return rmdir(directory);
}

/* The environment overrides the file; a profile of any source comes before single options. */
TEST(sources)
{
    const char *text = "purge_delay_ms=5\nbin_bytes=8k\nprofile=fast\n";
    struct child_end end = with_bytes(text, strlen(text), "HAKMEM_PURGE_DELAY_MS=6");
    EXPECT(end, 0, "profile=fast", "purge_delay_ms=6", "bin_bytes=8k");
    end = with_bytes(text, strlen(text), "HAKMEM_PROFILE=small");
    EXPECT(end, 0, "profile=small", "huge_threshold=never", "purge_delay_ms=5");
}

TESTS_WITH(make_directory, remove_directory)
