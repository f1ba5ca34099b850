/* SPDX-License-Identifier: MIT */
/* test_interposed.c: beside a library whose clock_gettime, getpid, sysinfo and write allocate
 * (libfaketime's do), preloaded before and after hakmem: the allocator calls none of them, since it
 * would be called again in the middle of its own work.
 *
 * ctest: no-qemu
 */
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

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        alarm(240);
        prove_served();
        run();
        return 0;
    }
    run_self_beside_plugin("interposed", "run");
    return 0;
}
