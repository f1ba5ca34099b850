/* SPDX-License-Identifier: MIT */
/* phase_change.c: a program whose phases need blocks of different sizes.
 *
 * Imitates: a compiler going from parsing to optimising, a server that loads and then serves, a
 * batch job step by step. Each phase allocates BYTES in blocks of S to 2 S - 1 bytes, first and
 * last byte written, then frees 95 % of them, chosen at random, in the order of allocation. The
 * next phase has another S, from 32 bytes to 8 KiB in an order that jumps between small and large.
 * The 5 % stay until two phases later, scattered over all the memory the phase had. Pages and
 * regions that are free but for a few blocks must serve other sizes, or the peak RSS (against
 * BYTES and the survivors) tells. The shape is the project's own.
 *
 * Does not show: phases that overlap, or a return to sizes used just before. The survivors are
 * never read. --threads N: each thread goes through the same phases with BYTES / N, nothing is
 * shared.
 */
#include "harness.h"

enum { PHASES, BYTES, SEED, ARGUMENT_COUNT };
enum { KEPT_ONE_IN = 20, GENERATIONS = 2 };

static const uint32_t phase_sizes[] = {32, 1024, 128, 8192, 64, 2048, 256, 4096, 512};
enum { SIZE_COUNT = sizeof phase_sizes / sizeof phase_sizes[0], SIZE_SMALLEST = 32 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(PHASES, "phases of each thread", 9, 9, 1, UINT64_C(1000000000)),
    BENCH_COUNT(BYTES, "bytes requested in a phase by all threads", UINT64_C(64) << 20,
                UINT64_C(4) << 20, 1 << 16, UINT64_C(1) << 40),
    BENCH_SEED,
};

BENCH_WORKLOAD("phase_change",
               "Allocates blocks of one size range, frees 95 % of them, goes on to another range.");

/* The blocks of the last two phases; of the older one only survivors. */
struct history {
    unsigned char **blocks[GENERATIONS];
    uint64_t counts[GENERATIONS];
};

static void history_map(struct bench_thread *thread)
{
    struct history *history = bench_map(sizeof *history);
    uint64_t count_max = arguments[BYTES].value / bench_thread_count() / SIZE_SMALLEST + 1;
    for (size_t i = 0; i < GENERATIONS; i++) {
        history->blocks[i] = bench_map(count_max * sizeof *history->blocks[i]);
    }
    thread->data = history;
}

BENCH_INLINE uint64_t phase_allocate(unsigned char **blocks, uint32_t size_min, uint32_t *state,
                                     struct bench_latency *latency)
{
    uint64_t left_size = arguments[BYTES].value / bench_thread_count();
    uint64_t count = 0;
    while (left_size != 0) {
        uint32_t size = size_min + bench_random_below(state, size_min);
        unsigned char *block = bench_malloc(latency, size);
        block[0] = (unsigned char)size;
        block[size - 1] = (unsigned char)size;
        blocks[count++] = block;
        left_size -= size < left_size ? size : left_size;
    }
    return count;
}

/* Moves the survivors to the front. */
BENCH_INLINE uint64_t phase_thin(unsigned char **blocks, uint64_t count, uint32_t *state,
                                 struct bench_latency *latency)
{
    uint64_t kept_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (bench_random_below(state, KEPT_ONE_IN) == 0) {
            blocks[kept_count++] = blocks[i];
        } else {
            bench_free(latency, blocks[i]);
        }
    }
    return kept_count;
}

BENCH_INLINE void phases_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct history *history = thread->data;
    uint32_t state = thread->seed;
    for (uint64_t phase = 0; phase < arguments[PHASES].value; phase++) {
        unsigned char **blocks = history->blocks[phase % GENERATIONS];
        uint64_t *count = &history->counts[phase % GENERATIONS];
        uint64_t allocated_count;
        for (uint64_t i = 0; i < *count; i++) {
            bench_free(latency, blocks[i]);
        }
        thread->operations += *count;
        allocated_count = phase_allocate(blocks, phase_sizes[phase % SIZE_COUNT], &state, latency);
        *count = phase_thin(blocks, allocated_count, &state, latency);
        thread->operations += 2 * allocated_count - *count;
    }
}

BENCH_MEASURE(phases_measure, phases_run)

static void history_drain(struct bench_thread *thread)
{
    struct history *history = thread->data;
    for (size_t i = 0; i < GENERATIONS; i++) {
        for (uint64_t j = 0; j < history->counts[i]; j++) {
            free(history->blocks[i][j]);
        }
    }
}

BENCH_MAIN(history_map, phases_measure, history_drain)
