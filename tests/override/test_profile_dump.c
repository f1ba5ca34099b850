/* SPDX-License-Identifier: MIT */
/* test_profile_dump.c: HAKMEM_PROFILE_DUMP: profiles that a process writes by itself, at new peaks,
 * above a mark, after a time and before the hard limit. They are there whatever ends the process,
 * and are whole. A signal ends it as always. A forked child without a %p in the name writes none,
 * nor does one with it for what its parent has written.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

#define MIB ((size_t)1 << 20)

static char directory[] = "/tmp/test_profile_dump_XXXXXX";
static char profile[64]; /* in the directory */

/* --- the program under test --- */

static size_t threads_count(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        count += task->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

/* For each byte of its standard input it takes 40 MiB, and answers. */
static int serve(void)
{
    struct sigaction action;
    char byte = 0;
    CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK_EQUAL(threads_count(), 2);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQUAL(threads_count(), 1);
        _exit(0);
    }
    wait_for_success(child, "child");
    do {
        CHECK(write(1, "r", 1) == 1);
        if (byte != 0) {
            for (size_t i = 0; i < 40; i++) {
                memset(get_memory(MIB), 1, MIB);
            }
        }
    } while (read(0, &byte, 1) == 1);
    return 0;
}

/* With a %p in the name. A child that is born above the mark leaves nothing. */
static int fork_above(void)
{
    char path[96];
    struct stat about;
    memset(get_memory(40 * MIB), 1, 40 * MIB);
    snprintf(path, sizeof path, "%.60s/profile.%d.above", getenv("HAKMEM_TEST_FOLDER"), getpid());
    while (stat(path, &about) != 0) {
        usleep(2000);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(300000); /* three looks */
        _exit(0);
    }
    wait_for_success(child, "child");
    snprintf(path, sizeof path, "%.60s/profile.%d", getenv("HAKMEM_TEST_FOLDER"), child);
    CHECK(unlink(path) == 0); /* that of its end */
    strcat(path, ".above");
    CHECK(stat(path, &about) != 0);
    return 0;
}

/* --- the test --- */

static struct again start(const char *when)
{
    const char *const variables[] = {"HAKMEM_PROFILE_FILE",
                                     profile,
                                     "HAKMEM_PROFILE_DUMP",
                                     when,
                                     "HAKMEM_LIMIT_HARD",
                                     "256m",
                                     NULL};
    struct again program = start_again("serve", AGAIN_INPUT | AGAIN_OUTPUT, variables);
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
    int status;
    CHECK(kill(program->process, number) == 0);
    CHECK(waitpid(program->process, &status, 0) == program->process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == number);
    close_ends(program);
}

static bool is_there(const char *name)
{
    char path[96];
    struct stat about;
    snprintf(path, sizeof path, "%s%s", profile, name);
    return stat(path, &about) == 0;
}

static void await_file(const char *name)
{
    while (!is_there(name)) {
        usleep(2000); /* ctest's timeout ends a test that hangs */
    }
}

static void remove_file(const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s%s", profile, name);
    (void)unlink(path);
}

/* One whole line, of this process. Removes it. */
static void take(const char *name, pid_t process)
{
    static const char head[] = "{\"hakmem_profile\": ", id[] = "\"process\": ";
    char path[96], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s%s", profile, name);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    ssize_t length = getline(&line, &room, file);
    CHECK(length > 2 && strcmp(line + length - 2, "}\n") == 0 && fgetc(file) == EOF);
    CHECK(strncmp(line, head, strlen(head)) == 0);
    const char *number = strstr(line, id);
    CHECK(number != NULL);
    CHECK_EQUAL(atoi(number + strlen(id)), process);
    give_back(line);
    CHECK(fclose(file) == 0 && unlink(path) == 0);
}

static void test_growth(void)
{
    struct again program = start("peak=50,above=30m,limit=40");
    grow(&program);
    await_file(".peak");
    await_file(".above");
    grow(&program); /* 80 MiB */
    await_file(".peak.old");
    grow(&program);
    await_file(".limit");   /* 120 of 256, or the group of the machine is as full */
    end(&program, SIGKILL); /* perhaps while it writes one more peak */
    take(".peak", program.process);
    if (is_there(".peak.old")) {
        take(".peak.old", program.process);
    }
    remove_file(".peak.new");
    remove_file(".limit.old");
    remove_file(".limit.new");
    take(".above", program.process);
    CHECK(!is_there(".above.old"));
    take(".limit", program.process);
    (void)unlink(profile);
}

/* A file that has got the name of an unfinished profile keeps what it holds. */
static void test_time(void)
{
    char other[80], made[80];
    struct stat about;
    snprintf(other, sizeof other, "%s/other", directory);
    snprintf(made, sizeof made, "%s.every.new", profile);
    FILE *file = fopen(other, "we");
    CHECK(file != NULL && fputs("text", file) >= 0 && fclose(file) == 0);
    CHECK(link(other, made) == 0);
    struct again program = start("every_s=1");
    await_file(".every");
    end(&program, SIGTERM);
    take(".every", program.process);
    remove_file(".every.old");
    remove_file(".every.new");
    CHECK(stat(other, &about) == 0 && about.st_size == 4 && unlink(other) == 0);
    (void)unlink(profile);
}

static void test_fork(void)
{
    char pattern[64], path[96];
    snprintf(pattern, sizeof pattern, "%s/profile.%%p", directory);
    const char *const variables[] = {"HAKMEM_PROFILE_FILE",
                                     pattern,
                                     "HAKMEM_PROFILE_DUMP",
                                     "above=30m",
                                     "HAKMEM_TEST_FOLDER",
                                     directory,
                                     NULL};
    struct again program = start_again("fork", 0, variables);
    wait_for_success(program.process, "program that forks");
    snprintf(path, sizeof path, "%s/profile.%d", directory, program.process);
    CHECK(unlink(path) == 0);
    strcat(path, ".above");
    CHECK(unlink(path) == 0);
}

/* The thread has no descriptors of the program's, and yet says what it cannot write. */
static void test_complaint(void)
{
    char file[96], text[1024] = "";
    size_t length = 0;
    snprintf(file, sizeof file, "%s/missing/profile", directory);
    const char *const variables[] = {"HAKMEM_PROFILE_FILE", file, "HAKMEM_PROFILE_DUMP",
                                     "every_s=1", NULL};
    struct again program = start_again("wait", AGAIN_ERRORS, variables);
    while (strstr(text, "missing/profile.every.new: there is no such directory\n") == NULL) {
        ssize_t got = read(program.ends[2], text + length, sizeof text - 1 - length);
        CHECK(got > 0);
        length += (size_t)got;
    }
    end(&program, SIGKILL);
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        pause();
    }
    if (argc > 1) {
        return strcmp(argv[1], "fork") == 0 ? fork_above() : serve();
    }
    CHECK(mkdtemp(directory) != NULL);
    snprintf(profile, sizeof profile, "%s/profile", directory);
    test_growth();
    test_time();
    test_fork();
    test_complaint();
    CHECK(rmdir(directory) == 0);
    return 0;
}
