/* SPDX-License-Identifier: MIT */
/* watched.h: what tests that fork beside busy threads share: the threads, signal handlers that
 * fork, and children under a watchdog. HANG_SECONDS without progress end a test. Then gdb, if it is
 * there, writes the stacks of all threads of the processes that hang to standard error.
 */
#ifndef TESTS_OVERRIDE_WATCHED_H
#define TESTS_OVERRIDE_WATCHED_H

#include "override.h"

#include <poll.h>
#include <stdatomic.h>

enum { HANG_SECONDS = 60 };
/* A child that hangs outlives the watchdog's patience, so that its stacks are seen. It ends by
 * itself if the watchdog was killed. */
enum { CHILD_SECONDS = 4 * HANG_SECONDS };

typedef void beside(uint64_t *state);

/* What two threads do, again and again, while the process forks. */
struct kind {
    const char *name;
    beside *beside[2];
    bool handlers; /* the threads' signal handlers fork */
};

/* --- threads and handlers --- */

static atomic_bool stop;
static char plugin[TEST_PATH_SIZE];

static inline void load_plugin(uint64_t *state)
{
    void *library = loaded(dlopen(plugin, RTLD_NOW));
    CHECK(*((char *(*)(void))find_in(library, "plugin_fork_touch"))() != 0);
    CHECK(dlclose(library) == 0);
    dlsym(RTLD_DEFAULT, "there_is_no_such_name");
    dlerror();
}

static inline void *run_beside(void *argument)
{
    beside *body = *(beside *const *)argument;
    uint64_t state = (uintptr_t)body | 1;
    while (!stop) {
        body(&state);
        sched_yield();
    }
    return NULL;
}

static inline void start_beside(const struct kind *kind, pthread_t threads[2])
{
    for (size_t i = 0; i < 2; i++) {
        void *argument = (void *)(uintptr_t)&kind->beside[i];
        CHECK(pthread_create(&threads[i], NULL, run_beside, argument) == 0);
    }
}

static inline void stop_beside(const pthread_t *threads, size_t count)
{
    stop = true;
    join_all(threads, count);
}

static atomic_size_t handled_count;

/* The handler may have interrupted malloc: the child only allocates a little, which no bin has. */
static inline void fork_in_handler(int number)
{
    static const size_t sizes[] = {100000, 170000, 500000, 3000000};
    int saved = errno, status;
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            unsigned char *block = get_memory(sizes[i]);
            if (block == NULL) {
                _exit(1);
            }
            block[sizes[i] - 1] = 1;
            give_back(block);
        }
        _exit(0);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    handled_count++;
    errno = saved;
}

/* --- the watchdog --- */

/* Runs `kind` in a child with so many forks; the child notes its progress. */
typedef void watched_body(const struct kind *kind, size_t count, int progress);

static inline void note_progress(int progress)
{
    CHECK(write(progress, "", 1) == 1);
}

/* Writes the stacks of `worker` and its descendants to standard error, and kills its children. gdb
 * runs without the environment, which would preload hakmem. */
static inline void show_stacks(pid_t worker)
{
    char command[1000];
    snprintf(command, sizeof command,
             "show() { local child; grep -H State /proc/$1/status; gdb -q -batch -p $1 "
             "-ex 'info threads' -ex 'thread apply all bt' 2>&1; for child in "
             "$(cat /proc/$1/task/*/children); do show $child; kill -9 $child; done; }; "
             "show %d 1>&2",
             (int)worker);
    char shell[] = "sh", option[] = "-c", path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    char *const arguments[] = {shell, option, command, NULL}, *const environment[] = {path, NULL};
    pid_t child = fork();
    if (child == 0) {
        execve("/bin/sh", arguments, environment);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

static inline void watch(const struct kind *kind, watched_body *body, size_t count)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t worker = fork();
    CHECK(worker >= 0);
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        body(kind, count, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    struct pollfd wanted = {ends[0], POLLIN, 0};
    char signs[256];
    do {
        if (poll(&wanted, 1, HANG_SECONDS * 1000) == 0) {
            dprintf(2, "fork beside %s hangs\n", kind->name);
            show_stacks(worker);
            kill(worker, SIGKILL);
        }
    } while (read(ends[0], signs, sizeof signs) > 0);
    close(ends[0]);
    wait_for_success(worker, kind->name);
}

/* The arguments: [--forks N] [KIND]. A process forks `most` times, then a new one goes on. */
static inline void watch_all(int argc, char **argv, const struct kind *kinds, size_t kinds_count,
                             watched_body *body, size_t forks, size_t most)
{
    int next = 1;
    if (next + 1 < argc && strcmp(argv[next], "--forks") == 0) {
        forks = strtoul(argv[next + 1], NULL, 10);
        next += 2;
    }
    plugin_path("fork", plugin);
    for (size_t i = 0; i < kinds_count; i++) {
        bool wanted = next == argc || strcmp(kinds[i].name, argv[next]) == 0;
        for (size_t left = wanted ? forks : 0, part; left != 0; left -= part) {
            part = left < most ? left : most;
            watch(&kinds[i], body, part);
        }
    }
}

#endif
