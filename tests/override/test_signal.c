/* SPDX-License-Identifier: MIT */
/* test_signal.c: free and malloc in signal handlers of threads that are not inside the allocator,
 * while others are; on alternate stacks; and errno is not touched by the handler's free. (A handler
 * that interrupts the allocator may not call it, with glibc or any other.) */
#include "override.h"

#include <stdatomic.h>

enum { THREADS_COUNT = 4, SIGNALS_COUNT = 4000, BLOCKS_COUNT = 64 };

static _Atomic(void *) blocks[BLOCKS_COUNT]; /* made by threads, freed by the handler */
static atomic_bool threads_stop;
static atomic_size_t handled_count;
static atomic_size_t freed_count;

static void handle(int number)
{
    errno = 7777;
    void *block = atomic_exchange(&blocks[handled_count % BLOCKS_COUNT], NULL);
    freed_count += block != NULL;
    give_back(block);
    CHECK_EQUAL(errno, 7777);
    void *made = get_memory(handled_count % 3000);
    void *large = get_memory(handled_count % 100 == 0 ? 3000000 : 40000);
    CHECK(made != NULL && large != NULL);
    give_back(made);
    give_back(large);
    handled_count++;
}

static void block_signals(void)
{
    sigset_t set;
    sigfillset(&set);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void *run_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    block_signals();
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

/* Sends to the main thread, which waits in a loop that does not allocate. */
static atomic_bool sender_done;

static void *run_sender(void *argument)
{
    block_signals();
    for (size_t i = 0; i < SIGNALS_COUNT; i++) {
        CHECK(pthread_kill(*(pthread_t *)argument, i % 2 == 0 ? SIGUSR1 : SIGUSR2) == 0);
        while (handled_count == i) {
            sched_yield();
        }
    }
    sender_done = true;
    return NULL;
}

/* A thread whose first call of the allocator ever is in a handler. */
static void *run_fresh(void *argument)
{
    CHECK(raise(SIGUSR1) == 0);
    return argument;
}

int main(void)
{
    static unsigned char alternate[64 << 10];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = handle};
    pthread_t threads[THREADS_COUNT], sender, main_thread = pthread_self();
    prove_served();
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_flags = SA_ONSTACK;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    start_all(threads, THREADS_COUNT, run_thread, NULL);
    CHECK(pthread_create(&sender, NULL, run_sender, &main_thread) == 0);
    while (!sender_done) {
        sched_yield();
    }
    CHECK(pthread_join(sender, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        pthread_t fresh;
        CHECK(pthread_create(&fresh, NULL, run_fresh, NULL) == 0);
        CHECK(pthread_join(fresh, NULL) == 0);
    }
    CHECK_EQUAL(handled_count, SIGNALS_COUNT + 50);
    CHECK(freed_count > 0);
    threads_stop = true;
    join_all(threads, THREADS_COUNT);
    return 0;
}
