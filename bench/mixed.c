/* SPDX-License-Identifier: MIT */
/* mixed.c: objects of all sizes from MIN to MAX bytes replace each other over a fixed set of
 * slots. The workloads mixed (8 B to 1 MiB) and mid_mt (8 to 32 KiB, 4 threads) of the earlier
 * system.
 *
 * Imitates: a program whose small nodes, strings, tables and buffers live side by side, such as an
 * image pipeline or an in-memory database; with 8 KiB to 32 KiB the I/O buffers of a server. Each
 * step frees what is in a random slot and puts an object there: first one of the powers of two
 * times MIN is drawn, each as likely as any other, then a size between it and its double, at most
 * MAX. The first word of each 4 KiB of it is written. One step is two operations; all slots are
 * filled before the clock starts.
 *
 * Does not show: the mix of real programs, where most objects are small: here each doubling has
 * the same share, so that no tier of an allocator goes unseen. With 8 B to 1 MiB the mean object
 * has 90 KiB, and touching pages is a large part of the figure. Threads (--threads N: N times WS
 * slots) share nothing.
 */
#include "harness.h"

enum { ITER, WS, MIN, MAX, SEED, ARGUMENT_COUNT };
enum { TOUCH_STEP = 4096 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ITER, "steps of each thread", 2000000, 10000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(WS, "slots of each thread", 256, 256, 1, 100000000),
    BENCH_COUNT(MIN, "smallest object in bytes", 8, 8, 1, UINT32_C(1) << 31),
    BENCH_COUNT(MAX, "largest object in bytes", 1048576, 1048576, 1, UINT32_C(1) << 31),
    BENCH_SEED,
};

BENCH_WORKLOAD("mixed",
               "Replaces the object of a random slot by one of MIN to MAX bytes, each step.");

static uint32_t doubling_count; /* of MIN, until MAX is reached; at least 1 */

BENCH_INLINE unsigned char *object_new(uint32_t *state, struct bench_latency *latency)
{
    size_t base = (size_t)arguments[MIN].value << bench_random_below(state, doubling_count);
    size_t size = base + bench_random_below(state, (uint32_t)base);
    unsigned char *object;
    size = size < arguments[MAX].value ? size : arguments[MAX].value;
    object = bench_malloc(latency, size);
    for (size_t i = 0; i < size; i += TOUCH_STEP) {
        object[i] = (unsigned char)size;
    }
    return object;
}

static void slots_fill(struct bench_thread *thread)
{
    unsigned char **slots = bench_map(arguments[WS].value * sizeof *slots);
    uint32_t state = thread->seed;
    for (uint64_t i = 0; i < arguments[WS].value; i++) {
        slots[i] = object_new(&state, NULL);
    }
    thread->data = slots;
}

BENCH_INLINE void slots_run(struct bench_thread *thread, struct bench_latency *latency)
{
    unsigned char **slots = thread->data;
    uint64_t step_count = arguments[ITER].value;
    uint32_t slot_count = (uint32_t)arguments[WS].value;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < step_count; step++) {
        uint32_t slot = bench_random_below(&state, slot_count);
        bench_free(latency, slots[slot]);
        slots[slot] = object_new(&state, latency);
    }
    thread->operations = 2 * step_count;
}

BENCH_MEASURE(slots_measure, slots_run)

static void slots_drain(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    for (uint64_t i = 0; i < arguments[WS].value; i++) {
        free(slots[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {slots_fill, slots_measure, slots_drain};
    bench_start(&workload, argc, argv);
    if (arguments[MIN].value > arguments[MAX].value) {
        bench_fail_usage("MAX must not be less than MIN.");
    }
    doubling_count = 1;
    while (arguments[MIN].value << doubling_count < arguments[MAX].value) {
        doubling_count++;
    }
    bench_run(&phases);
    bench_report();
    return 0;
}
