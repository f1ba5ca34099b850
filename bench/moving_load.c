/* SPDX-License-Identifier: MIT */
/* moving_load.c: threads take turns; each leaves an eighth of what it allocated behind.
 *
 * Imitates: a server whose load moves between its threads: a worker fills a cache or answers a
 * burst, then another does. In its turn a thread frees what it kept of its last one, allocates
 * COUNT blocks of SIZE / 2 to SIZE bytes, of which it writes all, and frees all but one in eight,
 * in random order; the others sleep at a barrier. TURNS turns, thread after thread. At most 1 + (T
 * - 1) / 8 times COUNT blocks are live with T threads, so what an allocator holds above that is
 * what one thread freed and the others cannot have. Each malloc and each free is one operation.
 *
 * Does not show: threads that work at the same time. One in eight and half to whole sizes are the
 * project's own choice.
 */
#include "harness.h"

#include <string.h>

enum { COUNT, SIZE, TURNS, SEED, ARGUMENT_COUNT };
enum { KEPT_ONE_IN = 8 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(COUNT, "blocks a thread allocates in its turn", 50000, 2000, 1, 1000000000),
    BENCH_COUNT(SIZE, "largest block, bytes", 4096, 4096, 2, 1000000000),
    BENCH_COUNT(TURNS, "turns, of all threads together", 16, 8, 1, 1000000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("moving_load",
               "Threads take turns and leave an eighth of their blocks; who has the freed memory?");

static pthread_barrier_t turn_over;

static void blocks_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[COUNT].value * sizeof(unsigned char *));
}

/* Shuffled on the way: each goes to a random place, what was there to the end. */
BENCH_INLINE void blocks_allocate(unsigned char **blocks, uint32_t *state,
                                  struct bench_latency *latency)
{
    uint32_t count = (uint32_t)arguments[COUNT].value, size_max = (uint32_t)arguments[SIZE].value;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = size_max - bench_random_below(state, size_max / 2 + 1);
        uint32_t other = bench_random_below(state, i + 1);
        unsigned char *block = bench_malloc(latency, size);
        memset(block, (int)i, size);
        blocks[i] = blocks[other];
        blocks[other] = block;
    }
}

/* Those kept are the first of the table. */
BENCH_INLINE void blocks_free(unsigned char **blocks, uint64_t first, uint64_t end,
                              struct bench_latency *latency)
{
    for (uint64_t i = first; i < end; i++) {
        bench_free(latency, blocks[i]);
    }
}

static uint64_t blocks_kept(void)
{
    return arguments[COUNT].value / KEPT_ONE_IN;
}

BENCH_INLINE void turns_run(struct bench_thread *thread, struct bench_latency *latency)
{
    unsigned char **blocks = thread->data;
    uint32_t state = thread->seed;
    uint64_t count = arguments[COUNT].value, kept = 0, operations = 0;
    for (uint64_t turn = 0; turn < arguments[TURNS].value; turn++) {
        if (turn % bench_thread_count() == thread->index) {
            blocks_free(blocks, 0, kept, latency);
            blocks_allocate(blocks, &state, latency);
            operations += kept + 2 * count - blocks_kept();
            kept = blocks_kept();
            blocks_free(blocks, kept, count, latency);
        }
        (void)pthread_barrier_wait(&turn_over);
    }
    thread->operations = operations;
    memset(blocks + kept, 0, (count - kept) * sizeof *blocks);
}

BENCH_MEASURE(turns_measure, turns_run)

static void turns_drain(struct bench_thread *thread)
{
    unsigned char **blocks = thread->data;
    for (uint64_t i = 0; i < blocks_kept(); i++) {
        free(blocks[i]); /* NULL where a thread had no turn */
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {blocks_map, turns_measure, turns_drain};
    bench_start(&workload, argc, argv);
    (void)pthread_barrier_init(&turn_over, NULL, bench_thread_count());
    bench_run(&phases);
    bench_report();
    return 0;
}
