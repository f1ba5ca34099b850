/* SPDX-License-Identifier: MIT */
/* test_signal.c: free and malloc in signal handlers of threads that are not inside the allocator,
 * while others are; on alternate stacks; and errno is not touched by the handler's free. (A handler
 * that interrupts the allocator may not call it, with glibc or any other.) */
#include "override.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

enum { THREADS_COUNT = 4, SIGNALS_COUNT = 2000, BLOCKS_COUNT = 64 };

static _Atomic(void *) blocks[BLOCKS_COUNT]; /* made by threads, freed by the handler */
static atomic_bool threads_stop;
static atomic_size_t handled_count;
static atomic_size_t freed_count;

static void handle(int number)
{
    (void)number;
    errno = 7777;
    size_t index = handled_count % BLOCKS_COUNT;
    void *block = atomic_exchange(&blocks[index], NULL);
    if (block != NULL) {
        give_back(block);
        freed_count++;
    }
    give_back(NULL);
    CHECK_EQUAL(errno, 7777);
    void *made = get_memory(handled_count % 3000);
    CHECK(made != NULL);
    void *large = get_memory(handled_count % 100 == 0 ? 3000000 : 40000);
    CHECK(large != NULL);
    give_back(made);
    give_back(large);
    handled_count++;
}

static void *run_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    sigset_t set;
    sigfillset(&set);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    while (!threads_stop) {
        uint64_t number = random_next(&state);
        void *made = get_memory((number >> 8) % 5000);
        CHECK(made != NULL);
        give_back(atomic_exchange(&blocks[number % BLOCKS_COUNT], made));
        if (number % 32 == 0) {
            sched_yield(); /* fewer processors than threads: let the handler have one */
        }
    }
    return NULL;
}

static void send_signals(pthread_t target, int number)
{
    for (size_t i = 0; i < SIGNALS_COUNT; i++) {
        size_t before = handled_count;
        CHECK(pthread_kill(target, number) == 0);
        while (handled_count == before) {
            sched_yield();
        }
    }
}

/* Sends to the main thread, which waits in a loop that does not allocate. */
static atomic_bool sender_done;

static void *run_sender(void *argument)
{
    sigset_t set;
    sigfillset(&set);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    send_signals(*(pthread_t *)argument, SIGUSR1);
    send_signals(*(pthread_t *)argument, SIGUSR2);
    sender_done = true;
    return NULL;
}

/* A thread whose first call of the allocator ever is in a handler. */
static void *run_fresh(void *argument)
{
    (void)argument;
    size_t before = handled_count;
    CHECK(raise(SIGUSR1) == 0);
    CHECK_EQUAL(handled_count, before + 1);
    return NULL;
}

int main(void)
{
    prove_served();
    static unsigned char alternate[64 << 10];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_flags = SA_ONSTACK;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);

    pthread_t threads[THREADS_COUNT];
    for (uintptr_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)i) == 0);
    }
    pthread_t main_thread = pthread_self();
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, run_sender, &main_thread) == 0);
    while (!sender_done) {
        sched_yield();
    }
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK_EQUAL(handled_count, 2 * SIGNALS_COUNT);
    CHECK(freed_count > 0);
    for (int i = 0; i < 50; i++) {
        pthread_t fresh;
        CHECK(pthread_create(&fresh, NULL, run_fresh, NULL) == 0);
        CHECK(pthread_join(fresh, NULL) == 0);
    }
    threads_stop = true;
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        give_back(blocks[i]);
    }
    return 0;
}
