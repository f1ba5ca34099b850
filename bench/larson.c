/* SPDX-License-Identifier: MIT */
/* larson.c: a server whose worker threads come and go and hand their live objects on, after P.
 * Larson and M. Krishnan, "Memory allocation for long-running server applications", ISMM 1998.
 *
 * Imitates: connections whose buffers outlive the thread that allocated them. Each of THREADS
 * lanes owns BLOCKS blocks. A step frees a random one of them and allocates MIN to MAX - 1 bytes
 * in its place, the first byte written: two operations. After BLOCKS * ROUNDS steps the thread
 * starts a successor, leaves it the blocks and ends; the successor frees blocks of a thread that
 * is no more. As in the usual program the main thread allocates the first blocks, shuffled, and
 * replaces each about four times before the clock starts; thread creation is part of the measured
 * time; the run ends after SLEEP seconds.
 *
 * Does not show: threads that free each other's objects while both run, objects that are read
 * again, sizes that depend on lifetime. With few ROUNDS it measures the creation of threads as
 * much as the allocator.
 */
#include "harness.h"

#include <semaphore.h>
#include <stdatomic.h>

enum { SLEEP, MIN, MAX, BLOCKS, ROUNDS, SEED, THREADS, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_TIME(SLEEP, "how long to run", 2000, 150, 1, 86400000),
    BENCH_COUNT(MIN, "smallest block in bytes", 8, 8, 1, UINT32_MAX - 1),
    BENCH_COUNT(MAX, "one more than the largest block", 1024, 1024, 2, UINT32_MAX),
    BENCH_COUNT(BLOCKS, "live blocks of each thread", 5000, 1000, 1, 100000000),
    BENCH_COUNT(ROUNDS, "life of a thread in times BLOCKS", 100, 20, 1, 1000000000),
    BENCH_COUNT(SEED, "start of the random numbers", 4141, 4141, 1, UINT32_MAX),
    BENCH_COUNT(THREADS, "threads at a time", 1, 2, 1, BENCH_THREADS_MAX),
};

BENCH_WORKLOAD("larson", "Threads replace random blocks, then leave them to a successor and end.");

/* What a thread leaves to its successor. One thread at a time owns it; pthread_create, and at the
 * end the semaphore, hand it on. */
struct lane {
    struct bench_thread *record;
    unsigned char **blocks;
    uint32_t random;
    uint64_t thread_count;
    pthread_t predecessor; /* to be joined, if thread_count > 1 */
    sem_t done;
} __attribute__((aligned(BENCH_LINE)));

static struct {
    _Atomic bool is_over; /* written once, by the main thread; orders nothing, hence relaxed */
} __attribute__((aligned(BENCH_LINE))) shared_stop;

static pthread_barrier_t start_ready;
static pthread_barrier_t start_go;

/* The absence of `latency` is a literal in every call, so that each caller gets its own loop. */
BENCH_INLINE uint64_t blocks_replace(struct lane *lane, uint64_t step_count,
                                     struct bench_latency *latency)
{
    unsigned char **blocks = lane->blocks;
    uint32_t block_count = (uint32_t)arguments[BLOCKS].value;
    uint32_t size_min = (uint32_t)arguments[MIN].value;
    uint32_t size_range = (uint32_t)arguments[MAX].value - size_min;
    uint32_t state = lane->random;
    uint64_t step = 0;
    while (step < step_count && !atomic_load_explicit(&shared_stop.is_over, memory_order_relaxed)) {
        uint32_t victim = bench_random_below(&state, block_count);
        uint32_t size = size_min + bench_random_below(&state, size_range);
        unsigned char *block;
        bench_free(latency, blocks[victim]);
        block = bench_malloc(latency, size);
        block[0] = (unsigned char)size;
        blocks[victim] = block;
        step++;
    }
    lane->random = state;
    return step;
}

