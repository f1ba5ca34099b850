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
    BENCH_COUNT(BYTES, "bytes requested in all", UINT64_C(1) << 30, UINT64_C(16) << 20, 1,
                UINT64_C(1) << 46),
    BENCH_COUNT(MIN, "smallest block in bytes", 16, 16, 16, UINT32_MAX - 1),
    BENCH_COUNT(MAX, "one more than the largest block", 1040, 1040, 17, UINT32_MAX),
    BENCH_SEED,
};

BENCH_WORKLOAD("growth", "Allocates blocks until BYTES are live and frees none of them meanwhile.");

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

BENCH_MEASURE(blocks_measure, blocks_grow)

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
