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
    BENCH_COUNT(STEPS, "buffers of each thread, one after another", 4000000, 1000, 1,
                UINT64_C(1000000000000)),
    BENCH_COUNT(SIZE, "bytes of a buffer", 800000, 800000, 1, UINT64_C(1) << 40),
};

BENCH_WORKLOAD("churn_800k",
               "Allocates a large buffer, writes to each page of it and frees it, each step.");

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

BENCH_MEASURE(buffers_measure, buffers_run)

BENCH_MAIN(NULL, buffers_measure, NULL)
