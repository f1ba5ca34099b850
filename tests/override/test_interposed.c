/* test_interposed.c: beside a library whose clock_gettime, getpid, sysinfo and write allocate
 * (libfaketime's do), preloaded before and after hakmem: the allocator calls none of them, since it
 * would be called again in the middle of its own work. */
#include "override.h"

#include <pthread.h>

static void *run_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    void *kept[50] = {NULL};
    for (int i = 0; i < 20000; i++) {
        uint64_t number = random_next(&state);
        void **place = &kept[number % 50];
        give_back(*place);
        *place = get_memory(number % 1000 == 0 ? number % 5000000 : number % 20000);
        CHECK(*place != NULL);
    }
    for (int i = 0; i < 50; i++) {
        give_back(kept[i]);
    }
    return NULL;
}

static void run(void)
{
    int (*calls)(void) = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "plugin_interposed_calls");
    CHECK(calls != NULL);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)i) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_EQUAL(calls(), 0);
    CHECK(getpid() > 0); /* it is in front */
    CHECK_EQUAL(calls(), 1);
}

static void run_self(const char *self, const char *first, const char *second)
{
    char preload[3 * TEST_PATH_SIZE];
    snprintf(preload, sizeof preload, "%s:%s", first, second);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv("LD_PRELOAD", preload, 1) == 0);
        execl(self, self, "run", (char *)NULL);
        _exit(126);
    }
    wait_for_success(child, preload);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        alarm(50);
        prove_served();
        run();
        return 0;
    }
    enum served served = prove_served();
    char self[TEST_PATH_SIZE];
    char plugin[TEST_PATH_SIZE];
    own_path(self);
    plugin_path("interposed", plugin);
    const char *library = served == SERVED_BY_PRELOAD ? preloaded_library_path() : "";
    run_self(self, library, plugin);
    run_self(self, plugin, library);
    return 0;
}
