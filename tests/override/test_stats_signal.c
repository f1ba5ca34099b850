/* SPDX-License-Identifier: MIT */
/* test_stats_signal.c: with HAKMEM_STATS_SIGNAL=1 a signal that ends the process lets it report
 * first, and write its profile and heap map, wherever the signal comes: inside malloc, inside
 * stdio, beside a fork, in a child. The process still ends by the signal. Handlers and ignored
 * signals of the program stay, and without the option nothing changes.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

static char directory[] = "/tmp/test_stats_signal_XXXXXX";

/* --- what the programs under test do --- */

static void *churn(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    static void *blocks[256];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (;;) {
        random = random * UINT64_C(6364136223846793005) + 1;
        size_t at = random >> 56;
        pthread_mutex_lock(&lock);
        give_back(blocks[at]);
        blocks[at] = get_memory((random >> 32) % 100000 + (at == 0 ? 4000000 : 0));
        pthread_mutex_unlock(&lock);
        dprintf(1, "%s", "");
        fprintf(stdout, "%s", "");
    }
    return NULL;
}

static void *fork_often(void *argument)
{
    for (;;) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            raise(SIGKILL); /* it does not report */
        }
        CHECK(waitpid(child, NULL, 0) == child);
    }
    return argument;
}

static void serve(const char *what)
{
    struct sigaction action;
    CHECK(write(1, "r", 1) == 1);
    if (strcmp(what, "off") == 0) {
        CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    } else if (strcmp(what, "ignored") == 0) {
        CHECK(sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
        raise(SIGHUP);
        raise(SIGTERM);
    } else if (strcmp(what, "busy") == 0 || strcmp(what, "forks") == 0) {
        pthread_t threads[3];
        for (size_t i = 0; i < 3; i++) {
            void *(*body)(void *) = i == 2 && *what == 'f' ? fork_often : churn;
            CHECK(pthread_create(&threads[i], NULL, body, (void *)(i + 1)) == 0);
        }
        churn((void *)4);
    }
    for (;;) {
        pause();
    }
}

/* --- what the test does with them --- */

static bool reports = true;

static pid_t start(const char *what, const char *file, const char *enabled)
{
    const char *const variables[] = {
        "HAKMEM_STATS_FILE", file, "HAKMEM_STATS_SIGNAL", enabled, reports ? "HAKMEM_STATS" : NULL,
        "summary",           NULL};
    struct again program = start_again(what, AGAIN_OUTPUT, variables);
    await_byte(&program);
    close_ends(&program);
    return program.process;
}

static void end_by(pid_t child, int number)
{
    int status;
    alarm(240); /* a report that hangs fails the test */
    CHECK(number == 0 || kill(child, number) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    alarm(0);
    CHECK(WIFSIGNALED(status));
    CHECK_EQUAL(WTERMSIG(status), number == 0 ? SIGTERM : number);
}

/* Takes the file away: what it holds, which is whole lines. */
static const char *take(const char *file)
{
    static char text[1 << 16];
    int descriptor = open(file, O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    size_t length = read_to_end(descriptor, text, sizeof text);
    CHECK(length == 0 || text[length - 1] == '\n');
    CHECK(unlink(file) == 0);
    return text;
}

static size_t take_reports(const char *file)
{
    return count_words(take(file), "resident memory (RSS)");
}

static void test_each_signal(void)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU};
    char file[100];
    snprintf(file, sizeof file, "%s/report", directory);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        end_by(start("sleep", file, "1"), numbers[i]);
        CHECK_EQUAL(take_reports(file), 1);
    }
    end_by(start("sleep", file, "1"), SIGUSR1); /* not one of them */
    CHECK_EQUAL(take_reports(file), 0);
    end_by(start("off", file, "0"), SIGTERM);
    CHECK_EQUAL(take_reports(file), 0);
    CHECK(signal(SIGHUP, SIG_IGN) != SIG_ERR);
    end_by(start("ignored", file, "1"), 0);
    CHECK(signal(SIGHUP, SIG_DFL) != SIG_ERR);
    CHECK_EQUAL(take_reports(file), 1);
}

/* It must be one line of JSON that begins like this. */
static void take_document(const char *file, const char *begin)
{
    const char *text = take(file);
    CHECK(strncmp(text, begin, strlen(begin)) == 0 && count_words(text, "\n") == 1);
}

/* The profile and the heap map come, too, with a report and without one. */
static void test_all_documents(void)
{
    char file[100], profile[100], map[100];
    snprintf(file, sizeof file, "%s/report", directory);
    snprintf(profile, sizeof profile, "%s/profile", directory);
    snprintf(map, sizeof map, "%s/map", directory);
    for (int i = 0; i < 2; i++) {
        reports = i == 0;
        CHECK(setenv("HAKMEM_PROFILE_FILE", profile, 1) == 0);
        CHECK(setenv("HAKMEM_HEAP_MAP_FILE", map, 1) == 0);
        pid_t child = start("sleep", file, "1");
        CHECK(unsetenv("HAKMEM_PROFILE_FILE") == 0 && unsetenv("HAKMEM_HEAP_MAP_FILE") == 0);
        end_by(child, SIGTERM);
        take_document(profile, "{\"hakmem_profile\": ");
        take_document(map, "{\"heap_map\": ");
        if (reports) {
            CHECK_EQUAL(take_reports(file), 1);
        }
    }
    reports = true;
}

/* Wherever the signal comes, the process ends, with one report or none. */
static void test_busy_programs(void)
{
    char file[100], profile[100];
    size_t all = 0;
    enum { ROUNDS = 20 };
    snprintf(file, sizeof file, "%s/report", directory);
    snprintf(profile, sizeof profile, "%s/profile", directory);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(i % 4 != 2 || setenv("HAKMEM_PROFILE_FILE", profile, 1) == 0); /* no forks */
        pid_t child = start(i % 2 == 0 ? "busy" : "forks", file, "1");
        usleep((useconds_t)(1000 * (i % 5)));
        end_by(child, SIGTERM);
        size_t written = take_reports(file);
        CHECK(written <= 1);
        all += written;
        CHECK(unsetenv("HAKMEM_PROFILE_FILE") == 0);
        if (access(profile, F_OK) == 0) {
            (void)take(profile);
        }
    }
    CHECK(all >= 1);
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        serve(argv[1]);
    }
    CHECK(mkdtemp(directory) != NULL);
    test_each_signal();
    test_all_documents();
    test_busy_programs();
    CHECK(rmdir(directory) == 0);
    return 0;
}
