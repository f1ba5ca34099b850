/* SPDX-License-Identifier: MIT */
/* buffers.c: buffers of 64 KiB, 256 KiB or 2 MiB come and go, a few at a time. The workloads json,
 * mir and vm of hakmem's predecessor as far as they are about one size.
 *
 * Imitates, by KIND:
 *   document   64 KiB: a server reads a document, answers, drops it
 *   mir        256 KiB: a compiler has an instruction buffer for each function and each pass
 *   vm         2 MiB: an interpreter starts a machine with a stack and a heap of its own, ends it
 *
 * Each step allocates a buffer, writes a word in each 4 KiB of it, reads the words of the oldest
 * of LIVE buffers and frees that one: two operations. An allocator that gives such blocks back to
 * the system at each free pays system calls and page faults here; that is the point.
 *
 * Does not show: filling the whole buffer, which would cost the same under every allocator and
 * hide the rest; sizes that vary (mixed.c); what lives beside the buffers (json.c). Threads
 * (--threads N: N times LIVE buffers) share nothing.
 */
#include "harness.h"

enum { KIND, STEPS, LIVE, SEED, ARGUMENT_COUNT };
enum { TOUCH_STEP = 4096 / sizeof(uint64_t) };

static const char *const kind_words[] = {"document", "mir", "vm", NULL};
static const size_t kind_sizes[] = {64 * 1024, 256 * 1024, 2 * 1024 * 1024};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_CHOICE(KIND, "what the buffers are for", kind_words, 0, 0),
    BENCH_COUNT(STEPS, "buffers of each thread", 1000000, 2000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(LIVE, "buffers that live at a time", 4, 4, 1, 100000),
    BENCH_SEED,
};

BENCH_WORKLOAD("buffers",
               "Allocates, touches and frees buffers of 64 KiB, 256 KiB or 2 MiB in turn.");

static void ring_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[LIVE].value * sizeof(uint64_t *));
}

/* Every word is the first one plus its place. */
BENCH_INLINE void buffer_write(uint64_t *buffer, size_t word_count, uint64_t first)
{
    buffer[0] = first;
    for (size_t i = TOUCH_STEP; i < word_count; i += TOUCH_STEP) {
        buffer[i] = first + i;
    }
}

BENCH_INLINE void buffer_check(const uint64_t *buffer, size_t word_count)
{
    uint64_t first = buffer[0];
    uint64_t differences = 0;
    for (size_t i = 0; i < word_count; i += TOUCH_STEP) {
        differences |= buffer[i] ^ (first + i);
    }
    if (differences != 0) {
        bench_fail_run("a buffer has lost its contents.");
    }
}

BENCH_INLINE void buffers_run(struct bench_thread *thread, struct bench_latency *latency)
{
    uint64_t **ring = thread->data;
    uint64_t step_count = arguments[STEPS].value;
    size_t live_count = arguments[LIVE].value;
    size_t size = kind_sizes[arguments[KIND].value];
    uint32_t state = thread->seed;
    size_t at = 0;
    for (uint64_t step = 0; step < step_count; step++) {
        uint64_t *buffer = bench_malloc(latency, size);
        buffer_write(buffer, size / sizeof *buffer, bench_random(&state));
        if (ring[at] != NULL) {
            buffer_check(ring[at], size / sizeof *buffer);
            bench_free(latency, ring[at]);
        }
        ring[at] = buffer;
        at = at + 1 == live_count ? 0 : at + 1;
    }
    thread->operations = 2 * step_count;
}

BENCH_MEASURE(buffers_measure, buffers_run)

static void ring_drain(struct bench_thread *thread)
{
    uint64_t **ring = thread->data;
    for (size_t i = 0; i < arguments[LIVE].value; i++) {
        free(ring[i]);
    }
}

BENCH_MAIN(ring_map, buffers_measure, ring_drain)
