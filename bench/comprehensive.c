/* SPDX-License-Identifier: MIT */
/* comprehensive.c: rounds of 100 small blocks in six orders of allocating and freeing.
 *
 * Imitates: the inner shapes of programs, one at a time. Each round allocates and frees 100 blocks
 * (200 operations), the first byte of each written:
 *   lifo         all allocated, then freed last to first: recursion, scopes
 *   fifo         all allocated, then freed first to last: queues, token lists
 *   shuffled     all allocated, then freed in random order: hash tables, object graphs
 *   interleaved  after each second allocation the earlier of the two is freed, the rest at the
 *                end in order: building a result from temporaries
 *   mixed        16, 32, 64 and 128 bytes in random order, freed first to last: SIZE is then `all`
 *   long_short   of each five blocks four are freed at once, last to first; the fifth lives for
 *                16 rounds
 *
 * `all` for PATTERN or SIZE runs every one in turn in this process and prints a line for each;
 * memory figures are then of the process so far, so measure memory with one pattern and one size.
 *
 * Does not show: anything beyond the first-level cache. 100 blocks are at most 13 KB, all paths
 * are the fastest ones and branches predicted; orders and sizes of `shuffled` and `mixed` repeat
 * after 64 rounds. Threads (--threads N) share nothing.
 */
#include "harness.h"

#include <string.h>

enum { PATTERN, SIZE, ROUNDS, SEED, ARGUMENT_COUNT };
enum pattern { LIFO, FIFO, SHUFFLED, INTERLEAVED, MIXED, LONG_SHORT, PATTERN_ALL };
enum { SIZE_COUNT = 4, SIZE_ALL = SIZE_COUNT };
enum { BLOCK_COUNT = 100, TABLE_COUNT = 64, LONG_COUNT = BLOCK_COUNT / 5, LONG_ROUNDS = 16 };

static const char *const pattern_words[] = {"lifo",  "fifo",       "shuffled", "interleaved",
                                            "mixed", "long_short", "all",      NULL};
static const char *const size_words[] = {"16", "32", "64", "128", "all", NULL};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_CHOICE(PATTERN, "order of allocating and freeing", pattern_words, PATTERN_ALL,
                 PATTERN_ALL),
    BENCH_CHOICE(SIZE, "size of the blocks", size_words, SIZE_ALL, SIZE_ALL),
    BENCH_COUNT(ROUNDS, "rounds of each thread", 500000, 1000, 1, UINT64_C(10000000000)),
    BENCH_SEED,
};

BENCH_WORKLOAD("comprehensive",
               "Rounds of 100 small blocks, allocated and freed in one of six orders.");

/* Drawn once before the clock and shared read-only: the loops then have no random numbers to pay
 * for. */
static unsigned char shuffled_orders[TABLE_COUNT][BLOCK_COUNT];
static unsigned char mixed_sizes[TABLE_COUNT][BLOCK_COUNT];

BENCH_INLINE unsigned char *block_new(struct bench_latency *latency, size_t size)
{
    unsigned char *block = bench_malloc(latency, size);
    block[0] = 1;
    return block;
}

BENCH_INLINE void round_ordered(enum pattern pattern, size_t size, uint64_t round,
                                struct bench_latency *latency)
{
    const unsigned char *sizes = mixed_sizes[round % TABLE_COUNT];
    const unsigned char *order = shuffled_orders[round % TABLE_COUNT];
    unsigned char *blocks[BLOCK_COUNT];
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        blocks[i] = block_new(latency, pattern == MIXED ? sizes[i] : size);
    }
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        size_t victim = pattern == LIFO ? BLOCK_COUNT - 1 - i : pattern == SHUFFLED ? order[i] : i;
        bench_free(latency, blocks[victim]);
    }
}

BENCH_INLINE void round_interleaved(size_t size, struct bench_latency *latency)
{
    unsigned char *kept[BLOCK_COUNT / 2];
    for (size_t i = 0; i < BLOCK_COUNT / 2; i++) {
        unsigned char *temporary = block_new(latency, size);
        kept[i] = block_new(latency, size);
        bench_free(latency, temporary);
    }
    for (size_t i = 0; i < BLOCK_COUNT / 2; i++) {
        bench_free(latency, kept[i]);
    }
}

