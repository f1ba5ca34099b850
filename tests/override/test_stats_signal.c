/* SPDX-License-Identifier: MIT */
/* test_stats_signal.c: with HAKMEM_STATS_SIGNAL=1 a signal that ends the process lets it report
 * first, and write its profile and heap map; the process still ends by the signal. With
 * HAKMEM_PROFILE_SIGNAL each signal appends a profile to HAKMEM_PROFILE_FILE, and the process goes
 * on. Both wherever the signal comes: inside malloc, inside stdio, beside a fork, in a child.
 * Handlers and ignored signals of the program stay, and without the options nothing changes.
 *
 * ctest: no-qemu
 */
#include "override.h"

static char directory[] = "/tmp/test_stats_signal_XXXXXX";
static char report[64], profile[64], map[64]; /* files in the directory */

/* --- what the programs under test do --- */

static int shared_stop;
static int shared_own_signals;

static void *churn(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    static void *blocks[256];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    while (!__atomic_load_n(&shared_stop, __ATOMIC_RELAXED)) {
        size_t at = random_next(&random) % 256;
        pthread_mutex_lock(&lock);
        give_back(blocks[at]);
        blocks[at] = get_memory(random_next(&random) % 100000 + (at == 0 ? 4000000 : 0));
        pthread_mutex_unlock(&lock);
        dprintf(1, "%s", "");
        fprintf(stdout, "%s", "");
    }
    return NULL;
}

static void *fork_often(void *argument)
{
    while (!__atomic_load_n(&shared_stop, __ATOMIC_RELAXED)) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            raise(SIGKILL); /* it does not report */
        }
        (void)status_of(child);
    }
    return argument;
}

static void note_signal(int signal)
{
    __atomic_add_fetch(&shared_own_signals, 1, __ATOMIC_RELAXED);
}

/* Until its standard input ends. */
static int serve(const char *what)
{
    struct sigaction action;
    pthread_t threads[3];
    size_t count = strcmp(what, "busy") == 0 || strcmp(what, "forks") == 0 ? 3 : 0;
    char byte;
    for (size_t i = 0; i < count; i++) {
        void *(*body)(void *) = i == 2 && *what == 'f' ? fork_often : churn;
        CHECK(pthread_create(&threads[i], NULL, body, (void *)(i + 1)) == 0);
    }
    if (strcmp(what, "own") == 0) {
        CHECK(signal(SIGUSR2, note_signal) != SIG_ERR);
    } else if (strcmp(what, "child") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child != 0) {
            wait_for_success(child, "child");
            return 0;
        }
        CHECK(dprintf(2, "child %d.\n", (int)getpid()) > 0);
    } else if (strcmp(what, "off") == 0) {
        CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    } else if (strcmp(what, "ignored") == 0) {
        CHECK(sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
        raise(SIGHUP);
    }
    CHECK(write(1, "r", 1) == 1);
    while (read(0, &byte, 1) != 0) {
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    join_all(threads, count);
    return __atomic_load_n(&shared_own_signals, __ATOMIC_RELAXED) == 0 ? 0 : 3;
}

/* --- what the test does with them --- */

/* `variables`: more of them. */
static struct again start(const char *what, const char *const *variables)
{
    struct again program = start_again(what, AGAIN_INPUT | AGAIN_OUTPUT | AGAIN_ERRORS, variables);
    await_byte(&program);
    return program;
}

static struct again start_reporting(const char *what, const char *enabled)
{
    const char *const variables[] = {
        "HAKMEM_STATS", "summary", "HAKMEM_STATS_FILE", report, "HAKMEM_STATS_SIGNAL",
        enabled,        NULL};
    return start(what, variables);
}

static struct again start_profiling(const char *what, const char *number, const char *file)
{
    const char *const variables[] = {"HAKMEM_PROFILE_SIGNAL", number,
                                     file != NULL ? "HAKMEM_PROFILE_FILE" : NULL, file, NULL};
    return start(what, variables);
}

static void end_by(const struct again *program, int number)
{
    alarm(240); /* a report that hangs fails the test */
    CHECK(kill(program->process, number) == 0);
    int status = status_of(program->process);
    alarm(0);
    CHECK(WIFSIGNALED(status));
    CHECK_EQUAL(WTERMSIG(status), number);
    close_ends(program);
}

/* Its input ends. */
static int end(const struct again *program)
{
    close_ends(program);
    return exit_status_of(program->process);
}

/* What the file holds, or nothing if there is none; the last line may be under way. */
static const char *look(const char *path)
{
    static char text[1 << 22];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *text = '\0';
    if (file >= 0) {
        read_to_end(file, text, sizeof text);
    }
    return text;
}

/* Takes the file away, which holds whole lines; how many of them have the words. */
static size_t take(const char *path, const char *words)
{
    const char *text = look(path);
    size_t length = strlen(text);
    CHECK(length == 0 || text[length - 1] == '\n');
    (void)unlink(path);
    return count_words(text, words);
}

static size_t take_reports(void)
{
    return take(report, "resident memory (RSS)");
}

static void test_each_signal(void)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU, SIGUSR1};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        struct again program = start_reporting("sleep", "1");
        end_by(&program, numbers[i]);
        CHECK_EQUAL(take_reports(), numbers[i] == SIGUSR1 ? 0 : 1); /* not one of them */
    }
    struct again program = start_reporting("off", "0");
    end_by(&program, SIGTERM);
    CHECK_EQUAL(take_reports(), 0);
    CHECK(signal(SIGHUP, SIG_IGN) != SIG_ERR);
    program = start_reporting("ignored", "1");
    end_by(&program, SIGTERM);
    CHECK(signal(SIGHUP, SIG_DFL) != SIG_ERR);
    CHECK_EQUAL(take_reports(), 1);
}

