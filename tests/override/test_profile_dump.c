/* SPDX-License-Identifier: MIT */
/* test_profile_dump.c: HAKMEM_PROFILE_FILE: the process and its forked child append a profile each
 * at their exit, with the blocks that are in use, to one file or to one each (%p). With
 * HAKMEM_PROFILE_DUMP a process writes profiles by itself, at new peaks, above a mark, after a time
 * and before the hard limit. They are there whatever ends the process, and are whole. A signal ends
 * it as always. A forked child without a %p in the name writes none of these, nor does one with it
 * for what its parent has written. A file that cannot be written is named.
 *
 * ctest: no-qemu
 */
#include "override.h"

#define MIB ((size_t)1 << 20)

static char directory[] = "/tmp/test_profile_dump_XXXXXX";

/* "DIRECTORY/NAME", in one of a few places. */
static const char *in_directory(const char *name)
{
    static char paths[4][96];
    static size_t last;
    const char *folder = getenv("TEST_FOLDER"); /* of the program under test */
    char *path = paths[++last % COUNT_OF(paths)];
    snprintf(path, sizeof paths[0], "%.50s/%s", folder != NULL ? folder : directory, name);
    return path;
}

static bool is_there(const char *name)
{
    return access(in_directory(name), F_OK) == 0;
}

static void await_file(const char *name)
{
    while (!is_there(name)) {
        usleep(2000); /* ctest's timeout ends a test that hangs */
    }
}

static void remove_file(const char *name)
{
    (void)unlink(in_directory(name));
}

/* --- the programs under test --- */

/* For each byte of its standard input it takes 40 MiB, and answers. */
static void serve(void)
{
    struct sigaction action;
    char byte = 0;
    CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK_EQUAL(threads_count(getpid()), 2);
    IN_CHILD("child") {
        CHECK_EQUAL(threads_count(getpid()), 1);
    }
    do {
        CHECK(write(1, "r", 1) == 1);
        for (size_t i = 0; byte != 0 && i < 40; i++) {
            memset(get_memory(MIB), 1, MIB);
        }
    } while (read(0, &byte, 1) == 1);
}

/* With a %p in the name. A child that is born above the mark leaves nothing. */
static void fork_above(void)
{
    char name[64];
    memset(get_memory(40 * MIB), 1, 40 * MIB);
    snprintf(name, sizeof name, "profile.%d.above", getpid());
    await_file(name);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(300000); /* three looks */
        _exit(0);
    }
    wait_for_success(child, "child");
    snprintf(name, sizeof name, "profile.%d", child);
    CHECK(unlink(in_directory(name)) == 0); /* that of its end */
    strcat(name, ".above");
    CHECK(!is_there(name));
}

/* 20 MB in 1,000 blocks. */
static void allocate_and_exit(void)
{
    CHECK(getenv("HAKMEM_PROFILE_FILE") != NULL && getenv("TEST_LAST") != NULL);
    for (int i = 0; i < 1000; i++) {
        CHECK(get_memory(20000) != NULL);
    }
    IN_CHILD("child") {
        exit(0);
    }
}

/* --- the test --- */

static struct again start(const char *what, int pipes, const char *file, const char *when)
{
    const char *dump = *when != '\0' ? "HAKMEM_PROFILE_DUMP" : NULL, *path = in_directory(file),
               *period = dump == NULL ? "1000" : "524288";
    const char *const variables[] = {"HAKMEM_PROFILE_FILE",
                                     path,
                                     "TEST_FOLDER",
                                     directory,
                                     "HAKMEM_LIMIT_HARD",
                                     "256m",
                                     "HAKMEM_SAMPLE_BYTES",
                                     period,
                                     "TEST_LAST",
                                     "1",
                                     /* the environment is whole */ dump,
                                     when,
                                     NULL};
    return start_again(what, pipes, variables);
}

static struct again start_serving(const char *when)
{
    struct again program = start("serve", AGAIN_INPUT | AGAIN_OUTPUT, "profile", when);
    await_byte(&program);
    return program;
}

static void grow(const struct again *program)
{
    CHECK(write(program->ends[0], "x", 1) == 1);
    await_byte(program);
}

static void end(const struct again *program, int number)
{
    CHECK(kill(program->process, number) == 0);
    int status = status_of(program->process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == number);
    close_ends(program);
}

/* Whole profiles, one a line. Removes the file; returns how many. */
static size_t take(const char *name)
{
    static const char head[] = "{\"hakmem_profile\": ";
    static char text[1 << 22];
    size_t length = read_file(in_directory(name), text, sizeof text);
    size_t lines = count_words(text, "\n");
    CHECK(length > 2 && strcmp(text + length - 2, "}\n") == 0);
    CHECK_EQUAL(count_words(text, head), lines);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        CHECK(strncmp(line, head, strlen(head)) == 0);
    }
    remove_file(name);
    return lines;
}

