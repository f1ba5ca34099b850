/* SPDX-License-Identifier: MIT */
/* test_file_limit.c: what hakmem writes never ends the program: under a limit of the file size
 * (SIGXFSZ), and into a pipe that nobody reads (SIGPIPE), nor does it wait for ever for a reader.
 * Of a report that is cut nothing stays. The program's own signals stay its own.
 * ctest: no-qemu */
#include "override.h"

enum { STATUS = 7, LIMIT = 1024 };

static char folder[] = "/tmp/file_limit_XXXXXX";

struct output {
    const char *variable;
    const char *file; /* NULL: the value is 1 */
    bool must_complain;
    const char *also, *how; /* another variable, or NULL */
};

static const struct output outputs[] = {
    {"HAKMEM_STATS_FILE", "stats", true, "HAKMEM_STATS", "json"},
    {"HAKMEM_PROFILE_FILE", "profile", true, NULL, NULL},
    {"HAKMEM_HEAP_MAP_FILE", "map", true, NULL, NULL},
    {"HAKMEM_OBSERVE", NULL, true, NULL, NULL},
    {"HAKMEM_LEARN_FILE", "learned", false, "HAKMEM_LEARN", "on"},
};

/* The soft limit, which this process takes back. */
static void limit_files(rlim_t size)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = size < limit.rlim_max ? size : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* The program ends as it wants to, and says on standard error why the output is missing. */
static void run_limited(const struct output *output)
{
    static char said[100000];
    char path[TEST_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", folder, output->file != NULL ? output->file : "");
    const char *const variables[] = {output->variable, output->file != NULL ? path : "1",
                                     output->also, output->how, NULL};
    limit_files(LIMIT);
    struct again program = start_again("work", AGAIN_ERRORS, variables);
    limit_files(RLIM_INFINITY);
    read_to_end(program.ends[2], said, sizeof said);
    int status = status_of(program.process);
    if (status != STATUS << 8 ||
        (output->must_complain && strstr(said, "limit of the file size") == NULL)) {
        dprintf(2, "%s: status %d: %s\n", output->variable, status, said);
        FAIL("the output has changed how the program ends, or nothing is said about it");
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

/* Nobody has the other end, or somebody who reads nothing. */
static void run_unread_pipe(bool full)
{
    const char *const variables[] = {"HAKMEM_STATS", "1", NULL};
    struct again program =
        start_again(full ? "full" : "unread", AGAIN_INPUT | AGAIN_ERRORS, variables);
    if (!full) {
        close(program.ends[2]);
    }
    close(program.ends[0]);
    CHECK_EQUAL(exit_status_of(program.process), STATUS);
    if (full) {
        close(program.ends[2]);
    }
}

/* Its input ends when nobody else has standard error's other end. */
static void prepare_errors(bool full)
{
    static char page[4096];
    CHECK(read(0, page, sizeof page) == 0);
    if (full) {
        CHECK(fcntl(2, F_SETFL, O_NONBLOCK) == 0);
        while (write(2, page, sizeof page) > 0) {
        }
        CHECK(fcntl(2, F_SETFL, 0) == 0);
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
    limit_files(LIMIT);
    CHECK(dup2(file, 2) == 2);
    check_own_signal(SIGXFSZ);
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0 && dup2(ends[1], 2) == 2);
    check_own_signal(SIGPIPE);
    CHECK(dup2(error_file, 2) == 2);
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        if (strcmp(argv[1], "work") != 0) {
            prepare_errors(strcmp(argv[1], "full") == 0);
        }
        void *volatile kept[100];
        for (size_t i = 0; i < 100; i++) {
            kept[i] = get_memory(1 << 20);
        }
        (void)kept[0];
        exit(STATUS);
    }
    CHECK(mkdtemp(folder) != NULL);
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        run_limited(&outputs[i]);
    }
    run_unread_pipe(false);
    run_unread_pipe(true);
    IN_CHILD("own signals") {
        check_own_signals();
    }
    CHECK(rmdir(folder) == 0);
    return 0;
}
