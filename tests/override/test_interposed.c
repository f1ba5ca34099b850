/* SPDX-License-Identifier: MIT */
/* test_interposed.c: a library that puts its own functions before the C library's gets each call of
 * the program once, whether the loader finds it before hakmem or after it. Functions that hakmem
 * has, too, call the next one of their name. Its madvise, mmap and munmap, which hakmem calls, may
 * allocate.
 *
 * ctest: secure-too no-qemu
 */
#include "override.h"

#include <malloc.h>
#include <sys/prctl.h>

enum { STATUS = 40 };

static size_t (*count_of)(const char *name);

static void call_prctl(void)
{
    char name[16] = "";
    CHECK(prctl(PR_GET_NAME, name, 0, 0, 0) == 0 && name[0] != '\0');
}

static void call_dlopen(void)
{
    CHECK(dlopen(NULL, RTLD_NOW) != NULL);
}

static const struct call {
    const char *name;
    void (*make)(void);
} calls[] = {{"prctl", call_prctl}, {"dlopen", call_dlopen}};

static void check_end(void (*end)(int), int expected)
{
    pid_t child = fork();
    int status;
    CHECK(child >= 0);
    if (child == 0) {
        end(STATUS);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), expected);
}

/* Frees blocks of all kinds, and has their pages go back. */
static void purge(void)
{
    static const size_t sizes[] = {1000, 100000, 3000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *blocks[64];
        for (size_t j = 0; j < COUNT_OF(blocks); j++) {
            blocks[j] = get_memory(sizes[i]);
            CHECK(blocks[j] != NULL);
            memset(blocks[j], 1, sizes[i]);
        }
        for (size_t j = 0; j < COUNT_OF(blocks); j++) {
            give_back(blocks[j]);
        }
        malloc_trim(0);
    }
}

/* Fills bins, returns their objects, and maps and unmaps beside other threads. */
static void *churn(void *argument)
{
    static const int steps = 20000;
    uint32_t random = (uint32_t)(uintptr_t)argument;
    void *blocks[200] = {NULL};
    for (int i = 0; i < steps; i++) {
        random = random * 1103515245u + 12345u;
        void **block = &blocks[(random >> 16) % COUNT_OF(blocks)];
        size_t size = (random >> 8) % (i % 100 == 0 ? 8000000 : 40000);
        give_back(*block);
        *block = get_memory(size);
        CHECK(*block != NULL);
        memset(*block, 1, size < 100 ? size : 100);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        give_back(blocks[i]);
    }
    return NULL;
}

static void churn_in_threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i * 77 + 1)) == 0);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void run(void)
{
    prove_served();
    count_of = (size_t(*)(const char *))find_in(RTLD_DEFAULT, "plugin_interposed_count");
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        size_t before = count_of(calls[i].name);
        calls[i].make();
        if (count_of(calls[i].name) != before + 1) {
            dprintf(2, "calls of %s: %zu\n", calls[i].name, count_of(calls[i].name) - before);
            exit(2);
        }
    }
    check_end(_exit, STATUS + 1);
    check_end(_Exit, STATUS + 10);
    alarm(60);
    int *allocates = (int *)find_in(RTLD_DEFAULT, "plugin_interposed_allocates");
    *allocates = 100;
    purge();
    *allocates = 3;
    for (int i = 0; i < 2; i++) {
        churn_in_threads();
    }
    alarm(0);
    exit(0);
}

int main(int argc, char **arguments)
{
    char plugin[TEST_PATH_SIZE], before[2 * TEST_PATH_SIZE], after[2 * TEST_PATH_SIZE];
    if (argc > 1) {
        run();
    }
    const char *hakmem = prove_served() == SERVED_BY_PRELOAD ? preloaded_library_path() : "";
    plugin_path("interposed", plugin);
    snprintf(before, sizeof before, "%s:%s", plugin, hakmem);
    snprintf(after, sizeof after, "%s:%s", hakmem, plugin);
    run_again("before", (const char *const[]){"LD_PRELOAD", before, NULL});
    run_again("after", (const char *const[]){"LD_PRELOAD", after, NULL});
    return arguments == NULL;
}
