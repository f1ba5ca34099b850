/* SPDX-License-Identifier: MIT */
/* survivors.c: of many blocks one in twenty survives; how much memory is held after a rest?
 *
 * Imitates: a service at night: a day's requests are gone, a few sessions, log lines and cache
 * entries remain, scattered over all pages. COUNT blocks of 16 to 1039 bytes, first and last byte
 * written, are allocated; all but one in twenty are freed in random order; then the process rests
 * for IDLE seconds without a call to the allocator. The notes: rss_idle_kib and lazyfree_idle_kib
 * what is held after that, live_kib what was requested and is live. The 5 % and the ten seconds are
 * the project's own choice: several allocators give memory back after a delay of that order.
 *
 * Does not show: much about time (the allocations and the random frees are measured, the rest is
 * not), nor memory that goes back only when the program calls again. As sizes are random and the
 * survivors too, most OS pages hold one: no allocator can come near live_kib without moving blocks.
 * --threads N: COUNT blocks of each thread, all rest together.
 */
#include "harness.h"

enum { COUNT, IDLE, SEED, ARGUMENT_COUNT };
enum { SIZE_MIN = 16, SIZE_RANGE = 1024, KEPT_ONE_IN = 20 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(COUNT, "blocks each thread allocates", 500000, 20000, 1, 1000000000),
    BENCH_TIME(IDLE, "how long the process rests", 10000, 100, 0, 86400000),
    BENCH_SEED,
};

BENCH_WORKLOAD("survivors",
               "Frees all but one in twenty blocks and rests; what memory is left then?");

static pthread_barrier_t idle_over;
static _Atomic uint64_t shared_live_size; /* of all threads; orders nothing */

struct survivor {
    unsigned char *block;
    uint32_t size;
};

static void blocks_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[COUNT].value * sizeof(struct survivor));
}

/* Shuffled on the way: each goes to a random place, what was there to the end. */
BENCH_INLINE void blocks_allocate(struct survivor *blocks, uint32_t *state,
                                  struct bench_latency *latency)
{
    uint32_t count = (uint32_t)arguments[COUNT].value;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = SIZE_MIN + bench_random_below(state, SIZE_RANGE);
        uint32_t other = bench_random_below(state, i + 1);
        unsigned char *block = bench_malloc(latency, size);
        block[0] = (unsigned char)size;
        block[size - 1] = (unsigned char)size;
        blocks[i] = blocks[other];
        blocks[other] = (struct survivor){.block = block, .size = size};
    }
}

BENCH_INLINE void blocks_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct survivor *blocks = thread->data;
    uint32_t state = thread->seed;
    uint64_t count = arguments[COUNT].value;
    uint64_t live_size = 0;
    blocks_allocate(blocks, &state, latency);
    for (uint64_t i = 0; i < count; i++) {
        if (i % KEPT_ONE_IN == 0) {
            live_size += blocks[i].size;
        } else {
            bench_free(latency, blocks[i].block);
        }
    }
    shared_live_size += live_size;
    thread->operations = 2 * count - (count + KEPT_ONE_IN - 1) / KEPT_ONE_IN;
}

BENCH_MEASURE(blocks_measure, blocks_run)

/* One thread looks while the others sleep at the barrier. */
static void blocks_drain(struct bench_thread *thread)
{
    struct survivor *blocks = thread->data;
    if (thread->index == 0) {
        bench_idle(arguments[IDLE].value);
    }
    (void)pthread_barrier_wait(&idle_over);
    for (uint64_t i = 0; i < arguments[COUNT].value; i += KEPT_ONE_IN) {
        free(blocks[i].block);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {blocks_map, blocks_measure, blocks_drain};
    bench_start(&workload, argc, argv);
    (void)pthread_barrier_init(&idle_over, NULL, bench_thread_count());
    bench_run(&phases);
    bench_note("live_kib", NULL, shared_live_size / 1024);
    bench_report();
    return 0;
}
