/* SPDX-License-Identifier: MIT */
/* growth.c: a program that only ever allocates: every byte comes from fresh memory.
 *
 * Imitates: the loading of a data set, a compiler's syntax trees, a cache that fills. Blocks of MIN
 * to MAX - 1 bytes are allocated until the requested bytes add up to BYTES; the first eight bytes
 * (the link to the block before) and the last byte of each are written. Nothing is freed before
 * the clock stops. The shape is the project's own, the counterpart of replace, which never grows.
 *
 * Does not show: reuse of any kind. Most of the time is the kernel's, which hands out and zeroes
 * pages: what differs between allocators is how often they ask for memory, how it is aligned for
 * huge pages, and how much of it they need for BYTES (peak RSS). With huge pages switched on for
 * all (see the doctor) an allocator with aligned regions needs far fewer faults. With --threads N
 * each thread grows to BYTES / N.
 */
#include "harness.h"

enum { BYTES, MIN, MAX, SEED, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [BYTES] = {.name = "BYTES",
               .meaning = "bytes requested in all",
               .value = UINT64_C(1) << 30,
               .value_smoke = UINT64_C(16) << 20,
               .min = 1,
               .max = UINT64_C(1) << 46},
    [MIN] = {.name = "MIN",
             .meaning = "smallest block in bytes",
             .value = 16,
             .value_smoke = 16,
             .min = 16,
             .max = UINT32_MAX - 1},
    [MAX] = {.name = "MAX",
             .meaning = "one more than the largest block",
             .value = 1040,
             .value_smoke = 1040,
             .min = 17,
             .max = UINT32_MAX},
    [SEED] = {.name = "SEED",
              .meaning = "start of the random numbers",
              .value = 42,
              .value_smoke = 42,
              .min = 1,
              .max = UINT32_MAX},
};

static const struct bench_workload workload = {
    .name = "growth",
    .summary = "Allocates blocks until BYTES are live and frees none of them meanwhile.",
    .arguments = arguments,
    .argument_count = ARGUMENT_COUNT,
};

/* The blocks hold themselves together, so that no table of the workload grows with them. */
struct link {
    struct link *previous;
};

BENCH_INLINE void blocks_grow(struct bench_thread *thread, struct bench_latency *latency)
{
    uint64_t left_size = arguments[BYTES].value / bench_thread_count();
    uint32_t size_min = (uint32_t)arguments[MIN].value;
    uint32_t size_range = (uint32_t)arguments[MAX].value - size_min;
    uint32_t state = thread->seed;
    uint64_t block_count = 0;
    struct link *newest = NULL;
    while (left_size != 0) {
        uint32_t size = size_min + bench_random_below(&state, size_range);
        struct link *link = bench_malloc(latency, size);
        ((unsigned char *)link)[size - 1] = (unsigned char)size;
        link->previous = newest;
        newest = link;
        left_size -= size < left_size ? size : left_size;
        block_count++;
    }
    thread->data = newest;
    thread->operations = block_count;
}

static void blocks_measure(struct bench_thread *thread)
{
    if (thread->latency == NULL) {
        blocks_grow(thread, NULL);
    } else {
        blocks_grow(thread, thread->latency);
    }
}

static void blocks_drain(struct bench_thread *thread)
{
    struct link *link = thread->data;
    while (link != NULL) {
        struct link *previous = link->previous;
        free(link);
        link = previous;
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {.measure = blocks_measure, .drain = blocks_drain};
    bench_start(&workload, argc, argv);
    if (arguments[MIN].value >= arguments[MAX].value) {
        bench_fail_usage("MAX must be greater than MIN.");
    }
    if (arguments[BYTES].value < bench_thread_count()) {
        bench_fail_usage("BYTES must be at least one for each thread.");
    }
    bench_run(&phases);
    bench_report();
    return 0;
}