/* `survivors` are the long-lived blocks of LONG_ROUNDS rounds, NULL in the first ones. */
BENCH_INLINE void round_long_short(size_t size, uint64_t round, unsigned char **survivors,
                                   struct bench_latency *latency)
{
    unsigned char **own = survivors + round % LONG_ROUNDS * LONG_COUNT;
    for (size_t i = 0; i < LONG_COUNT; i++) {
        unsigned char *blocks[4];
        for (size_t j = 0; j < 4; j++) {
            blocks[j] = block_new(latency, size);
        }
        for (size_t j = 0; j < 4; j++) {
            bench_free(latency, blocks[3 - j]);
        }
        bench_free(latency, own[i]);
        own[i] = block_new(latency, size);
    }
}

BENCH_INLINE void rounds_run(enum pattern pattern, struct bench_thread *thread,
                             struct bench_latency *latency)
{
    static const size_t sizes[SIZE_COUNT + 1] = {16, 32, 64, 128, 0};
    uint64_t round_count = arguments[ROUNDS].value;
    size_t size = sizes[arguments[SIZE].value];
    for (uint64_t round = 0; round < round_count; round++) {
        if (pattern == INTERLEAVED) {
            round_interleaved(size, latency);
        } else if (pattern == LONG_SHORT) {
            round_long_short(size, round, thread->data, latency);
        } else {
            round_ordered(pattern, size, round, latency);
        }
    }
    thread->operations = 2 * BLOCK_COUNT * round_count;
}

BENCH_INLINE void pattern_run(struct bench_thread *thread, struct bench_latency *latency)
{
    switch (arguments[PATTERN].value) {
    case LIFO:
        rounds_run(LIFO, thread, latency);
        break;
    case FIFO:
        rounds_run(FIFO, thread, latency);
        break;
    case SHUFFLED:
        rounds_run(SHUFFLED, thread, latency);
        break;
    case INTERLEAVED:
        rounds_run(INTERLEAVED, thread, latency);
        break;
    case MIXED:
        rounds_run(MIXED, thread, latency);
        break;
    default:
        rounds_run(LONG_SHORT, thread, latency);
        break;
    }
}

static unsigned char **survivors_all;

static void blocks_prepare(struct bench_thread *thread)
{
    thread->data = survivors_all + (size_t)thread->index * LONG_ROUNDS * LONG_COUNT;
}

BENCH_MEASURE(blocks_measure, pattern_run)

static void blocks_drain(struct bench_thread *thread)
{
    unsigned char **survivors = thread->data;
    for (size_t i = 0; i < LONG_ROUNDS * LONG_COUNT; i++) {
        free(survivors[i]);
        survivors[i] = NULL;
    }
}

static void tables_draw(uint32_t state)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        for (uint32_t i = 0; i < BLOCK_COUNT; i++) {
            uint32_t other = bench_random_below(&state, i + 1);
            shuffled_orders[t][i] = shuffled_orders[t][other];
            shuffled_orders[t][other] = (unsigned char)i;
            mixed_sizes[t][i] = (unsigned char)(16u << bench_random_below(&state, SIZE_COUNT));
        }
    }
}

static void case_run(uint64_t pattern, uint64_t size)
{
    static const struct bench_phases phases = {blocks_prepare, blocks_measure, blocks_drain};
    arguments[PATTERN].value = pattern;
    arguments[SIZE].value = size;
    bench_run(&phases);
    bench_report();
}

int main(int argc, char **argv)
{
    uint64_t pattern;
    uint64_t size;
    bench_start(&workload, argc, argv);
    pattern = arguments[PATTERN].value;
    size = arguments[SIZE].value;
    if (pattern == MIXED && size != SIZE_ALL) {
        bench_fail_usage("mixed uses all four sizes: SIZE must be all.");
    }
    survivors_all =
        bench_map(bench_thread_count() * sizeof *survivors_all * LONG_ROUNDS * LONG_COUNT);
    tables_draw((uint32_t)arguments[SEED].value);
    for (uint64_t p = 0; p < PATTERN_ALL; p++) {
        for (uint64_t s = 0; s <= SIZE_ALL; s++) {
            bool is_wanted = (pattern == PATTERN_ALL || pattern == p) &&
                             (size == SIZE_ALL || size == s || p == MIXED);
            if (is_wanted && (p == MIXED) == (s == SIZE_ALL)) {
                case_run(p, s);
            }
        }
    }
    return 0;
}
