/* SPDX-License-Identifier: MIT */
/* random_sizes.c: blocks of 1 byte to 16 KiB that live for a random time; some change threads.
 *
 * Imitates: a server without structure: requests arrive at random, what they allocate lives for an
 * unrelated time, some of it is finished by another thread. In each step a thread allocates one
 * block, first and last byte written, whose size is the smaller of two uniform draws from 1 to
 * 16,384 (small ones are more frequent, falling linearly), and frees what is due. Lifetimes are
 * exponential with a mean of LIVE steps, so that the number of live blocks is Poisson distributed
 * around LIVE. HANDOVER of 100 blocks go at once to the next thread, which gives them a lifetime of
 * its own and frees them (one thread alone: to itself, by the same way). After the description of
 * `rptest` in the READMEs of M. Jansson's rpmalloc-benchmark and of mimalloc-bench: random sizes
 * and lifetimes, frees across threads; the distributions are the project's own choice.
 *
 * Does not show: lifetimes that depend on size. Finding what is due (a wheel of as many slots as
 * the longest lifetime has steps) costs each allocator the same 10 to 20 ns a step. A thread that
 * the system does not run does not empty its inbox of 4096 blocks; then its neighbour keeps what it
 * wanted to hand over. So with more threads than cores fewer change hands: the note handed_over
 * says how many.
 */
#include "harness.h"
#include "ring.h"

#include <math.h>

enum { STEPS, LIVE, HANDOVER, SEED, THREADS, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(STEPS, "blocks each thread allocates", 10000000, 100000, 1,
                UINT64_C(1000000000000)),
    BENCH_COUNT(LIVE, "mean lifetime in steps, so the mean number of live blocks", 1000, 1000, 1,
                10000000),
    BENCH_COUNT(HANDOVER, "percent of the blocks that go to the next thread", 20, 20, 0, 100),
    BENCH_SEED,
    BENCH_COUNT(THREADS, "threads", 1, 2, 1, BENCH_THREADS_MAX),
};

BENCH_WORKLOAD("random_sizes",
               "Allocates blocks up to 16 KiB with random lifetimes; some change threads.");

enum { SIZE_MAX_LIVE = 16384, LIFETIME_COUNT = 4096, INBOX_COUNT = 4096, NONE = 0 };

/* Quantiles of the exponential distribution in steps, each at least 1; read-only when running. */
static uint32_t lifetimes[LIFETIME_COUNT];
static uint32_t lifetime_max;

/* A live block and the next one that is due in the same step, by index; index 0 is nobody. */
struct entry {
    unsigned char *block;
    uint32_t next;
};

struct lane {
    struct ring inbox; /* the thread before writes it */
    struct ring *next; /* of the next thread; its own if there is no other */
    struct entry *entries;
    uint32_t *wheel; /* slot `due step mod (lifetime_max + 1)`: the first entry */
    uint32_t unused; /* the first of the unused entries */
    uint32_t hand;   /* the wheel's slot of this step */
    uint64_t handed_count;
    uint64_t operations;
};

static struct lane *lanes;

static void lifetimes_fill(void)
{
    for (uint32_t i = 0; i < LIFETIME_COUNT; i++) {
        double quantile = (i + 0.5) / LIFETIME_COUNT;
        lifetimes[i] = 1 + (uint32_t)(-log(1 - quantile) * (double)arguments[LIVE].value);
    }
    lifetime_max = lifetimes[LIFETIME_COUNT - 1];
}

static void lane_prepare(struct bench_thread *thread)
{
    struct lane *lane = &lanes[thread->index];
    /* More than four times the mean number alive: a thread whose neighbour is faster. */
    uint32_t entry_count = 4 * (uint32_t)arguments[LIVE].value + INBOX_COUNT;
    lane->next = &lanes[(thread->index + 1) % bench_thread_count()].inbox;
    ring_open(&lane->inbox, INBOX_COUNT);
    lane->entries = bench_map((entry_count + 1) * sizeof *lane->entries);
    lane->wheel = bench_map((lifetime_max + 1) * sizeof *lane->wheel);
    for (uint32_t i = 1; i < entry_count; i++) {
        lane->entries[i].next = i + 1;
    }
    lane->unused = 1;
    thread->data = lane;
}

/* Frees it when its time has come; at once if this thread has too many. */
BENCH_INLINE void block_keep(struct lane *lane, unsigned char *block, uint32_t lifetime,
                             struct bench_latency *latency)
{
    uint32_t slot = lane->hand + lifetime;
    uint32_t index = lane->unused;
    slot = slot > lifetime_max ? slot - lifetime_max - 1 : slot;
    if (index == NONE) {
        bench_free(latency, block);
        lane->operations++;
        return;
    }
    lane->unused = lane->entries[index].next;
    lane->entries[index] = (struct entry){.block = block, .next = lane->wheel[slot]};
    lane->wheel[slot] = index;
}

BENCH_INLINE void due_free(struct lane *lane, uint32_t slot, struct bench_latency *latency)
{
    uint32_t index = lane->wheel[slot];
    while (index != NONE) {
        struct entry *entry = &lane->entries[index];
        uint32_t next = entry->next;
        bench_free(latency, entry->block);
        lane->operations++;
        entry->next = lane->unused;
        lane->unused = index;
        index = next;
    }
    lane->wheel[slot] = NONE;
}

BENCH_INLINE uint32_t lifetime_draw(uint32_t *state)
{
    return lifetimes[bench_random_below(state, LIFETIME_COUNT)];
}

BENCH_INLINE unsigned char *block_new(uint32_t *state, struct bench_latency *latency)
{
    uint32_t one = 1 + bench_random_below(state, SIZE_MAX_LIVE);
    uint32_t other = 1 + bench_random_below(state, SIZE_MAX_LIVE);
    uint32_t size = one < other ? one : other;
    unsigned char *block = bench_malloc(latency, size);
    block[0] = (unsigned char)size;
    block[size - 1] = (unsigned char)size;
    return block;
}

BENCH_INLINE void steps_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct lane *lane = thread->data;
    uint64_t step_count = arguments[STEPS].value;
    uint32_t percent = (uint32_t)arguments[HANDOVER].value;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < step_count; step++) {
        unsigned char *block = block_new(&state, latency);
        unsigned char *given = ring_pop(&lane->inbox);
        lane->operations++;
        if (bench_random_below(&state, 100) < percent && ring_push(lane->next, block)) {
            lane->handed_count++;
        } else {
            block_keep(lane, block, lifetime_draw(&state), latency);
        }
        if (given != NULL) {
            block_keep(lane, given, lifetime_draw(&state), latency);
        }
        lane->hand = lane->hand == lifetime_max ? 0 : lane->hand + 1;
        due_free(lane, lane->hand, latency);
    }
    thread->operations = lane->operations;
}

BENCH_MEASURE(lane_measure, steps_run)

static void lane_drain(struct bench_thread *thread)
{
    struct lane *lane = thread->data;
    unsigned char *given;
    for (uint32_t slot = 0; slot <= lifetime_max; slot++) {
        due_free(lane, slot, NULL);
    }
    while ((given = ring_pop(&lane->inbox)) != NULL) {
        free(given);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {lane_prepare, lane_measure, lane_drain};
    uint64_t handed_count = 0;
    bench_start(&workload, argc, argv);
    lifetimes_fill();
    lanes = bench_map(bench_thread_count() * sizeof *lanes);
    bench_run(&phases);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        handed_count += lanes[i].handed_count;
    }
    bench_note("handed_over", NULL, handed_count);
    bench_report();
    return 0;
}
