/* SPDX-License-Identifier: MIT */
/* test_exit_now.c: a process that ends by _exit or _Exit reports as one that ends by exit does:
 * once, with its exit status, from any thread, on any stack. A child of vfork or of a plain clone
 * does not report. In a signal handler that interrupted hakmem, one sentence takes its place.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <sys/ioctl.h>

enum { STATUS = 37, CHURNERS = 3, CHILDREN = 3 };

static char directory[] = "/tmp/test_exit_now_XXXXXX";

/* --- what the programs under test do --- */

static void *churn(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    void *blocks[64] = {NULL};
    for (;;) {
        size_t at = random_next(&random) % 64;
        give_back(blocks[at]);
        blocks[at] = get_memory(random_next(&random) % 100000);
    }
    return NULL;
}

static void start_churners(void)
{
    pthread_t thread;
    for (uintptr_t i = 1; i <= CHURNERS; i++) {
        CHECK(pthread_create(&thread, NULL, churn, (void *)i) == 0);
    }
}

static pthread_barrier_t all_ready;

static void *exit_together(void *argument)
{
    pthread_barrier_wait(&all_ready);
    _exit(STATUS);
    return argument;
}

static void end_together(void)
{
    pthread_t thread;
    CHECK(pthread_barrier_init(&all_ready, NULL, 4) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&thread, NULL, exit_together, NULL) == 0);
    }
    exit_together(NULL);
}

/* A wait for a file is where a cancelled thread ends. */
static void *exit_cancelled(void *argument)
{
    CHECK(pthread_cancel(pthread_self()) == 0);
    _exit(STATUS);
    return argument;
}

static void exit_in_handler(int number)
{
    _exit(STATUS);
}

/* `apart`: on a stack of its own, of which _exit may use 4 KiB. */
static void end_in_handler(bool apart)
{
    struct sigaction action = {.sa_handler = exit_in_handler, .sa_flags = apart ? SA_ONSTACK : 0};
    size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096, page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, page + 16384 + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + page, .ss_size = size};
    CHECK(memory != MAP_FAILED);
    CHECK(mprotect(stack.ss_sp, (size + page - 1) / page * page, PROT_READ | PROT_WRITE) == 0);
    CHECK(!apart || sigaltstack(&stack, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
}

/* Its signal comes at any moment. */
static void end_while_busy(void)
{
    struct sigaction action = {.sa_handler = exit_in_handler};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    start_churners();
    CHECK(write(1, "r", 1) == 1);
    churn((void *)7);
}

static void wait_for_status(pid_t child)
{
    CHECK(child > 0);
    CHECK_EQUAL(exit_status_of(child), STATUS);
}

static void end_after_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        _exit(STATUS);
    }
    wait_for_status(child);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        _exit(STATUS);
    }
    wait_for_status(child);
    _exit(STATUS);
}

static void end_after_children(void)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            give_back(get_memory(1000));
            _exit(STATUS);
        }
        wait_for_status(child);
    }
    _exit(STATUS);
}

static int serve(const char *what)
{
    pthread_t thread;
    give_back(get_memory(100000));
    if (strcmp(what, "_exit") == 0) {
        _exit(STATUS);
    } else if (strcmp(what, "_Exit") == 0) {
        _Exit(STATUS);
    } else if (strcmp(what, "exit") == 0) {
        exit(STATUS);
    } else if (strcmp(what, "quick_exit") == 0) {
        quick_exit(STATUS);
    } else if (strcmp(what, "handler") == 0 || strcmp(what, "alternate stack") == 0) {
        end_in_handler(*what == 'a');
    } else if (strcmp(what, "busy") == 0) {
        end_while_busy();
    } else if (strcmp(what, "vfork") == 0) {
        end_after_vfork();
    } else if (strcmp(what, "children") == 0) {
        end_after_children();
    } else if (strcmp(what, "together") == 0) {
        end_together();
    } else if (strcmp(what, "cancelled") == 0) {
        CHECK(pthread_create(&thread, NULL, exit_cancelled, NULL) == 0);
        pthread_join(thread, NULL);
    } else if (strcmp(what, "thread") == 0) {
        start_churners();
        CHECK(pthread_barrier_init(&all_ready, NULL, 1) == 0);
        CHECK(pthread_create(&thread, NULL, exit_together, NULL) == 0);
        churn((void *)7);
    }
    return 1;
}

/* --- what the test does with them --- */

struct outcome {
    size_t reports, profiles, maps, sentences;
    size_t own; /* documents that name the process that was started */
};

static char own[40]; /* as documents name it */
static size_t own_count;

/* Reads the file, sees that its last line is whole, and removes it. */
static size_t take(const char *name, const char *words)
{
    static char text[1 << 22];
    char path[100];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    size_t length = read_to_end(file, text, sizeof text);
    CHECK(unlink(path) == 0);
    CHECK(length == 0 || text[length - 1] == '\n');
    own_count += count_words(text, own);
    return count_words(text, words);
}

static void set_path(const char *variable, const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    CHECK(setenv(variable, path, 1) == 0);
}

