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
    BENCH_COUNT(ITER, "steps of each thread", 20000000, 300000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(WS, "slots of each thread", 400, 400, 1, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("random_mixed", "Frees or allocates 16 to 1039 bytes in a random slot, each step.");

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

BENCH_MEASURE(slots_measure, slots_run)

static void slots_drain(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    for (uint64_t i = 0; i < arguments[WS].value; i++) {
        free(slots[i]);
    }
}

BENCH_MAIN(slots_map, slots_measure, slots_drain)
