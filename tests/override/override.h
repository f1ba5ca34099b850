/* SPDX-License-Identifier: MIT */
/* override.h: what the tests of the drop-in share: CHECK, proof that hakmem serves the process,
 * helper libraries, children.
 *
 * The tests use plain malloc and new. The same program runs in two forms: under
 * LD_PRELOAD=libhakmem.so, or linked with libhakmem.a. Without either, prove_served() ends the
 * test, so that no test ever passes on another allocator.
 * No test variable starts with HAKMEM_: those are the library's, and it reports unknown ones.
 *
 * Exit status: 0 passed, 1 failed, 77 does not apply to this form.
 */
#ifndef TESTS_OVERRIDE_H
#define TESTS_OVERRIDE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEST_SKIPPED 77
#define TEST_PATH_SIZE 4096

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, 0, 0, false))
#define FAIL(text) check_failed(__FILE__, __LINE__, text, 0, 0, false)
#define CHECK_EQUAL(left, right)                                                                   \
    check_equal(__FILE__, __LINE__, #left " == " #right, (long long)(left), (long long)(right))

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline void check_failed(const char *file, int line, const char *text, long long left,
                                long long right, bool with_values)
{
    /* dprintf to the descriptor: stdio of a forked child holds the parent's buffers. */
    if (with_values) {
        dprintf(2, "%s:%d: FAILED (pid %d): %s: %lld, %lld\n", file, line, (int)getpid(), text,
                left, right);
    } else {
        dprintf(2, "%s:%d: FAILED (pid %d): %s (errno %d)\n", file, line, (int)getpid(), text,
                errno);
    }
    _exit(1);
}

static inline void check_equal(const char *file, int line, const char *text, long long left,
                               long long right)
{
    if (left != right) {
        check_failed(file, line, text, left, right, true);
    }
}

/* Values the optimiser cannot see through: it removes malloc/free pairs and warns about sizes. */
static inline size_t opaque_size(size_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}

static inline void *opaque_pointer(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

static inline void *get_memory(size_t size)
{
    return opaque_pointer(malloc(opaque_size(size)));
}

static inline void give_back(void *pointer)
{
    free(opaque_pointer(pointer));
}

/* xorshift64*: each caller owns its state, never 0. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* --- who serves ---------------------------------------------------------------------------- */

#if defined(__cplusplus)
extern "C"
#else
extern
#endif
    const char *
    hak_version(void) __THROW __attribute__((weak)); /* only there when linked */

enum served { SERVED_BY_OTHER, SERVED_BY_PRELOAD, SERVED_BY_LINK };

/* Path of the object that defines `address`, "" when unknown. */
static inline const char *owner_of_address(const void *address)
{
    Dl_info info;
    bool found = address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL;
    return found ? info.dli_fname : "";
}

static inline bool is_hakmem_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash != NULL ? slash + 1 : path, "libhakmem", 9) == 0;
}

/* Path of the preloaded libhakmem.so, NULL when there is none. */
static inline const char *preloaded_library_path(void)
{
    const char *path = owner_of_address(dlsym(RTLD_DEFAULT, "hak_version"));
    return is_hakmem_path(path) ? path : NULL;
}

static inline enum served find_server(void)
{
    const char *of_malloc = owner_of_address(dlsym(RTLD_DEFAULT, "malloc"));
    if (is_hakmem_path(of_malloc)) {
        return SERVED_BY_PRELOAD;
    }
    /* Linked: malloc and hak_version are both the program's own. */
    if (hak_version != NULL && preloaded_library_path() == NULL &&
        strcmp(of_malloc, owner_of_address((const void *)(uintptr_t)hak_version)) == 0) {
        return SERVED_BY_LINK;
    }
    return SERVED_BY_OTHER;
}

/* Every test calls this first. */
static inline enum served prove_served(void)
{
    enum served served = find_server();
    if (served == SERVED_BY_OTHER) {
        dprintf(2, "hakmem does not serve this process: malloc belongs to %s\n",
                owner_of_address(dlsym(RTLD_DEFAULT, "malloc")));
        _exit(1);
    }
    return served;
}

/* For tests that make sense under LD_PRELOAD only: ends the linked form with TEST_SKIPPED. */
static inline void prove_preloaded(void)
{
    if (prove_served() == SERVED_BY_LINK) {
        dprintf(2, "skipped: this test is about LD_PRELOAD\n");
        _exit(TEST_SKIPPED);
    }
}

/* True: the preloaded library is the secure form. */
static inline bool is_secure(void)
{
    const char *path = preloaded_library_path();
#ifdef HAK_SECURE /* every library of the preset, also a static one */
    return true;
#endif
    return path != NULL && strstr(path, "secure") != NULL;
}

/* --- children and neighbours --------------------------------------------------------------- */

static inline void own_path(char path[TEST_PATH_SIZE])
{
    ssize_t length = readlink("/proc/self/exe", path, TEST_PATH_SIZE - 1);
    CHECK(length > 0);
    path[length] = '\0';
}

/* The helper library plugin_<name>.so, built beside the test. */
static inline void plugin_path(const char *name, char path[TEST_PATH_SIZE])
{
    char folder[TEST_PATH_SIZE];
    own_path(folder);
    *strrchr(folder, '/') = '\0';
    int length = snprintf(path, TEST_PATH_SIZE, "%s/plugin_%s.so", folder, name);
    CHECK(length > 0 && length < TEST_PATH_SIZE && access(path, R_OK) == 0);
}

/* What dlopen or dlmopen returned, which must not have failed. */
static inline void *loaded(void *library)
{
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
        _exit(1);
    }
    return library;
}

/* The address of a name that must be there. */
static inline uintptr_t find_in(void *library, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return (uintptr_t)found;
}

