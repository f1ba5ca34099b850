/* SPDX-License-Identifier: MIT */
/* soak.c: days of growing, working, handing over and shrinking, every block checked. The workload
 * of this name of hakmem's predecessor.
 *
 * Imitates: weeks of a server in short. A round is a day of each thread:
 *   grow        all empty ones of its BLOCKS slots are filled; the sizes are those of the day, one
 *               of four mixes, drawn: 16 to 255 bytes, 64 to 2047 bytes, 16 bytes to 64 KiB, 1 to
 *               64 KiB, each doubling as likely as another
 *   work        8 * BLOCKS times a random block makes place for a new one
 *   hand over   the threads meet, each leaves its blocks to the one before it
 *   work        as above, on the blocks taken over
 *   shrink      19 of 20 blocks are freed
 *
 * Each block carries its size and a mark at head, end and each 4 KiB between; all are checked when
 * it goes. A malloc is one operation, a free another. Run it with a large ROUNDS to look for what
 * only hours show: memory that creeps, contents that change.
 *
 * Does not show: rest (there is no idle time, so nothing of what an allocator does then), blocks
 * above 64 KiB. Checking, page faults and with several threads the wait at the barrier are part of
 * the figure.
 */
#include "harness.h"

enum { ROUNDS, BLOCKS, SEED, ARGUMENT_COUNT };
enum { WORK_FACTOR = 8, STAY_ONE_IN = 20, TOUCH_STEP = 4096 };

struct block {
    uint32_t size;
    uint32_t mark;
    unsigned char text[];
};

/* Sizes from size_min on; how many doublings of it, each as likely as another. */
struct mix {
    uint32_t size_min;
    uint32_t doubling_count;
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "days", 100, 3, 1, 1000000000),
    BENCH_COUNT(BLOCKS, "slots of each thread", 5000, 500, 1, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("soak",
               "Grows, works, hands over and shrinks, with sizes that change, checking contents.");

/* In round r thread t begins with number t + r and goes on to the next at the hand-over. */
static struct block ***tables;
static pthread_barrier_t hand_over;

static void table_map(struct bench_thread *thread)
{
    tables[thread->index] = bench_map(arguments[BLOCKS].value * sizeof(struct block *));
}

BENCH_INLINE struct block *block_new(const struct mix *mix, uint32_t *state,
                                     struct bench_latency *latency)
{
    uint32_t base = mix->size_min << bench_random_below(state, mix->doubling_count);
    uint32_t size = base + bench_random_below(state, base);
    struct block *block = bench_malloc(latency, size);
    uint32_t text_size = size - (uint32_t)sizeof *block;
    block->size = size;
    block->mark = size * UINT32_C(0x9E3779B1) >> 24;
    for (uint32_t i = 0; i < text_size; i += TOUCH_STEP) {
        block->text[i] = (unsigned char)block->mark;
    }
    block->text[text_size - 1] = (unsigned char)block->mark;
    return block;
}

BENCH_INLINE void block_end(struct block *block, struct bench_latency *latency)
{
    uint32_t text_size = block->size - (uint32_t)sizeof *block;
    uint32_t differences = block->mark ^ (block->size * UINT32_C(0x9E3779B1) >> 24);
    for (uint32_t i = 0; i < text_size; i += TOUCH_STEP) {
        differences |= block->text[i] ^ block->mark;
    }
    differences |= block->text[text_size - 1] ^ block->mark;
    if (differences != 0) {
        bench_fail_run("a block has changed while it lived.");
    }
    bench_free(latency, block);
}

/* The number of operations, here and below. */
BENCH_INLINE uint64_t table_grow(struct block **table, const struct mix *mix, uint32_t *state,
                                 struct bench_latency *latency)
{
    uint64_t operation_count = 0;
    for (uint64_t i = 0; i < arguments[BLOCKS].value; i++) {
        if (table[i] == NULL) {
            table[i] = block_new(mix, state, latency);
            operation_count++;
        }
    }
    return operation_count;
}

BENCH_INLINE uint64_t table_work(struct block **table, const struct mix *mix, uint32_t *state,
                                 struct bench_latency *latency)
{
    uint32_t block_count = (uint32_t)arguments[BLOCKS].value;
    uint64_t step_count = (uint64_t)WORK_FACTOR * block_count;
    for (uint64_t step = 0; step < step_count; step++) {
        struct block **slot = &table[bench_random_below(state, block_count)];
        block_end(*slot, latency);
        *slot = block_new(mix, state, latency);
    }
    return 2 * step_count;
}

BENCH_INLINE uint64_t table_shrink(struct block **table, uint32_t *state,
                                   struct bench_latency *latency)
{
    uint64_t operation_count = 0;
    for (uint64_t i = 0; i < arguments[BLOCKS].value; i++) {
        if (bench_random_below(state, STAY_ONE_IN) != 0) {
            block_end(table[i], latency);
            table[i] = NULL;
            operation_count++;
        }
    }
    return operation_count;
}

BENCH_INLINE void days_run(struct bench_thread *thread, struct bench_latency *latency)
{
    static const struct mix mixes[4] = {{16, 4}, {64, 5}, {16, 12}, {1024, 6}};
    uint64_t round_count = arguments[ROUNDS].value;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < round_count; round++) {
        uint64_t number = thread->index + round;
        const struct mix *mix = &mixes[bench_random_below(&state, 4)];
        struct block **table = tables[number % bench_thread_count()];
        thread->operations += table_grow(table, mix, &state, latency);
        thread->operations += table_work(table, mix, &state, latency);
        (void)pthread_barrier_wait(&hand_over);
        table = tables[(number + 1) % bench_thread_count()];
        thread->operations += table_work(table, mix, &state, latency);
        thread->operations += table_shrink(table, &state, latency);
    }
}

BENCH_MEASURE(days_measure, days_run)

static void table_drain(struct bench_thread *thread)
{
    for (uint64_t i = 0; i < arguments[BLOCKS].value; i++) {
        free(tables[thread->index][i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {table_map, days_measure, table_drain};
    bench_start(&workload, argc, argv);
    tables = bench_map(bench_thread_count() * sizeof *tables);
    (void)pthread_barrier_init(&hand_over, NULL, bench_thread_count());
    bench_run(&phases);
    bench_report();
    return 0;
}
