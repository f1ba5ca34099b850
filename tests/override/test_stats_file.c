/* SPDX-License-Identifier: MIT */
/* test_stats_file.c: HAKMEM_STATS_FILE is opened at start, so that workers report that have given
 * up the right to open it. One that closes all its descriptors, or opens a file of its own under
 * the number, opens the file by its name, and is told which file and why when it may not.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <sys/stat.h>

enum { NOBODY = 65534, KEPT_MIN = 512, KEPT_MAX = 1024 };

static void keep_all(void)
{
}

static void close_all(void)
{
    for (int descriptor = 3; descriptor < KEPT_MAX; descriptor++) {
        close(descriptor);
    }
}

static void take_its_number(void)
{
    int other = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(other >= 0);
    for (int descriptor = KEPT_MIN; descriptor < KEPT_MAX; descriptor++) {
        CHECK(fcntl(descriptor, F_GETFD) < 0 || dup2(other, descriptor) == descriptor);
    }
}

/* As root the directory is root's alone; others can lock only themselves out of theirs. */
static int serve(const char *directory)
{
    void (*const workers[])(void) = {keep_all, close_all, take_its_number};
    CHECK(geteuid() == 0 || chmod(directory, 0) == 0);
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(geteuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
            give_back(get_memory(1000));
            workers[i]();
            exit(0);
        }
        wait_for_success(child, "worker");
    }
    return 0;
}

static void start_server(const char *directory, const char *report, int errors)
{
    char self[TEST_PATH_SIZE];
    own_path(self);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv("HAKMEM_STATS", "json", 1) == 0);
        CHECK(setenv("HAKMEM_STATS_FILE", report, 1) == 0);
        CHECK(dup2(errors, 2) == 2);
        execl(self, self, "serve", directory, (char *)NULL);
        _exit(126);
    }
    wait_for_success(child, "server");
}

static size_t count_in(int file, const char *words)
{
    static char text[1 << 20];
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    CHECK(length >= 0);
    text[length] = '\0';
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++) {
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 2 && strcmp(argv[1], "serve") == 0) {
        return serve(argv[2]);
    }
    char directory[] = "/tmp/test_stats_file_XXXXXX";
    char report[64], errors_path[] = "/tmp/test_stats_errors_XXXXXX", complaint[200];
    int errors = mkstemp(errors_path);
    CHECK(errors >= 0 && mkdtemp(directory) != NULL);
    snprintf(report, sizeof report, "%s/report", directory);
    start_server(directory, report, errors);
    CHECK(chmod(directory, 0700) == 0);
    int file = open(report, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    /* The server and its first worker; the others are refused. */
    size_t reports = count_in(file, "{\"hakmem\": ");
    snprintf(complaint, sizeof complaint,
             "hakmem: cannot write the report to %s: permission denied\n", report);
    size_t complaints = count_in(errors, complaint);
    size_t lines = count_in(errors, "\n");
    CHECK(unlink(report) == 0 && rmdir(directory) == 0 && unlink(errors_path) == 0);
    CHECK_EQUAL(reports, 2);
    CHECK_EQUAL(complaints, 2);
    CHECK_EQUAL(lines, 2);
    return 0;
}