static uint64_t lane_replace(struct lane *lane)
{
    struct bench_latency *latency = lane->record->latency;
    uint64_t step_count = arguments[BLOCKS].value * arguments[ROUNDS].value;
    return latency == NULL ? blocks_replace(lane, step_count, NULL)
                           : blocks_replace(lane, step_count, latency);
}

/* One thread's life. It joins its predecessor when it is done itself: that one has long ended, so
 * nobody waits, and after the last thread of a lane is joined none is left. */
static void *lane_thread(void *argument)
{
    struct lane *lane = argument;
    bool is_first = lane->thread_count++ == 0;
    if (is_first) {
        (void)pthread_barrier_wait(&start_ready);
        (void)pthread_barrier_wait(&start_go);
        lane->record->start_ns = bench_now_ns();
    }
    lane->record->operations += 2 * lane_replace(lane);
    if (!is_first) {
        (void)pthread_join(lane->predecessor, NULL);
    }
    lane->predecessor = pthread_self();
    if (atomic_load_explicit(&shared_stop.is_over, memory_order_relaxed)) {
        lane->record->end_ns = bench_now_ns();
        (void)sem_post(&lane->done);
    } else {
        (void)bench_thread_create(lane_thread, lane);
    }
    return NULL;
}

/* The main thread's part before the clock: allocate, shuffle, replace four times. */
static void lane_fill(struct lane *lane, struct bench_thread *record)
{
    uint32_t block_count = (uint32_t)arguments[BLOCKS].value;
    uint32_t size_min = (uint32_t)arguments[MIN].value;
    uint32_t size_range = (uint32_t)arguments[MAX].value - size_min;
    *lane = (struct lane){.record = record, .random = record->seed};
    (void)sem_init(&lane->done, 0, 0);
    lane->blocks = bench_map(block_count * sizeof *lane->blocks);
    for (uint32_t i = 0; i < block_count; i++) {
        uint32_t size = size_min + bench_random_below(&lane->random, size_range);
        uint32_t other = bench_random_below(&lane->random, i + 1);
        unsigned char *block = bench_malloc(NULL, size);
        block[0] = (unsigned char)size;
        lane->blocks[i] = lane->blocks[other];
        lane->blocks[other] = block;
    }
    (void)blocks_replace(lane, UINT64_C(4) * block_count, NULL);
}

static void lane_drain(struct lane *lane)
{
    for (uint64_t i = 0; i < arguments[BLOCKS].value; i++) {
        free(lane->blocks[i]);
    }
}

static void lanes_run(struct lane *lanes)
{
    unsigned count = bench_thread_count();
    struct timespec nap = {.tv_sec = (time_t)(arguments[SLEEP].value / 1000),
                           .tv_nsec = (long)(arguments[SLEEP].value % 1000) * 1000000};
    (void)pthread_barrier_init(&start_ready, NULL, count + 1);
    (void)pthread_barrier_init(&start_go, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        (void)bench_thread_create(lane_thread, &lanes[i]);
    }
    (void)pthread_barrier_wait(&start_ready);
    bench_interval_open();
    (void)pthread_barrier_wait(&start_go);
    while (nanosleep(&nap, &nap) != 0) {
    }
    atomic_store_explicit(&shared_stop.is_over, true, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) {
        while (sem_wait(&lanes[i].done) != 0) {
        }
        (void)pthread_join(lanes[i].predecessor, NULL);
    }
    bench_interval_close();
}

int main(int argc, char **argv)
{
    struct bench_thread *records;
    struct lane *lanes;
    uint64_t created_count = 0;
    bench_start(&workload, argc, argv);
    if (arguments[MIN].value >= arguments[MAX].value) {
        bench_fail_usage("MAX must be greater than MIN.");
    }
    records = bench_threads_reset();
    lanes = bench_map(bench_thread_count() * sizeof *lanes);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        lane_fill(&lanes[i], &records[i]);
    }
    lanes_run(lanes);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        lane_drain(&lanes[i]);
        created_count += lanes[i].thread_count;
    }
    bench_note("threads_created", NULL, created_count);
    bench_report();
    return 0;
}
