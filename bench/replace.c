/* SPDX-License-Identifier: MIT */
/* replace.c: random_mixed without its unpredictable branch: each step replaces the object of a
 * slot.
 *
 * Imitates: a cache, session table or document that is full and stays full: the new entry pushes
 * out an old one of another size at a random place. Each step draws one xorshift32 number r, frees
 * what is in slot r mod WS and puts 16 + (r & 0x3FF) bytes there, the first byte written. One step
 * is two operations. All slots are filled in order before the clock starts and freed after it
 * stops. WS is the point: 400 fit the first-level cache, 20,000 the second or third, 1,000,000
 * (half a gigabyte) none.
 *
 * Does not show: growth (no fresh memory is needed after the start), lifetimes that depend on size
 * or on each other, work done on the objects. With a WS larger than a cache the misses on slot and
 * object are part of the figure, the same for every allocator. Slot and size come from one draw:
 * with WS a multiple of 16 a slot sees only sizes that agree in their low bits. Threads (--threads
 * N: N times WS slots) share nothing.
 */
#include "harness.h"

enum { ITER, WS, SEED, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ITER, "steps of each thread", 20000000, 200000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(WS, "slots of each thread", 400, 400, 1, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("replace",
               "Replaces the object of a random slot by one of 16 to 1039 bytes, each step.");

static void slots_fill(struct bench_thread *thread)
{
    uint64_t slot_count = arguments[WS].value;
    unsigned char **slots = bench_map(slot_count * sizeof *slots);
    uint32_t state = thread->seed;
    for (uint64_t i = 0; i < slot_count; i++) {
        uint32_t r = bench_random(&state);
        slots[i] = bench_malloc(NULL, 16 + (r & 0x3FF));
        slots[i][0] = (unsigned char)r;
    }
    thread->seed = state;
    thread->data = slots;
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
        unsigned char *block;
        bench_free(latency, *slot);
        block = bench_malloc(latency, 16 + (r & 0x3FF));
        block[0] = (unsigned char)r;
        *slot = block;
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

BENCH_MAIN(slots_fill, slots_measure, slots_drain)
