/* SPDX-License-Identifier: MIT */
/* test_option_sources.c: core/option_sources: the file of options: its lines, its sections, what is
 * wrong with it, and which source overrides which. Each case is a program of its own that shows its
 * options, one NAME=value a line. The environment names the file. The program's own string of
 * options is in tests/override/test_program_options.cc. Also: no option is set inside an operation.
 *
 * ctest: no-qemu
 */
#include "options.h"

#include "hakmem/control.h"

#include <sys/stat.h>

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

static void expect_complaints(const struct child_end *end, size_t count)
{
    if (complaints_count(end) != count) {
        fail_msg("%zu complaints, not %zu, in <%s>", complaints_count(end), count, end->text);
    }
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
                                     "heaps=\n"
                                     "limit=5g");
    expect_complaints(&end, 0);
    expect_line(&end, "purge_delay_ms=123");
    expect_line(&end, "bin_bytes=64k");
    expect_line(&end, "cache_bytes=2m");
    expect_line(&end, "stats_file=/tmp/a file, with = and # in it");
    expect_line(&end, "limit=5g");
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
    expect_complaints(&end, 0);
    expect_line(&end, "bin_bytes=8k");
    expect_line(&end, "purge_delay_ms=11");
    expect_line(&end, "cache_bytes=3m");
    expect_line(&end, "limit=6g");
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
    expect_line(&end, "hakmem: FILE:1 ignored: must be never or a number of milliseconds below "
                      "2^32 - 1");
    expect_line(&end, "hakmem: FILE:3 ignored: unknown option");
    expect_line(&end, "hakmem: FILE:4 ignored: it is not of the form NAME=VALUE");
    expect_line(&end, "hakmem: FILE:5 ignored: a section begins with [PROGRAM]");
    expect_line(&end, "hakmem: FILE:8 ignored: must be default, fast, small or debug");
    expect_line(&end, "hakmem: FILE:9 ignored: it is not of the form NAME=VALUE");
    expect_line(&end, "hakmem: FILE:10 ignored: unknown option");
    expect_line(&end, "hakmem: FILE:11 ignored: only the environment sets this option");
    expect_complaints(&end, 8);
    expect_line(&end, "bin_bytes=16k");
}

TEST(many_bad_lines)
{
    char text[4000] = "";
    for (size_t i = 0; i < 200; i++) {
        strcat(text, "nonsense=1\n");
    }
    strcat(text, "purge_delay_ms=9\n");
    struct child_end end = with_file(text);
    expect_complaints(&end, 10);
    expect_line(&end, "purge_delay_ms=9");
}

TEST(bad_files)
{
    static char text[20000];
    char name[128];
    memset(text, '#', sizeof text);
    memcpy(text, "bin_bytes=8k\n", 13);
    struct child_end end = with_bytes(text, 16384, NULL);
    expect_line(&end, "hakmem: FILE ignored: it is longer than 16383 bytes");
    expect_complaints(&end, 1);
    assert_false(has_line(&end, "bin_bytes=8k"));
    end = with_bytes(text, 16383, NULL);
    expect_complaints(&end, 0);
    expect_line(&end, "bin_bytes=8k");
    text[100] = '\0';
    end = with_bytes(text, 200, NULL);
    expect_line(&end, "hakmem: FILE ignored: it is not a text");
    expect_complaints(&end, 1);
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
}

/* A pipe that nobody writes to: the program starts. */
TEST(a_pipe)
{
    char path[80], name[128];
    snprintf(path, sizeof path, "%s/pipe", directory);
    snprintf(name, sizeof name, "HAKMEM_CONFIG_FILE=%s", path);
    REQUIRE(mkfifo(path, 0600) == 0);
    struct child_end end = run_with("show", (const char *const[]){name, NULL});
    expect_complaints(&end, 0);
    REQUIRE(unlink(path) == 0);
}

TEST(the_environment_overrides_the_file)
{
    const char *text = "purge_delay_ms=5\nbin_bytes=8k\n";
    struct child_end end = with_bytes(text, strlen(text), "HAKMEM_PURGE_DELAY_MS=6");
    expect_complaints(&end, 0);
    expect_line(&end, "purge_delay_ms=6");
    expect_line(&end, "bin_bytes=8k");
}

/* A profile of any source comes before single options of any source. */
TEST(profiles_come_first)
{
    const char *text = "purge_delay_ms=5\nprofile=fast\n";
    struct child_end end = with_file(text);
    expect_line(&end, "profile=fast");
    expect_line(&end, "purge_delay_ms=5");
    end = with_bytes(text, strlen(text), "HAKMEM_PROFILE=small");
    expect_line(&end, "profile=small");
    expect_line(&end, "huge_threshold=never");
    expect_line(&end, "purge_delay_ms=5");
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

int main(int count, char **arguments)
{
    static const struct child_case cases[] = {{"show", show, NULL}};
    child_main(count, arguments, cases, COUNT_OF(cases));
    return tests_run(make_directory, remove_directory);
}
