/* SPDX-License-Identifier: MIT */
/* thread_churn.c: threads that live for a few microseconds, allocate a little and end.
 *
 * Imitates: a program that starts a thread for each request or task instead of keeping a pool.
 * Each of COUNT threads allocates BLOCKS blocks of 16 to 527 bytes, the first byte written, frees
 * all but the first and leaves that one as its result to the thread that started it, which joins
 * it, frees the result and starts the next. What an allocator sets up for a thread and what it
 * takes back at its end is paid COUNT times, and what it forgets to take back adds up in the peak
 * RSS. The shape is the project's own; 100,000 is the count that reveals a leak of a few hundred
 * bytes for each thread.
 *
 * Does not show: the allocator alone. Starting and joining a thread costs some ten microseconds,
 * the same for every allocator, and is most of the time; one operation is a malloc or a free, as
 * everywhere. With --threads N there are N such starters, each with COUNT threads of its own, but
 * a starter never has more than one of them alive.
 */
#include "harness.h"

enum { COUNT, BLOCKS, SEED, ARGUMENT_COUNT };
enum { BLOCKS_MAX = 1024, SIZE_MIN = 16, SIZE_RANGE = 512 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(COUNT, "threads started one after another", 100000, 1000, 1, UINT64_C(1000000000)),
    BENCH_COUNT(BLOCKS, "blocks each of them allocates", 32, 32, 1, BLOCKS_MAX),
    BENCH_SEED,
};

BENCH_WORKLOAD("thread_churn",
               "Starts short threads one after another; each allocates a little and ends.");

/* What a short thread is given and leaves; pthread_create and pthread_join hand it over. */
struct errand {
    uint32_t random;
    unsigned char *result;
    struct bench_latency *latency;
};

static unsigned char *block_new(struct errand *errand)
{
    uint32_t size = SIZE_MIN + bench_random_below(&errand->random, SIZE_RANGE);
    unsigned char *block = bench_malloc(errand->latency, size);
    block[0] = (unsigned char)size;
    return block;
}

static void *errand_run(void *argument)
{
    struct errand *errand = argument;
    unsigned char *others[BLOCKS_MAX];
    uint64_t other_count = arguments[BLOCKS].value - 1;
    errand->result = block_new(errand);
    for (uint64_t i = 0; i < other_count; i++) {
        others[i] = block_new(errand);
    }
    for (uint64_t i = 0; i < other_count; i++) {
        bench_free(errand->latency, others[i]);
    }
    return NULL;
}

static void threads_measure(struct bench_thread *thread)
{
    struct errand errand = {.random = thread->seed, .latency = thread->latency};
    for (uint64_t i = 0; i < arguments[COUNT].value; i++) {
        (void)pthread_join(bench_thread_create(errand_run, &errand), NULL);
        bench_free(thread->latency, errand.result);
    }
    thread->operations = 2 * arguments[BLOCKS].value * arguments[COUNT].value;
}

BENCH_MAIN(NULL, threads_measure, NULL)
