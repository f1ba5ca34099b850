/* SPDX-License-Identifier: MIT */
/* test_profile_signal.c: HAKMEM_PROFILE_SIGNAL: each signal appends a profile to
 * HAKMEM_PROFILE_FILE, wherever it comes: in a sleep, inside malloc, beside a fork, in a forked
 * child. The program goes on, and appends one more at its exit. A handler of the program takes the
 * signal's place. Without a file, or with a signal that is ignored, hakmem says that it does
 * nothing.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

static char directory[] = "/tmp/test_profile_signal_XXXXXX";
static char profile[64]; /* in the directory */

/* --- the program under test --- */

static int shared_stop;
static int shared_own_signals;

static void *churn(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (!__atomic_load_n(&shared_stop, __ATOMIC_RELAXED)) {
        give_back(get_memory(random_next(&random) % 100000));
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
            _exit(0);
        }
        CHECK(waitpid(child, NULL, 0) == child);
    }
    return argument;
}

static void note_signal(int signal)
{
    (void)signal;
    __atomic_add_fetch(&shared_own_signals, 1, __ATOMIC_RELAXED);
}

/* Until its standard input ends. */
static void wait_for_the_end(void)
{
    char byte;
    CHECK(write(1, "r", 1) == 1);
    while (read(0, &byte, 1) != 0) {
    }
}

static int serve(const char *what)
{
    pthread_t threads[3];
    size_t count = *what == 'b' ? 3 : 0; /* "busy" */
    for (size_t i = 0; i < count; i++) {
        void *(*body)(void *) = i == 2 ? fork_often : churn;
        CHECK(pthread_create(&threads[i], NULL, body, (void *)(i + 1)) == 0);
    }
    if (strcmp(what, "child") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child != 0) {
            wait_for_success(child, "child");
            return 0;
        }
        CHECK(dprintf(2, "child %d.\n", (int)getpid()) > 0);
    }
    if (strcmp(what, "own") == 0) {
        CHECK(signal(SIGUSR2, note_signal) != SIG_ERR);
    }
    wait_for_the_end();
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    return __atomic_load_n(&shared_own_signals, __ATOMIC_RELAXED) == 0 ? 0 : 3;
}

/* --- the test --- */

static struct again start(const char *what, const char *file, const char *number)
{
    const char *const variables[] = {"HAKMEM_PROFILE_SIGNAL", number,
                                     file != NULL ? "HAKMEM_PROFILE_FILE" : NULL, file, NULL};
    struct again program = start_again(what, AGAIN_INPUT | AGAIN_OUTPUT | AGAIN_ERRORS, variables);
    await_byte(&program);
    return program;
}

/* Its input ends. */
static int end(const struct again *program)
{
    int status;
    close_ends(program);
    CHECK(waitpid(program->process, &status, 0) == program->process);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Profiles of the process in the file, or of all if it is 0; each is a whole line. Children that
 * the process forks write one at their end. */
static size_t profiles_count(pid_t process)
{
    static const char head[] = "{\"hakmem_profile\": ", id[] = "\"process\": ";
    size_t count = 0, room = 0;
    char *line = NULL;
    FILE *file = fopen(profile, "re");
    if (file == NULL) {
        return 0;
    }
    ssize_t length;
    while ((length = getline(&line, &room, file)) > 0 &&
           line[length - 1] == '\n') { /* else under way */
        CHECK(strncmp(line, head, strlen(head)) == 0 && line[length - 2] == '}');
        const char *number = strstr(line, id);
        CHECK(number != NULL);
        count += process == 0 || atoi(number + strlen(id)) == process;
    }
    give_back(line);
    CHECK(fclose(file) == 0);
    return count;
}

static void wait_for_profiles(pid_t process, size_t count)
{
    while (profiles_count(process) < count) {
        usleep(2000); /* ctest's timeout ends a test that hangs */
    }
    CHECK_EQUAL(profiles_count(process), count);
}

static void test_each_signal_is_a_profile(const char *what, size_t signals, int number)
{
    char word[16];
    snprintf(word, sizeof word, "%d", number);
    struct again program = start(what, profile, word);
    for (size_t i = 1; i <= signals; i++) {
        CHECK(kill(program.process, number) == 0);
        wait_for_profiles(program.process, i);
    }
    CHECK_EQUAL(end(&program), 0);
    CHECK_EQUAL(profiles_count(program.process), signals + 1);
    CHECK(unlink(profile) == 0);
}

static void test_child(void)
{
    char text[1000] = {
        0}; /* hakmem complains that there are no stacks, and the child says its id */
    size_t length = 0;
    struct again program = start("child", profile, "10");
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
    struct again program = start("own", profile, "12");
    CHECK(kill(program.process, SIGUSR2) == 0);
    CHECK_EQUAL(end(&program), 3);
    CHECK_EQUAL(profiles_count(0), 1);
    CHECK(unlink(profile) == 0);
}

static void test_complaint(const char *file, const char *number, const char *words)
{
    char text[1000] = {0};
    struct again program = start("sleep", file, number);
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
    snprintf(profile, sizeof profile, "%s/profile", directory);
    test_each_signal_is_a_profile("sleep", 3, SIGUSR2);
    test_each_signal_is_a_profile("busy", 20, SIGUSR1);
    test_child();
    test_own_handler();
    test_complaint(NULL, "12", "does nothing: HAKMEM_PROFILE_FILE is not set");
    test_complaint(profile, "9", "must be the number of a signal that programs are free to use");
    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    test_complaint(profile, "12", "does nothing: the signal is ignored");
    CHECK(rmdir(directory) == 0);
    return 0;
}
