/* SPDX-License-Identifier: MIT */
/* test_file_limit.c: what hakmem writes never ends the program: under a limit of the file size
 * (SIGXFSZ), and into a pipe that nobody reads (SIGPIPE), nor does it wait for ever for a reader.
 * Of a report that is cut nothing stays. The program's own signals stay its own.
 * ctest: not-again no-qemu */
#include "override.h"

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { STATUS = 7, LIMIT = 1024 };

static char folder[] = "/tmp/file_limit_XXXXXX";

struct output {
    const char *variable;
    const char *file; /* NULL: the value is 1 */
    bool must_complain;
};

static const struct output outputs[] = {
    {"HAKMEM_STATS_FILE", "stats", true},    {"HAKMEM_PROFILE_FILE", "profile", true},
    {"HAKMEM_HEAP_MAP_FILE", "map", true},   {"HAKMEM_OBSERVE", NULL, true},
    {"HAKMEM_LEARN_FILE", "learned", false},
};

static void limit_files(void)
{
    const struct rlimit limit = {LIMIT, LIMIT};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void run_child(const char *argument)
{
    char self[TEST_PATH_SIZE];
    own_path(self);
    execl(self, self, argument, (char *)NULL);
    _exit(126);
}

/* Returns what the program with this output says on standard error. It must end as it wants to. */
static void run_limited(const struct output *output, char *said, size_t size)
{
    int ends[2], status;
    char path[TEST_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", folder, output->file != NULL ? output->file : "");
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv(output->variable, output->file != NULL ? path : "1", 1) == 0);
        if (strcmp(output->variable, "HAKMEM_STATS_FILE") == 0) {
            CHECK(setenv("HAKMEM_STATS", "json", 1) == 0);
        } else if (strcmp(output->variable, "HAKMEM_LEARN_FILE") == 0) {
            CHECK(setenv("HAKMEM_LEARN", "on", 1) == 0);
        }
        CHECK(dup2(ends[1], 2) == 2);
        limit_files();
        run_child("work");
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while (length < size - 1 && (got = read(ends[0], said + length, size - 1 - length)) > 0) {
        length += (size_t)got;
    }
    said[length] = '\0';
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS) {
        dprintf(2, "%s: status %d: %s\n", output->variable, status, said);
        FAIL("the output has changed how the program ends");
    }
    if (output->must_complain && strstr(said, "limit of the file size") == NULL) {
        dprintf(2, "%s: %s\n", output->variable, said);
        FAIL("nothing is said about it");
    }
    if (strcmp(output->variable, "HAKMEM_STATS_FILE") == 0) { /* reports are appended */
        struct stat file;
        CHECK(stat(path, &file) == 0);
        CHECK_EQUAL(file.st_size, 0); /* else the next report would begin in this one's line */
    }
    if (output->file != NULL) {
        unlink(path);
    }
}

/* `full`: somebody has the other end, but reads nothing. */
static void run_unread_pipe(bool full)
{
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    if (full) {
        static const char page[4096];
        CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
        while (write(ends[1], page, sizeof page) > 0) {
        }
        CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        CHECK(setenv("HAKMEM_STATS", "1", 1) == 0);
        CHECK(dup2(ends[1], 2) == 2 && close(ends[1]) == 0);
        run_child("work");
    }
    close(ends[1]);
    if (!full) {
        close(ends[0]);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), STATUS);
    if (full) {
        close(ends[0]);
    }
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
    handled = number;
}

static bool is_pending(int number)
{
    sigset_t pending;
    CHECK(sigpending(&pending) == 0);
    return sigismember(&pending, number) == 1;
}

/* malloc_stats writes to descriptor 2, here one that answers with the signal `number`. */
static void check_own_signal(int number)
{
    sigset_t set, before;
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(number, &action, NULL) == 0);
    malloc_stats();
    CHECK_EQUAL(handled, 0);
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(sigprocmask(SIG_BLOCK, &set, &before) == 0);
    malloc_stats();
    CHECK(!is_pending(number));
    CHECK(raise(number) == 0);
    malloc_stats();
    CHECK(is_pending(number)); /* the program's */
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK_EQUAL(handled, number);
    handled = 0;
}

static void check_own_signals(void)
{
    char path[TEST_PATH_SIZE];
    int ends[2];
    int error_file = dup(2);
    snprintf(path, sizeof path, "%s/full", folder);
    int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    CHECK(error_file >= 0 && file >= 0 && ftruncate(file, LIMIT) == 0 && unlink(path) == 0);
    limit_files();
    CHECK(dup2(file, 2) == 2);
    check_own_signal(SIGXFSZ);
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0 && dup2(ends[1], 2) == 2);
    check_own_signal(SIGPIPE);
    CHECK(dup2(error_file, 2) == 2);
}

int main(int argc, char **argv)
{
    char said[100000];
    prove_served();
    if (argc > 1) {
        void *volatile kept[100];
        for (size_t i = 0; i < 100; i++) {
            kept[i] = get_memory(1 << 20);
        }
        (void)kept[0];
        exit(strcmp(argv[1], "work") == 0 ? STATUS : 1);
    }
    CHECK(mkdtemp(folder) != NULL);
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        run_limited(&outputs[i], said, sizeof said);
    }
    run_unread_pipe(false);
    run_unread_pipe(true);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_own_signals();
        _exit(0);
    }
    wait_for_success(child, "own signals");
    CHECK(rmdir(folder) == 0);
    return 0;
}
