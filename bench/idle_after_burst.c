/* SPDX-License-Identifier: MIT */
/* idle_after_burst.c: a burst of memory is freed; the process then does very little. What is left?
 *
 * Imitates: a server after its rush hour, or a cache after a flush. BYTES bytes in blocks of 16 to
 * 1039 bytes are allocated, written, and all freed in random order. For IDLE seconds the process
 * then does PAIRS malloc and free pairs a second, as a timer would, and sleeps between them. The
 * notes rss_idle_kib and lazyfree_idle_kib say what memory it holds at the end. The pairs come from
 * a thread cache, so an allocator that gives memory back only in rare slow calls keeps everything.
 *
 * Does not show: the cost of giving memory back under load (only the burst is timed); processes
 * that really sleep (PAIRS 0 shows these). --threads N: each thread has a burst and a timer.
 */
#include "harness.h"

enum { BYTES, PAIRS, IDLE, SEED, ARGUMENT_COUNT };
enum {
    BLOCK_MIN = 16,
    BLOCK_RANGE = 1024,
    PAIR_RANGE = 512,
    BLOCK_MEAN = BLOCK_MIN + BLOCK_RANGE / 2
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(BYTES, "bytes each thread allocates and frees, about", 100000000, 4000000,
                BLOCK_MEAN, UINT64_C(1) << 40),
    BENCH_COUNT(PAIRS, "malloc and free pairs a second afterwards", 100, 100, 0, 1000),
    BENCH_TIME(IDLE, "how long that goes on", 3000, 100, 0, 86400000),
    BENCH_SEED,
};

BENCH_WORKLOAD("idle_after_burst",
               "Frees much memory, then hardly calls the allocator; what memory is left then?");

static pthread_barrier_t idle_over;

static uint64_t block_count(void)
{
    return arguments[BYTES].value / BLOCK_MEAN;
}

static void blocks_map(struct bench_thread *thread)
{
    thread->data = bench_map(block_count() * sizeof(unsigned char *));
}

/* Shuffled on the way: each goes to a random place, what was there to the end. */
BENCH_INLINE void blocks_run(struct bench_thread *thread, struct bench_latency *latency)
{
    unsigned char **blocks = thread->data;
    uint32_t state = thread->seed;
    uint64_t count = block_count();
    for (uint64_t i = 0; i < count; i++) {
        uint32_t size = BLOCK_MIN + bench_random_below(&state, BLOCK_RANGE);
        uint32_t other = bench_random_below(&state, (uint32_t)i + 1);
        unsigned char *block = bench_malloc(latency, size);
        block[0] = (unsigned char)size;
        block[size - 1] = (unsigned char)size;
        blocks[i] = blocks[other];
        blocks[other] = block;
    }
    for (uint64_t i = 0; i < count; i++) {
        bench_free(latency, blocks[i]);
    }
    thread->operations = 2 * count;
}

BENCH_MEASURE(blocks_measure, blocks_run)

/* The compiler may not drop a pair. */
static void pair_run(uint32_t *state)
{
    unsigned char *volatile block = bench_malloc(NULL, 1 + bench_random_below(state, PAIR_RANGE));
    block[0] = 1;
    free(block);
}

static void pairs_run(struct bench_thread *thread)
{
    uint32_t state = thread->seed;
    uint64_t pair_count = arguments[PAIRS].value * arguments[IDLE].value / 1000;
    struct timespec pause = {0};
    uint64_t pause_ns;
    if (pair_count == 0) {
        pause_ns = arguments[IDLE].value * 1000000;
        pair_count = 1;
    } else {
        pause_ns = arguments[IDLE].value * 1000000 / pair_count;
    }
    pause.tv_sec = (time_t)(pause_ns / 1000000000);
    pause.tv_nsec = (long)(pause_ns % 1000000000);
    for (uint64_t i = 0; i < pair_count; i++) {
        struct timespec left = pause;
        while (nanosleep(&left, &left) != 0) {
        }
        if (arguments[PAIRS].value != 0) {
            pair_run(&state);
        }
    }
}

/* One thread looks while the others wait at the barrier. */
static void blocks_idle(struct bench_thread *thread)
{
    pairs_run(thread);
    if (thread->index == 0) {
        bench_idle(0);
    }
    (void)pthread_barrier_wait(&idle_over);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {blocks_map, blocks_measure, blocks_idle};
    bench_start(&workload, argc, argv);
    (void)pthread_barrier_init(&idle_over, NULL, bench_thread_count());
    bench_run(&phases);
    bench_report();
    return 0;
}