/* The profile and the heap map come, too, with a report and without one. */
static void test_all_documents(void)
{
    for (int i = 0; i < 2; i++) {
        const char *stats = i == 0 ? "HAKMEM_STATS" : NULL;
        const char *const variables[] = {"HAKMEM_STATS_SIGNAL",
                                         "1",
                                         "HAKMEM_PROFILE_FILE",
                                         profile,
                                         "HAKMEM_HEAP_MAP_FILE",
                                         map,
                                         "HAKMEM_STATS_FILE",
                                         report,
                                         stats,
                                         "summary",
                                         NULL};
        struct again program = start("sleep", variables);
        end_by(&program, SIGTERM);
        CHECK_EQUAL(take(profile, "{\"hakmem_profile\": "), 1);
        CHECK_EQUAL(take(map, "{\"heap_map\": "), 1);
        CHECK_EQUAL(take_reports(), i == 0 ? 1 : 0);
    }
}

/* Wherever the signal comes, the process ends, with one report or none. */
static void test_busy_programs(void)
{
    size_t all = 0;
    for (int i = 0; i < 20; i++) {
        CHECK(i % 4 != 2 || setenv("HAKMEM_PROFILE_FILE", profile, 1) == 0); /* no forks */
        struct again program = start_reporting(i % 2 == 0 ? "busy" : "forks", "1");
        CHECK(unsetenv("HAKMEM_PROFILE_FILE") == 0);
        usleep((useconds_t)(1000 * (i % 5)));
        end_by(&program, SIGTERM);
        size_t written = take_reports();
        CHECK(written <= 1);
        all += written;
        (void)take(profile, "\n");
    }
    CHECK(all >= 1);
}

/* Whole profiles in the file: of the process, or of all if it is 0. */
static size_t profiles_count(pid_t process)
{
    char words[32] = "{\"hakmem_profile\": ";
    const char *text = look(profile), *last = strrchr(text, '\n');
    if (process != 0) {
        snprintf(words, sizeof words, "\"process\": %d,", (int)process);
    }
    return last == NULL ? 0 : count_words(text, words) - count_words(last, words);
}

static void wait_for_profiles(pid_t process, size_t count)
{
    while (profiles_count(process) < count) {
        usleep(2000); /* ctest's timeout ends a test that hangs */
    }
    CHECK_EQUAL(profiles_count(process), count);
}

static void test_each_signal_is_a_profile(const char *what, size_t signals)
{
    struct again program = start_profiling(what, "10", profile);
    for (size_t i = 1; i <= signals; i++) {
        CHECK(kill(program.process, SIGUSR1) == 0);
        wait_for_profiles(program.process, i);
    }
    CHECK_EQUAL(end(&program), 0);
    CHECK_EQUAL(profiles_count(program.process), signals + 1);
    CHECK(unlink(profile) == 0);
}

static void test_child(void)
{
    char text[1000] = ""; /* the child says its id */
    size_t length = 0;
    struct again program = start_profiling("child", "10", profile);
    for (const char *at = NULL; at == NULL || strchr(at, '.') == NULL;) {
        ssize_t more = read(program.ends[2], text + length, sizeof text - 1 - length);
        CHECK(more > 0);
        length += (size_t)more;
        at = strstr(text, "child ");
    }
    int child = atoi(strstr(text, "child ") + strlen("child "));
    CHECK(child > 1 && kill(child, SIGUSR1) == 0);
    wait_for_profiles(0, 1);
    CHECK_EQUAL(end(&program), 0);
    CHECK_EQUAL(profiles_count(0), 3); /* two exits */
    CHECK(unlink(profile) == 0);
}

static void test_own_handler(void)
{
    struct again program = start_profiling("own", "12", profile);
    CHECK(kill(program.process, SIGUSR2) == 0);
    CHECK_EQUAL(end(&program), 3);
    CHECK_EQUAL(take(profile, "{\"hakmem_profile\": "), 1);
}

static void test_complaint(const char *file, const char *number, const char *words)
{
    char text[1000] = "";
    struct again program = start_profiling("sleep", number, file);
    CHECK(read(program.ends[2], text, sizeof text - 1) > 0);
    if (strstr(text, words) == NULL) {
        dprintf(2, "no '%s' in: %s\n", words, text);
        FAIL("complaint");
    }
    CHECK_EQUAL(end(&program), 0);
    (void)unlink(profile);
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1) {
        return serve(argv[1]);
    }
    CHECK(mkdtemp(directory) != NULL);
    snprintf(report, sizeof report, "%s/report", directory);
    snprintf(profile, sizeof profile, "%s/profile", directory);
    snprintf(map, sizeof map, "%s/map", directory);
    test_each_signal();
    test_all_documents();
    test_busy_programs();
    test_each_signal_is_a_profile("sleep", 3);
    test_each_signal_is_a_profile("forks", 20);
    test_child();
    test_own_handler();
    test_complaint(NULL, "12", "does nothing: HAKMEM_PROFILE_FILE is not set");
    test_complaint(profile, "9", "must be the number of a signal that programs are free to use");
    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    test_complaint(profile, "12", "does nothing: the signal is ignored");
    CHECK(rmdir(directory) == 0);
    return 0;
}