/* Waits for `child`; its status as waitpid gives it. */
static inline int status_of(pid_t child)
{
    int status = 0;
    pid_t ended;
    do {
        ended = waitpid(child, &status, 0);
    } while (ended < 0 && errno == EINTR);
    CHECK_EQUAL(ended, child);
    return status;
}

/* Waits for `child`, which exits; its exit status. */
static inline int exit_status_of(pid_t child)
{
    int status = status_of(child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Waits for `child`; it must end with exit status 0. */
static inline void wait_for_success(pid_t child, const char *what)
{
    int status = status_of(child);
    if (WIFSIGNALED(status)) {
        dprintf(2, "%s: killed by signal %d%s\n", what, WTERMSIG(status),
                WTERMSIG(status) == 14 ? " (its alarm: it hung)" : "");
        _exit(1);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        dprintf(2, "%s: exit status %d\n", what, WEXITSTATUS(status));
        _exit(1);
    }
}

static inline bool in_child(pid_t *child, const char *what)
{
    if (*child == 0) {
        _exit(0);
    }
    *child = fork();
    CHECK(*child >= 0);
    if (*child != 0) {
        wait_for_success(*child, what);
    }
    return *child == 0;
}

/* IN_CHILD("who") { ... }: in fork's child, which must end well. */
#define IN_CHILD(what) for (pid_t child_ = -1; in_child(&child_, (what));)

/* All that is left in the file, as a string; closes it. */
static inline size_t read_to_end(int file, char *text, size_t size)
{
    size_t length = 0;
    ssize_t got;
    while ((got = read(file, text + length, size - 1 - length)) > 0) {
        length += (size_t)got;
    }
    CHECK(got == 0 && length < size - 1);
    text[length] = '\0';
    close(file);
    return length;
}

/* The whole file, which is there, as a string. */
static inline size_t read_file(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    return read_to_end(file, text, size);
}

/* A "Key:  number kB" line of a file in /proc/self, in bytes, without allocating. */
static inline size_t proc_bytes(const char *path, const char *key)
{
    char text[8192];
    read_file(path, text, sizeof text);
    const char *line = strstr(text, key);
    return line == NULL ? 0 : strtoul(line + strlen(key), NULL, 10) << 10;
}

static inline size_t resident_bytes(void)
{
    return proc_bytes("/proc/self/smaps_rollup", "\nRss:");
}

static inline int threads_count(pid_t process)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        count += task->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

/* `argument`: of each, or NULL for its number. */
static inline void start_all(pthread_t *threads, size_t count, void *(*body)(void *),
                             void *argument)
{
    for (uintptr_t i = 0; i < count; i++) {
        CHECK(pthread_create(&threads[i], NULL, body, argument != NULL ? argument : (void *)i) ==
              0);
    }
}

static inline void join_all(const pthread_t *threads, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* This program, run anew. Its standard input, output and error are pipes where they were asked for;
 * the other ends are here, -1 else. */
struct again {
    pid_t process;
    int ends[3];
};

enum { AGAIN_INPUT = 1, AGAIN_OUTPUT = 2, AGAIN_ERRORS = 4 };

/* `variables`: names and values by turns, up to NULL; the value PID is the new process's number. */
static inline struct again start_again(const char *argument, int pipes,
                                       const char *const *variables)
{
    char path[TEST_PATH_SIZE];
    int ends[3][2];
    own_path(path);
    for (int i = 0; i < 3; i++) {
        CHECK((pipes >> i & 1) == 0 || pipe2(ends[i], O_CLOEXEC) == 0);
    }
    struct again again = {fork(), {-1, -1, -1}};
    CHECK(again.process >= 0);
    if (again.process == 0) {
        for (; *variables != NULL; variables += 2) {
            char number[24];
            snprintf(number, sizeof number, "%d", (int)getpid());
            bool own = strcmp(variables[1], "PID") == 0;
            CHECK(setenv(variables[0], own ? number : variables[1], 1) == 0);
        }
        for (int i = 0; i < 3; i++) {
            CHECK((pipes >> i & 1) == 0 || dup2(ends[i][i != 0], i) == i);
        }
        execl(path, path, argument, (char *)NULL);
        _exit(126);
    }
    for (int i = 0; i < 3; i++) {
        if ((pipes >> i & 1) != 0) {
            close(ends[i][i != 0]);
            again.ends[i] = ends[i][i == 0];
        }
    }
    return again;
}

/* Waits until it says that it is ready, by a byte. */
static inline void await_byte(const struct again *again)
{
    char byte;
    CHECK(read(again->ends[1], &byte, 1) == 1);
}

static inline void close_ends(const struct again *again)
{
    for (int i = 0; i < 3; i++) {
        if (again->ends[i] >= 0) {
            close(again->ends[i]);
        }
    }
}

static inline size_t count_words(const char *text, const char *words)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++) {
        count++;
    }
    return count;
}

static inline void run_again(const char *argument, const char *const *variables)
{
    wait_for_success(start_again(argument, 0, variables).process, argument);
}

/* Runs this program again with `argument`, twice: with plugin_<name>.so preloaded behind hakmem and
 * before it. */
static inline void run_self_beside_plugin(const char *name, const char *argument)
{
    char plugin[TEST_PATH_SIZE], preload[2 * TEST_PATH_SIZE];
    plugin_path(name, plugin);
    const char *library = prove_served() == SERVED_BY_PRELOAD ? preloaded_library_path() : "";
    for (int i = 0; i < 2; i++) {
        const char *const variables[] = {"LD_PRELOAD", preload, NULL};
        snprintf(preload, sizeof preload, "%s:%s", i == 0 ? library : plugin,
                 i == 0 ? plugin : library);
        run_again(argument, variables);
    }
}

#endif