/* `asked`: for report, profile and heap map; only_own: HAKMEM_STATS_PID is set. */
static struct again start(const char *what, bool asked, bool only_own)
{
    const char *const variables[] = {"HAKMEM_STATS_PID", only_own ? "PID" : "0",
                                     asked ? "HAKMEM_STATS" : NULL, "json", NULL};
    if (asked) {
        set_path("HAKMEM_STATS_FILE", "report");
        set_path("HAKMEM_PROFILE_FILE", "profile");
        set_path("HAKMEM_HEAP_MAP_FILE", "map");
    }
    struct again program = start_again(what, AGAIN_OUTPUT | AGAIN_ERRORS, variables);
    CHECK(unsetenv("HAKMEM_STATS_FILE") == 0 && unsetenv("HAKMEM_PROFILE_FILE") == 0);
    CHECK(unsetenv("HAKMEM_HEAP_MAP_FILE") == 0);
    char byte;
    CHECK(read(program.ends[1], &byte, 1) >= 0); /* it is busy, or has ended */
    close(program.ends[1]);
    return program;
}

static struct outcome finish(struct again program)
{
    static char said[1 << 16];
    struct outcome outcome = {0};
    alarm(240); /* an end that hangs fails the test */
    read_to_end(program.ends[2], said, sizeof said);
    wait_for_status(program.process);
    alarm(0);
    snprintf(own, sizeof own, "\"process\": %d,", (int)program.process);
    own_count = 0;
    outcome.reports = take("report", "{\"hakmem\": ");
    outcome.profiles = take("profile", "{\"hakmem_profile\": ");
    outcome.maps = take("map", "{\"heap_map\": ");
    outcome.own = own_count;
    outcome.sentences = count_words(said, "hakmem: no ");
    return outcome;
}

static void test_each_way(void)
{
    static const char *const ways[] = {
        "_exit",           "_Exit",  "exit",     "quick_exit", "handler",
        "alternate stack", "thread", "together", "cancelled",  "vfork"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        dprintf(2, "%s\n", ways[i]);
        struct outcome outcome = finish(start(ways[i], true, false));
        CHECK_EQUAL(outcome.reports, 1);
        CHECK_EQUAL(outcome.own, 3);
        CHECK_EQUAL(outcome.profiles, 1);
        CHECK_EQUAL(outcome.maps, 1);
        CHECK_EQUAL(outcome.sentences, 0);
        outcome = finish(start(ways[i], false, false));
        CHECK_EQUAL(outcome.reports + outcome.profiles + outcome.maps + outcome.sentences, 0);
    }
}

/* Four threads end the process. The pipe is full but for a page, which is no room for the first
 * one's report, so the others come while it is being written. The report is whole all the same.
 * (They wait for it for two seconds, so the rest of it must fit into the pipe at once.) */
static void test_whole_report(void)
{
    enum { PIPE = 256 << 10, FILLED = PIPE - 4096 };
    static char text[1 << 20];
    char self[TEST_PATH_SIZE];
    int ends[2], waiting = 0;
    own_path(self);
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, PIPE) == PIPE);
    memset(text, '.', FILLED);
    CHECK(write(ends[1], text, FILLED) == FILLED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv("HAKMEM_STATS", "full", 1) == 0 && dup2(ends[1], 2) == 2);
        close(ends[0]);
        close(ends[1]);
        execl(self, self, "together", (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    alarm(240);
    while (waiting <= FILLED) {
        CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0);
        usleep(1000);
    }
    usleep(20000); /* the others come */
    size_t length = read_to_end(ends[0], text, sizeof text);
    wait_for_status(child);
    alarm(0);
    CHECK(length > 0 && text[length - 1] == '\n');
    CHECK_EQUAL(count_words(text, "resident memory (RSS)"), 1);
    CHECK_EQUAL(count_words(text, " heap_map_file "), 1); /* near the end */
}

static void test_forked_children(void)
{
    struct outcome outcome = finish(start("children", true, false));
    CHECK_EQUAL(outcome.reports, 1 + CHILDREN);
    CHECK_EQUAL(outcome.profiles, 1 + CHILDREN);
    outcome = finish(start("children", true, true));
    CHECK_EQUAL(outcome.reports, 1);
    CHECK_EQUAL(outcome.maps, 1);
}

/* The handler may have interrupted anything: each document is written, or a sentence says why it is
 * not. */
static void test_busy_handlers(void)
{
    for (int i = 0; i < 20; i++) {
        struct again program = start("busy", true, false);
        usleep((useconds_t)(500 * (i % 5)));
        CHECK(kill(program.process, SIGUSR1) == 0);
        struct outcome outcome = finish(program);
        CHECK(outcome.reports <= 1 && outcome.profiles <= 1 && outcome.maps <= 1);
        CHECK_EQUAL(outcome.reports + outcome.profiles + outcome.maps + outcome.sentences, 3);
    }
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        return serve(argv[1]);
    }
    CHECK(mkdtemp(directory) != NULL);
    test_each_way();
    test_whole_report();
    test_forked_children();
    test_busy_handlers();
    CHECK(rmdir(directory) == 0);
    return 0;
}
