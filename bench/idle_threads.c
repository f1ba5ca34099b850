/* SPDX-License-Identifier: MIT */
/* idle_threads.c: many threads that have allocated once, then wait for something to do.
 *
 * Imitates: a server's thread pool or the hundred helper threads of a browser or a virtual machine,
 * at rest after a burst. Each of THREADS threads allocates BLOCKS blocks of 16 to 1039 bytes, the
 * first byte written, frees a random nine of ten of them and keeps the rest; then all sleep for
 * IDLE seconds, and the notes rss_idle_kib and lazyfree_idle_kib say what the process still holds,
 * live_kib what was requested and is live. An allocator that gives each thread a cache or an arena
 * of its own holds that many of them. The shape is the project's own.
 *
 * Does not show: much about time. The burst is short, with more threads than cores it is mostly the
 * scheduler's, and the sleep is not part of it; the row is about memory. Of the resident memory a
 * few KiB for each thread are its stack and the C library's. The threads never wake up again to let
 * the allocator clean up: what goes back to the system meanwhile, it gives back by itself.
 */
#include "harness.h"

enum { THREADS, BLOCKS, IDLE, SEED, ARGUMENT_COUNT };
enum { SIZE_MIN = 16, SIZE_RANGE = 1024, KEPT_ONE_IN = 10 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(THREADS, "threads", 200, 50, 1, BENCH_THREADS_MAX),
    BENCH_COUNT(BLOCKS, "blocks each thread allocates", 2000, 500, 1, 100000000),
    BENCH_TIME(IDLE, "how long they sleep", 500, 100, 0, 86400000),
    BENCH_SEED,
};

BENCH_WORKLOAD("idle_threads",
               "Many threads allocate, free most of it and sleep; what memory is left then?");

static pthread_barrier_t idle_over;
static _Atomic uint64_t shared_live_size; /* of all threads; orders nothing */

static void slots_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[BLOCKS].value * sizeof(unsigned char *));
}

BENCH_INLINE void burst_run(struct bench_thread *thread, struct bench_latency *latency)
{
    unsigned char **slots = thread->data;
    uint64_t block_count = arguments[BLOCKS].value;
    uint32_t state = thread->seed;
    uint32_t size_state = thread->seed; /* draws the sizes a second time, to know what goes */
    uint64_t live_size = 0;
    uint64_t freed_count = 0;
    for (uint64_t i = 0; i < block_count; i++) {
        uint32_t size = SIZE_MIN + bench_random_below(&state, SIZE_RANGE);
        slots[i] = bench_malloc(latency, size);
        slots[i][0] = (unsigned char)size;
        live_size += size;
    }
    for (uint64_t i = 0; i < block_count; i++) {
        uint32_t size = SIZE_MIN + bench_random_below(&size_state, SIZE_RANGE);
        if (bench_random_below(&state, KEPT_ONE_IN) != 0) {
            bench_free(latency, slots[i]);
            slots[i] = NULL;
            live_size -= size;
            freed_count++;
        }
    }
    shared_live_size += live_size;
    thread->operations = block_count + freed_count;
}

BENCH_MEASURE(burst_measure, burst_run)

/* One thread looks while the others sleep at the barrier. */
static void idle_drain(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    if (thread->index == 0) {
        bench_idle(arguments[IDLE].value);
    }
    (void)pthread_barrier_wait(&idle_over);
    for (uint64_t i = 0; i < arguments[BLOCKS].value; i++) {
        free(slots[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {slots_map, burst_measure, idle_drain};
    bench_start(&workload, argc, argv);
    (void)pthread_barrier_init(&idle_over, NULL, bench_thread_count());
    bench_run(&phases);
    bench_note("live_kib", NULL, shared_live_size / 1024);
    bench_report();
    return 0;
}