static void test_growth(void)
{
    struct again program = start_serving("peak=50,above=30m,limit=40");
    grow(&program);
    await_file("profile.peak");
    await_file("profile.above");
    grow(&program); /* 80 MiB */
    await_file("profile.peak.old");
    grow(&program);
    await_file("profile.limit"); /* 120 of 256, or the group of the machine is as full */
    end(&program, SIGKILL);      /* perhaps while it writes one more peak */
    CHECK_EQUAL(take("profile.peak"), 1);
    if (is_there("profile.peak.old")) {
        CHECK_EQUAL(take("profile.peak.old"), 1);
    }
    CHECK_EQUAL(take("profile.above"), 1);
    CHECK(!is_there("profile.above.old"));
    CHECK_EQUAL(take("profile.limit"), 1);
    remove_file("profile.peak.new");
    remove_file("profile.limit.old");
    remove_file("profile.limit.new");
    remove_file("profile");
}

/* A file that has got the name of an unfinished profile keeps what it holds. */
static void test_time(void)
{
    struct stat about;
    FILE *file = fopen(in_directory("other"), "we");
    CHECK(file != NULL && fputs("text", file) >= 0 && fclose(file) == 0);
    CHECK(link(in_directory("other"), in_directory("profile.every.new")) == 0);
    struct again program = start_serving("every_s=1");
    await_file("profile.every");
    end(&program, SIGTERM);
    CHECK_EQUAL(take("profile.every"), 1);
    remove_file("profile.every.old");
    remove_file("profile.every.new");
    CHECK(stat(in_directory("other"), &about) == 0 && about.st_size == 4);
    remove_file("other");
    remove_file("profile");
}

static void test_fork(void)
{
    char name[64];
    struct again program = start("fork", 0, "profile.%p", "above=30m");
    wait_for_success(program.process, "program that forks");
    snprintf(name, sizeof name, "profile.%d", program.process);
    CHECK_EQUAL(take(name), 1);
    strcat(name, ".above");
    CHECK_EQUAL(take(name), 1);
}

/* The sum of all live bytes of the line that starts at `text`. */
static long long live_bytes(const char *text)
{
    static const char key[] = "\"live_bytes\": ";
    const char *end = strchr(text, '\n');
    long long sum = 0;
    for (const char *at = text; (at = strstr(at, key)) != NULL && at < end; at++) {
        sum += strtoll(at + strlen(key), NULL, 10);
    }
    return sum;
}

/* Of nearly all 20 MB in each of two processes. With %p each has a file of its own. */
static void test_exits(void)
{
    static char text[1 << 20];
    char name[64];
    wait_for_success(start("allocate", 0, "profile", "").process, "two exits");
    read_file(in_directory("profile"), text, sizeof text);
    const char *second = strchr(text, '\n') + 1;
    CHECK(live_bytes(text) > 19000000 && live_bytes(text) < 22000000);
    CHECK(live_bytes(second) > 19000000 && live_bytes(second) < 22000000);
    CHECK_EQUAL(take("profile"), 2);
    struct again program = start("allocate", 0, "100%%.%p", "");
    wait_for_success(program.process, "two files");
    snprintf(name, sizeof name, "100%%.%d", program.process);
    CHECK_EQUAL(take(name), 1);
    char command[200];
    snprintf(command, sizeof command, "rm %s/100%%.*", directory);
    CHECK_EQUAL(system(command), 0); /* the child's */
}

/* The thread has no descriptors of the program's, and yet says what it cannot write. */
static void test_complaints(void)
{
    static char text[100000];
    struct again program = start("wait", AGAIN_ERRORS, "missing/profile", "every_s=1");
    size_t length = 0;
    while (strstr(text, "missing/profile.every.new: there is no such directory\n") == NULL) {
        ssize_t got = read(program.ends[2], text + length, sizeof text - 1 - length);
        CHECK(got > 0);
        length += (size_t)got;
    }
    end(&program, SIGKILL);
    program = start("allocate", AGAIN_ERRORS, "missing/profile", "");
    read_to_end(program.ends[2], text, sizeof text);
    wait_for_success(program.process, "two complaints"); /* one of each process */
    CHECK_EQUAL(count_words(text, "missing/profile: there is no such directory\n"), 2);
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        switch (argv[1][0]) {
        case 's':
            serve();
            break;
        case 'f':
            fork_above();
            break;
        case 'a':
            allocate_and_exit();
            break;
        default:
            pause();
        }
        return 0;
    }
    CHECK(mkdtemp(directory) != NULL);
    test_growth();
    test_time();
    test_fork();
    test_exits();
    test_complaints();
    CHECK(rmdir(directory) == 0);
    return 0;
}
