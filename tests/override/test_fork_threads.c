/* SPDX-License-Identifier: MIT */
/* test_fork_threads.c: fork from a process in which 8 threads allocate: parent and child both go on
 * (jemalloc #1805, #2019, #2402). The child uses what it inherited from threads that are not there
 * any more, starts threads, forks again, ends by exec, exit or _exit. The argument is the number of
 * forks (default 200).
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS_COUNT = 8, SLOTS_COUNT = 256, SHARED_COUNT = 512, HANG_SECONDS = 240 };

/* Blocks any thread may take and free: remote frees are under way at every fork. */
static _Atomic(unsigned char *) shared_blocks[SHARED_COUNT];
static atomic_bool threads_stop;
static atomic_size_t threads_rounds[THREADS_COUNT];
static char self_path[TEST_PATH_SIZE];

static size_t random_size(uint64_t number)
{
    switch (number % 64) {
    case 0:
        return (number >> 8) % 3000000; /* whales too */
    case 1:
        return (number >> 8) % 1000000;
    case 2:
    case 3:
    case 4:
    case 5:
        return (number >> 8) % 60000;
    default:
        return (number >> 8) % 1024;
    }
}

/* The first and last bytes say how long the block is: a block handed out twice shows. */
static unsigned char *make_block(uint64_t number)
{
    size_t size = random_size(number) + 16;
    unsigned char *block = get_memory(size);
    CHECK(block != NULL);
    memcpy(block, &size, sizeof size);
    block[size - 1] = (unsigned char)(size * 7);
    return block;
}

static void check_and_free(unsigned char *block)
{
    if (block != NULL) {
        size_t size;
        memcpy(&size, block, sizeof size);
        CHECK(size >= 16 && size < 3000016);
        CHECK_EQUAL(block[size - 1], (unsigned char)(size * 7));
        give_back(block);
    }
}

static void churn(uint64_t *state, unsigned char **slots, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        uint64_t number = random_next(state);
        size_t slot = number % SLOTS_COUNT;
        if (number % 5 == 0) {
            slot = number % SHARED_COUNT;
            check_and_free(atomic_exchange(&shared_blocks[slot], make_block(number >> 16)));
        } else {
            check_and_free(slots[slot]);
            slots[slot] = number % 3 == 0 ? NULL : make_block(number >> 16);
        }
    }
}

static void free_slots(unsigned char **slots)
{
    for (size_t i = 0; i < SLOTS_COUNT; i++) {
        check_and_free(slots[i]);
    }
}

static void *run_parent_thread(void *argument)
{
    size_t index = (size_t)(uintptr_t)argument;
    unsigned char *slots[SLOTS_COUNT] = {0};
    uint64_t state = index * 7919 + 1;
    while (!threads_stop) {
        churn(&state, slots, 200);
        threads_rounds[index]++;
        sched_yield(); /* fewer processors than threads: the children's turn */
    }
    free_slots(slots);
    return NULL;
}

static void *run_child_thread(void *argument)
{
    unsigned char *slots[SLOTS_COUNT] = {0};
    uint64_t state = (uint64_t)(uintptr_t)argument + 77;
    churn(&state, slots, 500);
    free_slots(slots);
    return NULL;
}

static void use_threads(uint64_t seed)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_child_thread, (void *)(seed + i)) == 0);
    }
    for (size_t i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* `depth` is 1 for a child, 2 for a grandchild. */
static void run_child(size_t number, int depth)
{
    alarm(HANG_SECONDS);
    unsigned char *slots[SLOTS_COUNT] = {0};
    uint64_t state = number * 31 + (uint64_t)depth;
    churn(&state, slots, 500);
    if (number % 4 == 0) {
        /* Everything its parents' threads left for others: owned by heaps without a thread. */
        for (size_t i = 0; i < SHARED_COUNT; i++) {
            check_and_free(atomic_exchange(&shared_blocks[i], NULL));
        }
    }
    if (number % 2 == 0) {
        use_threads(state);
    }
    if (number % 8 == 1 && depth == 1) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            run_child(number * 2, 2);
            _exit(0);
        }
        wait_for_success(child, "grandchild");
    }
    churn(&state, slots, 500);
    free_slots(slots);
    if (number % 16 == 3) {
        execl(self_path, self_path, "only-allocate", (char *)NULL);
        _exit(126);
    }
    if (number % 16 == 5) {
        exit(0);
    }
}

/* Forks `count` times, sometimes two children at a time. */
static void *run_forks(void *argument)
{
    size_t count = *(size_t *)argument;
    unsigned char *slots[SLOTS_COUNT] = {0};
    uint64_t state = count + (uintptr_t)&slots;
    for (size_t i = 0; i < count; i++) {
        pid_t children[2];
        size_t children_count = 1 + i % 2;
        for (size_t j = 0; j < children_count; j++) {
            children[j] = fork();
            CHECK(children[j] >= 0);
            if (children[j] == 0) {
                run_child(i + j, 1);
                _exit(0);
            }
            churn(&state, slots, 100);
        }
        for (size_t j = 0; j < children_count; j++) {
            wait_for_success(children[j], "child");
        }
    }
    free_slots(slots);
    return NULL;
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 1 && strcmp(argv[1], "only-allocate") == 0) {
        run_child_thread(NULL);
        return 0;
    }
    own_path(self_path);
    size_t forks_count = count_from_argument(argc, argv, 200);
    pthread_t threads[THREADS_COUNT];
    for (uintptr_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_parent_thread, (void *)i) == 0);
    }
    /* A third of the forks by the main thread, a third each by two others at the same time. */
    size_t third = (forks_count + 2) / 3;
    pthread_t forkers[2];
    for (size_t i = 0; i < 2; i++) {
        CHECK(pthread_create(&forkers[i], NULL, run_forks, &third) == 0);
    }
    run_forks(&third);
    for (size_t i = 0; i < 2; i++) {
        CHECK(pthread_join(forkers[i], NULL) == 0);
    }
    /* The parent's threads are all still going. */
    size_t seen[THREADS_COUNT];
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        seen[i] = threads_rounds[i];
    }
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        while (threads_rounds[i] == seen[i]) {
            sched_yield();
        }
    }
    threads_stop = true;
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (size_t i = 0; i < SHARED_COUNT; i++) {
        check_and_free(shared_blocks[i]);
    }
    return 0;
}
