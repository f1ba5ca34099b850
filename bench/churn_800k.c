/* SPDX-License-Identifier: MIT */
/* churn_800k.c: one large buffer allocated, written and freed, again and again.
 *
 * Imitates: a codec, a web server or a numeric program that takes a buffer for each frame, reply or
 * matrix. Each step allocates SIZE bytes (800,000, above the size from which many allocators ask
 * the kernel for each block), writes one byte of each OS page and frees it: two operations. An
 * allocator that gives the memory back at once pays for the system calls, and for a page fault at
 * every page of every step. The shape is the project's own.
 *
 * Does not show: what that cache of buffers costs in memory (one is live at any time; see
 * large_objects and survivors), nor buffers of changing sizes. The writes, 193 of them, are part
 * of the figure and the same for every allocator: without faults some 200 ns. --threads N: each
 * thread has a buffer of its own, nothing is shared.
 */
#include "harness.h"

enum { STEPS, SIZE, ARGUMENT_COUNT };

/* A page and a cache line: each page is written, and not always the same set of the cache. */
enum { STRIDE = 4096 + 64 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [STEPS] = {.name = "STEPS",
               .meaning = "buffers of each thread, one after another",
               .value = 4000000,
               .value_smoke = 1000,
               .min = 1,
               .max = UINT64_C(1000000000000)},
    [SIZE] = {.name = "SIZE",
              .meaning = "bytes of a buffer",
              .value = 800000,
              .value_smoke = 800000,
              .min = 1,
              .max = UINT64_C(1) << 40},
};

static const struct bench_workload workload = {
    .name = "churn_800k",
    .summary = "Allocates a large buffer, writes to each page of it and frees it, each step.",
    .arguments = arguments,
    .argument_count = ARGUMENT_COUNT,
};

BENCH_INLINE void buffers_run(struct bench_thread *thread, struct bench_latency *latency)
{
    uint64_t step_count = arguments[STEPS].value;
    uint64_t size = arguments[SIZE].value;
    for (uint64_t step = 0; step < step_count; step++) {
        /* volatile: the writes have no reader, yet must happen. */
        volatile unsigned char *buffer = bench_malloc(latency, size);
        for (uint64_t at = 0; at < size; at += STRIDE) {
            buffer[at] = (unsigned char)step;
        }
        bench_free(latency, (void *)(uintptr_t)buffer);
    }
    thread->operations = 2 * step_count;
}

static void buffers_measure(struct bench_thread *thread)
{
    if (thread->latency == NULL) {
        buffers_run(thread, NULL);
    } else {
        buffers_run(thread, thread->latency);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {.measure = buffers_measure};
    bench_start(&workload, argc, argv);
    bench_run(&phases);
    bench_report();
    return 0;
}
