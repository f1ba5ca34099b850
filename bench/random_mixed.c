/* SPDX-License-Identifier: MIT */
/* random_mixed.c: objects of 16 to 1039 bytes come and go in random order over a fixed set of
 * slots.
 *
 * Imitates: a program in steady state whose objects have mixed small sizes and unrelated
 * lifetimes, such as an interpreter or a server's request data. Each step draws one xorshift32
 * number r and goes to slot r mod WS: a filled one is freed, an empty one gets 16 + (r & 0x3FF)
 * bytes, the first byte written. One step is one operation. What is left at the end is freed
 * outside the measurement.
 *
 * Does not show: the allocator's own speed beyond a point. Whether the slot is filled is a coin
 * toss no branch predictor can learn, so that every allocator pays about half a misprediction for
 * each step (see replace.c). Slot and size come from one draw: with WS a multiple of 16 a slot
 * sees only sizes that agree in their low bits. Objects are not read again; threads (--threads N:
 * N times WS slots) share nothing.
 */
#include "harness.h"

enum { ITER, WS, SEED, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [ITER] = {.name = "ITER",
              .meaning = "steps of each thread",
              .value = 20000000,
              .value_smoke = 300000,
              .min = 1,
              .max = UINT64_C(1000000000000)},
    [WS] = {.name = "WS",
            .meaning = "slots of each thread",
            .value = 400,
            .value_smoke = 400,
            .min = 1,
            .max = 100000000},
    [SEED] = {.name = "SEED",
              .meaning = "start of the random numbers",
              .value = 42,
              .value_smoke = 42,
              .min = 1,
              .max = UINT32_MAX},
};

static const struct bench_workload workload = {
    .name = "random_mixed",
    .summary = "Frees or allocates 16 to 1039 bytes in a random slot, each step.",
    .arguments = arguments,
    .argument_count = ARGUMENT_COUNT,
};

static void slots_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[WS].value * sizeof(unsigned char *));
}

BENCH_INLINE void slots_run(struct bench_thread *thread, struct bench_latency *latency)
{
    unsigned char **slots = thread->data;
    uint64_t step_count = arguments[ITER].value;
    uint32_t slot_count = (uint32_t)arguments[WS].value;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < step_count; step++) {
        uint32_t r = bench_random(&state);
        unsigned char **slot = &slots[r % slot_count];
        if (*slot != NULL) {
            bench_free(latency, *slot);
            *slot = NULL;
        } else {
            unsigned char *block = bench_malloc(latency, 16 + (r & 0x3FF));
            block[0] = (unsigned char)r;
            *slot = block;
        }
    }
    thread->operations = step_count;
}

static void slots_measure(struct bench_thread *thread)
{
    if (thread->latency == NULL) {
        slots_run(thread, NULL);
    } else {
        slots_run(thread, thread->latency);
    }
}

static void slots_drain(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    for (uint64_t i = 0; i < arguments[WS].value; i++) {
        free(slots[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {slots_map, slots_measure, slots_drain};
    bench_start(&workload, argc, argv);
    bench_run(&phases);
    bench_report();
    return 0;
}
