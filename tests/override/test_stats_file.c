/* SPDX-License-Identifier: MIT */
/* test_stats_file.c: HAKMEM_STATS_FILE is opened at start, so that workers report that have given
 * up the right to open it. One that closes all its descriptors, or opens a file of its own under
 * the number, opens the file by its name, and is told which file and why when it may not.
 *
 * ctest: no-qemu
 */
#include "override.h"

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
static int serve(void)
{
    const char *directory = getenv("TEST_DIRECTORY");
    void (*const workers[])(void) = {keep_all, close_all, take_its_number};
    CHECK(geteuid() == 0 || chmod(directory, 0) == 0);
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        IN_CHILD("worker") {
            CHECK(geteuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
            give_back(get_memory(1000));
            workers[i]();
            exit(0);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        return serve();
    }
    char directory[] = "/tmp/test_stats_file_XXXXXX";
    static char reports[1 << 20], said[TEST_PATH_SIZE];
    char report[64], complaint[200];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(report, sizeof report, "%s/report", directory);
    const char *const variables[] = {
        "HAKMEM_STATS", "json", "HAKMEM_STATS_FILE", report, "TEST_DIRECTORY", directory, NULL};
    struct again server = start_again("serve", AGAIN_ERRORS, variables);
    read_to_end(server.ends[2], said, sizeof said);
    wait_for_success(server.process, "server");
    CHECK(chmod(directory, 0700) == 0);
    read_file(report, reports, sizeof reports);
    CHECK(unlink(report) == 0 && rmdir(directory) == 0);
    /* The server and its first worker; the others are refused. */
    CHECK_EQUAL(count_words(reports, "{\"hakmem\": "), 2);
    snprintf(complaint, sizeof complaint,
             "hakmem: cannot write the report to %s: permission denied\n", report);
    CHECK_EQUAL(count_words(said, complaint), 2);
    CHECK_EQUAL(count_words(said, "\n"), 2);
    return 0;
}
