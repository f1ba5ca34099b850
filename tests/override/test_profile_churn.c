/* SPDX-License-Identifier: MIT */
/* test_profile_churn.c: forks, dlopens and thread ends while two threads allocate and one starts
 * and stops the profiler: nothing hangs, and each child still allocates, samples and writes a
 * profile. The first argument is the number of rounds, each with one of them all.
 *
 * ctest: preload-only no-qemu
 */
#include "override.h"

#include <hakmem/profile.h>
#include <pthread.h>

enum { ROUNDS_COUNT = 40, WORKERS_COUNT = 2 };

static __typeof__(hak_profile_start) *profile_start;
static __typeof__(hak_profile_stop) *profile_stop;
static __typeof__(hak_profile_write) *profile_write;
static int shared_stop;

static bool stopped(void)
{
    return __atomic_load_n(&shared_stop, __ATOMIC_RELAXED) != 0;
}

static void *allocate(void *argument)
{
    uint64_t random = (uintptr_t)argument + 1;
    void *blocks[64] = {NULL};
    while (!stopped()) {
        size_t i = random_next(&random) % 64;
        give_back(blocks[i]);
        blocks[i] = get_memory(random_next(&random) % 20000);
    }
    for (size_t i = 0; i < 64; i++) {
        give_back(blocks[i]);
    }
    return NULL;
}

static void *start_and_stop(void *argument)
{
    for (size_t i = 0; !stopped(); i++) {
        CHECK(profile_start(i % 3 == 0 ? 100 : 10000) == 0);
        usleep(200);
        if (i % 2 == 0) {
            profile_stop();
        }
    }
    return argument;
}

static void *live_shortly(void *argument)
{
    for (size_t i = 0; i < 100; i++) {
        give_back(get_memory(i * 100));
    }
    return argument;
}

static void add_size(void *argument, const char *text, size_t size)
{
    (void)text;
    *(size_t *)argument += size;
}

static void check_profile(void)
{
    size_t size = 0;
    profile_write(add_size, &size);
    CHECK(size > 100);
}

static void run_child(void)
{
    alarm(300); /* a child that hangs ends, and the test fails */
    CHECK(profile_start(100) == 0);
    live_shortly(NULL);
    check_profile();
    _exit(0);
}

static void run_round(const char *plugin)
{
    pthread_t thread;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_child();
    }
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    CHECK(pthread_create(&thread, NULL, live_shortly, NULL) == 0);
    CHECK(dlclose(library) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    wait_for_success(child, "child");
}

static void *find(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    CHECK(found != NULL);
    return found;
}

int main(int argc, char **argv)
{
    char plugin[TEST_PATH_SIZE];
    pthread_t workers[WORKERS_COUNT + 1];
    prove_preloaded();
    plugin_path("tls", plugin);
    *(void **)&profile_start = find("hak_profile_start");
    *(void **)&profile_stop = find("hak_profile_stop");
    *(void **)&profile_write = find("hak_profile_write");
    for (size_t i = 0; i <= WORKERS_COUNT; i++) {
        CHECK(pthread_create(&workers[i], NULL, i == 0 ? start_and_stop : allocate, (void *)i) ==
              0);
    }
    size_t rounds = count_from_argument(argc, argv, ROUNDS_COUNT);
    for (size_t round = 0; round < rounds; round++) {
        run_round(plugin);
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i <= WORKERS_COUNT; i++) {
        CHECK(pthread_join(workers[i], NULL) == 0);
    }
    check_profile();
    return 0;
}
