/* SPDX-License-Identifier: MIT */
/* batch.c: batches of thousands of objects are allocated, then freed in one of four orders. The
 * orders `sh6` and `sh8` after what is said of MicroQuill's SmartHeap benchmarks sh6bench and
 * sh8bench in D. Leijen, B. Zorn and L. de Moura, "Mimalloc: free list sharding in action", 2019:
 * some objects are freed in the order last allocated, first freed, others in reverse; in sh8 with
 * threads that free objects of other threads.
 *
 * Imitates: work in large units, such as queries, frames, transactions or compiler passes. Each
 * round allocates BATCH objects of 1 to 1024 bytes (the smaller of two draws: a third are below
 * 188), writes first and last byte, and by ORDER frees
 *   lifo   all, last to first
 *   fifo   all, first to last
 *   sh6    the younger half, last to first; the older half when the next batch is complete, first
 *          to last
 *   sh8    the younger half, last to first; the older half goes to the next thread, which frees
 *          it first to last
 * An object is two operations. Thousands of objects do not fit in a thread's cache of most
 * allocators, so that their way to the level below it is run through each time.
 *
 * Does not show: random lifetimes, objects that are read again. In sh8 the pointers are copied to
 * the next thread, and a thread whose last batch has not been fetched waits with sched_yield. One
 * thread is its own next one.
 */
#include "harness.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { ORDER, ROUNDS, BATCH, SEED, ARGUMENT_COUNT };
enum order { LIFO, FIFO, SH6, SH8 };

static const char *const order_words[] = {"lifo", "fifo", "sh6", "sh8", NULL};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_CHOICE(ORDER, "order of freeing", order_words, SH6, SH8),
    BENCH_COUNT(ROUNDS, "batches of each thread", 3000, 30, 1, 1000000000),
    BENCH_COUNT(BATCH, "objects of a batch, an even number", 6000, 2000, 2, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("batch",
               "Allocates batches of objects of 1 to 1024 bytes and frees them in some order.");

/* A thread's batch, and half a batch that waits: in sh6 its own older half, in sh8 what the
 * previous thread has put there. The flag is the sender's while false, the owner's while true. */
struct lane {
    unsigned char **batch;
    unsigned char **waiting;
    uint64_t received_count; /* halves, the owner's */
    _Atomic bool shared_is_full;
} __attribute__((aligned(BENCH_LINE)));

static struct lane *lanes;

static void lane_map(struct bench_thread *thread)
{
    struct lane *lane = &lanes[thread->index];
    lane->batch = bench_map(arguments[BATCH].value * sizeof *lane->batch);
    lane->waiting = bench_map(arguments[BATCH].value / 2 * sizeof *lane->waiting);
}

BENCH_INLINE void batch_fill(unsigned char **batch, size_t count, uint32_t *state,
                             struct bench_latency *latency)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t r = bench_random(state);
        uint32_t size_a = 1 + (r >> 22);
        uint32_t size_b = 1 + ((r >> 12) & 0x3FF);
        uint32_t size = size_a < size_b ? size_a : size_b;
        batch[i] = bench_malloc(latency, size);
        batch[i][0] = (unsigned char)r;
        batch[i][size - 1] = (unsigned char)r;
    }
}

BENCH_INLINE void blocks_free_up(unsigned char **blocks, size_t count,
                                 struct bench_latency *latency)
{
    for (size_t i = 0; i < count; i++) {
        bench_free(latency, blocks[i]);
    }
}

BENCH_INLINE void blocks_free_down(unsigned char **blocks, size_t count,
                                   struct bench_latency *latency)
{
    for (size_t i = count; i-- > 0;) {
        bench_free(latency, blocks[i]);
    }
}

/* Frees what the previous thread has sent, if it has. */
BENCH_INLINE bool lane_receive(struct lane *lane, struct bench_latency *latency)
{
    /* Acquire, with the release of lane_send: pointers and objects have been written. */
    if (!atomic_load_explicit(&lane->shared_is_full, memory_order_acquire)) {
        return false;
    }
    blocks_free_up(lane->waiting, arguments[BATCH].value / 2, latency);
    lane->received_count++;
    /* Release, with the acquire of lane_send: the pointers have been read. */
    atomic_store_explicit(&lane->shared_is_full, false, memory_order_release);
    return true;
}

/* Waits until `next` has fetched the half sent before; receives meanwhile, so that a circle of
 * threads that wait is never closed. */
BENCH_INLINE void lane_send(struct lane *lane, struct lane *next, struct bench_latency *latency)
{
    while (atomic_load_explicit(&next->shared_is_full, memory_order_acquire)) {
        if (!lane_receive(lane, latency)) {
            (void)sched_yield();
        }
    }
    memcpy(next->waiting, lane->batch, arguments[BATCH].value / 2 * sizeof *next->waiting);
    atomic_store_explicit(&next->shared_is_full, true, memory_order_release);
}

BENCH_INLINE void batches_run(enum order order, struct bench_thread *thread,
                              struct bench_latency *latency)
{
    struct lane *lane = &lanes[thread->index];
    struct lane *next = &lanes[(thread->index + 1) % bench_thread_count()];
    uint64_t round_count = arguments[ROUNDS].value;
    size_t count = arguments[BATCH].value;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < round_count; round++) {
        batch_fill(lane->batch, count, &state, latency);
        if (order == LIFO) {
            blocks_free_down(lane->batch, count, latency);
        } else if (order == FIFO) {
            blocks_free_up(lane->batch, count, latency);
        } else {
            blocks_free_down(lane->batch + count / 2, count / 2, latency);
        }
        if (order == SH6) {
            blocks_free_up(lane->waiting, round == 0 ? 0 : count / 2, latency);
            memcpy(lane->waiting, lane->batch, count / 2 * sizeof *lane->waiting);
        } else if (order == SH8) {
            (void)lane_receive(lane, latency);
            lane_send(lane, next, latency);
        }
    }
    while (order == SH8 && lane->received_count < round_count) {
        if (!lane_receive(lane, latency)) {
            (void)sched_yield();
        }
    }
    if (order == SH6) {
        blocks_free_up(lane->waiting, count / 2, latency);
    }
    thread->operations = 2 * count * round_count;
}

BENCH_INLINE void order_run(struct bench_thread *thread, struct bench_latency *latency)
{
    switch (arguments[ORDER].value) {
    case LIFO:
        batches_run(LIFO, thread, latency);
        break;
    case FIFO:
        batches_run(FIFO, thread, latency);
        break;
    case SH6:
        batches_run(SH6, thread, latency);
        break;
    default:
        batches_run(SH8, thread, latency);
        break;
    }
}

BENCH_MEASURE(order_measure, order_run)

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {lane_map, order_measure, NULL};
    bench_start(&workload, argc, argv);
    if (arguments[BATCH].value % 2 != 0) {
        bench_fail_usage("BATCH must be even.");
    }
    lanes = bench_map(bench_thread_count() * sizeof *lanes);
    bench_run(&phases);
    bench_report();
    return 0;
}
