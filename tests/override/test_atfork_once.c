/* SPDX-License-Identifier: MIT */
/* test_atfork_once.c: fork handlers are registered once a process, however many threads and heaps
 * there are: one registration for each heap overflowed the C library's table (Bun). This program's
 * own __register_atfork, which pthread_atfork calls, counts them. */
#include "override.h"

#include <pthread.h>

enum { THREADS_COUNT = 64, GENERATIONS_COUNT = 5 };

typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);

register_function __register_atfork;

static int registered_count;

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *object)
{
    register_function *real = (register_function *)(uintptr_t)dlsym(RTLD_NEXT, "__register_atfork");
    CHECK(real != NULL);
    registered_count++;
    return real(prepare, parent, child, object);
}

static void *run_thread(void *argument)
{
    pthread_barrier_t *together = argument;
    void *block = get_memory(1000);
    CHECK(block != NULL);
    pthread_barrier_wait(together); /* all are alive at once: as many heaps as there can be */
    give_back(block);
    give_back(get_memory(3000000));
    return NULL;
}

int main(void)
{
    prove_served();
    CHECK_EQUAL(registered_count, any_server_will_do() ? registered_count : 1);
    int before = registered_count;
    for (int generation = 0; generation < GENERATIONS_COUNT; generation++) {
        pthread_t threads[THREADS_COUNT];
        pthread_barrier_t together;
        CHECK(pthread_barrier_init(&together, NULL, THREADS_COUNT) == 0);
        for (size_t i = 0; i < THREADS_COUNT; i++) {
            CHECK(pthread_create(&threads[i], NULL, run_thread, &together) == 0);
        }
        for (size_t i = 0; i < THREADS_COUNT; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            give_back(get_memory(100));
            CHECK_EQUAL(registered_count, before);
            _exit(0);
        }
        wait_for_success(child, "child");
    }
    CHECK_EQUAL(registered_count, before);
    return 0;
}
