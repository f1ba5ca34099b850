/* SPDX-License-Identifier: MIT */
/* test_spawn.c: short processes by every road while threads allocate: posix_spawn, vfork, system,
 * popen, fork and exec. Each starts and ends on hakmem in silence. The argument is the number of
 * processes of the first kind (default 200).
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>

extern char **environ;

enum { THREADS_COUNT = 4 };

static atomic_bool threads_stop;
static char *const true_arguments[] = {(char *)(uintptr_t) "true", NULL};

static void *run_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    void *slots[128] = {0};
    while (!threads_stop) {
        uint64_t number = random_next(&state);
        give_back(slots[number % 128]);
        slots[number % 128] =
            get_memory((number >> 8) % ((number >> 40) % 50 == 0 ? 2000000 : 4000));
    }
    for (size_t i = 0; i < 128; i++) {
        give_back(slots[i]);
    }
    return NULL;
}

/* Standard error of `true` goes to `channel`. */
static void spawn_true(size_t count, int channel)
{
    for (size_t i = 0; i < count; i++) {
        posix_spawn_file_actions_t actions;
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, channel, 2) == 0);
        for (int j = 20; j < 60; j++) { /* the list grows by realloc */
            CHECK(posix_spawn_file_actions_adddup2(&actions, 0, j) == 0);
        }
        pid_t child;
        CHECK(posix_spawnp(&child, "true", &actions, NULL, true_arguments, environ) == 0);
        wait_for_success(child, "posix_spawn of true");
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    }
}

/* Of its own: nothing of the caller's may live in registers across vfork. */
static __attribute__((noinline)) pid_t vfork_one(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execvp("true", true_arguments);
        _exit(126);
    }
    return child;
}

static void vfork_true(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *block = get_memory(i * 100); /* vfork's child shares the heap */
        pid_t child = vfork_one();
        CHECK(child >= 0);
        wait_for_success(child, "vfork of true");
        give_back(block);
    }
}

static void fork_true(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            void *block = get_memory(100000);
            CHECK(block != NULL);
            execvp("true", true_arguments);
            _exit(126);
        }
        wait_for_success(child, "fork and exec of true");
    }
}

static void use_shell(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_EQUAL(system("exit 0"), 0);
        FILE *stream = popen("echo one; echo two", "r");
        CHECK(stream != NULL);
        char *line = NULL;
        size_t size = 0;
        CHECK_EQUAL(getline(&line, &size, stream), 4);
        CHECK(strcmp(line, "one\n") == 0);
        CHECK_EQUAL(getline(&line, &size, stream), 4);
        CHECK(getline(&line, &size, stream) == -1);
        give_back(line);
        CHECK_EQUAL(pclose(stream), 0);
    }
}

int main(int argc, char **argv)
{
    prove_served();
    size_t count = count_from_argument(argc, argv, 200);
    pthread_t threads[THREADS_COUNT];
    for (uintptr_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)i) == 0);
    }
    FILE *errors = tmpfile();
    CHECK(errors != NULL);
    spawn_true(count, fileno(errors));
    vfork_true(count / 2);
    fork_true(count / 2);
    use_shell(count / 10);
    CHECK(fseek(errors, 0, SEEK_END) == 0);
    CHECK_EQUAL(ftell(errors), 0); /* nothing was printed */
    CHECK_EQUAL(fclose(errors), 0);
    threads_stop = true;
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    return 0;
}
