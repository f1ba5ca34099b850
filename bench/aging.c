/* SPDX-License-Identifier: MIT */
/* aging.c: days of a server in a second; how much memory is held in the end for what lives?
 *
 * Imitates, by PATTERN:
 *   drift        values that grow over months: 40 phases of blocks, each a little larger than those
 *                of the phase before; seven in a hundred stay
 *   survivors    a burst of 512, 1,024 and 2,048 bytes, of which one in twenty stays
 *   nightly      a service with small blocks; each night a job with buffers of 8 to 256 KiB and
 *                many small blocks leaves one in 50 behind
 *   cache        a cache with a limit on its bytes and random eviction, whose values grow from some
 *                hundred bytes to 16 KiB
 *   sessions     bursts of requests, freed in random order; one block in 50 lives for ten bursts
 *   connections  buffers that grow and shrink with each message (realloc); ten days with many
 *                connections and ten nights with a tenth of them
 *
 * COUNT scales the blocks of each. All bytes of a block are written. In each of ROUNDS it happens
 * again to what the round before left: a few thousand are a soak of hours. At the end the process
 * rests for IDLE seconds, with 20 malloc and free pairs at each hundredth of that. The notes:
 * rss_idle_kib what is held then, live_kib what was requested and is live, live_peak_kib the most
 * that was.
 *
 * Does not show: time, of which writing the blocks is the larger part. Shares and sizes are the
 * project's own choice, except drift and survivors, which follow reports to other allocators
 * (jemalloc issue 2268, mimalloc-pprof pull request 334).
 */
#include "harness.h"

#include <string.h>

enum { PATTERN, COUNT, IDLE, SEED, ROUNDS, ARGUMENT_COUNT };
enum { STEPS = 100, STEP_PAIRS = 20, PAIR_RANGE = 512 };

static const char *const pattern_names[] = {"drift",    "survivors",   "nightly", "cache",
                                            "sessions", "connections", NULL};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_CHOICE(PATTERN, "what happens", pattern_names, 0, 0),
    BENCH_COUNT(COUNT, "how much of it", 100000, 3000, 1000, 10000000),
    BENCH_TIME(IDLE, "how long the process rests", 3000, 100, 100, 86400000),
    BENCH_SEED,
    BENCH_COUNT(ROUNDS, "how often it happens", 1, 1, 1, 1000000000),
};

BENCH_WORKLOAD("aging",
               "Lets a heap grow old and rests; what memory is left for the bytes that live?");

struct block {
    unsigned char *start;
    uint32_t size;
};

/* One thread's heap. */
struct life {
    struct block *blocks; /* start NULL: none */
    uint32_t count;       /* COUNT */
    uint32_t state;       /* random numbers */
    uint64_t operations;
    uint64_t live_size;
    uint64_t live_peak_size;
    struct bench_latency *latency;
};

static pthread_barrier_t idle_over;
static _Atomic uint64_t shared_live_size; /* of all threads; they order nothing */
static _Atomic uint64_t shared_live_peak_size;

static void life_count(struct life *life, uint32_t added_size)
{
    life->operations++;
    life->live_size += added_size;
    if (life->live_size > life->live_peak_size) {
        life->live_peak_size = life->live_size;
    }
}

static void drop(struct life *life, uint32_t slot)
{
    struct block *block = &life->blocks[slot];
    if (block->start != NULL) {
        bench_free(life->latency, block->start);
        life->operations++;
        life->live_size -= block->size;
        block->start = NULL;
    }
}

/* The slot may have a block of the round before. */
static void put(struct life *life, uint32_t slot, uint32_t size)
{
    drop(life, slot);
    unsigned char *start = bench_malloc(life->latency, size);
    memset(start, 1, size);
    life->blocks[slot] = (struct block){start, size};
    life_count(life, size);
}

static void resize(struct life *life, uint32_t slot, uint32_t size)
{
    struct block *block = &life->blocks[slot];
    unsigned char *start = realloc(block->start, size);
    if (start == NULL) {
        bench_fail_memory(size);
    }
    if (size > block->size) {
        memset(start + block->size, 1, size - block->size);
    }
    life->live_size -= block->size;
    *block = (struct block){start, size};
    life_count(life, size);
}

static uint32_t below(struct life *life, uint32_t limit)
{
    return bench_random_below(&life->state, limit);
}

/* Each doubling from 2^low to 2^high bytes as likely. */
static uint32_t size_of(struct life *life, uint32_t low, uint32_t high)
{
    uint32_t least = UINT32_C(1) << (low + below(life, high - low));
    return least + below(life, least);
}

/* Drops the blocks of `count` slots from `first` on in random order; one in `kept` stays, kept 0:
 * none. What stays is at the front afterwards. Returns how many. */
static uint32_t thin(struct life *life, uint32_t first, uint32_t count, uint32_t kept)
{
    struct block *blocks = life->blocks + first;
    uint32_t stay_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = i + below(life, count - i);
        struct block chosen = blocks[other];
        blocks[other] = blocks[i];
        blocks[i] = chosen;
        if (kept == 0 || below(life, kept) != 0) {
            drop(life, first + i);
        } else {
            blocks[i].start = NULL;
            blocks[stay_count++] = chosen;
        }
    }
    return stay_count;
}

static void drift(struct life *life)
{
    uint32_t used = 0, phase_count = life->count / 4;
    for (uint32_t phase = 0; phase < 40; phase++) {
        for (uint32_t i = 0; i < phase_count; i++) {
            put(life, used + i, 40 + phase * 37 + below(life, 20 + phase * 10));
        }
        used += thin(life, used, phase_count, 14);
    }
}

static void survivors(struct life *life)
{
    for (uint32_t i = 0; i < life->count; i++) {
        put(life, i, i % 6 < 3 ? 512 : i % 6 < 5 ? 1024 : 2048);
    }
    (void)thin(life, 0, life->count, 20);
}

static void nightly(struct life *life)
{
    uint32_t base = life->count / 2, used = base, job = life->count / 2;
    for (uint32_t i = 0; i < base; i++) {
        put(life, i, size_of(life, 5, 10));
    }
    for (uint32_t night = 0; night < 20; night++) {
        for (uint32_t i = 0; i < job; i++) {
            put(life, used + i, i % 100 == 0 ? size_of(life, 13, 18) : size_of(life, 4, 11));
        }
        used += thin(life, used, job, 50);
        for (uint32_t i = 0; i < base / 5; i++) {
            uint32_t slot = below(life, base);
            drop(life, slot);
            put(life, slot, size_of(life, 5, 10));
        }
    }
}

static void cache(struct life *life)
{
    uint64_t limit = (uint64_t)life->count * 640;
    for (uint32_t stage = 0; stage < 7; stage++) {
        for (uint32_t i = 0; i < life->count; i++) {
            uint32_t size = size_of(life, 5 + stage, 8 + stage);
            while (life->live_size + size > limit) {
                drop(life, below(life, life->count));
            }
            uint32_t slot = below(life, life->count);
            drop(life, slot);
            put(life, slot, size);
        }
    }
}

static void sessions(struct life *life)
{
    enum { BURSTS = 20, LIVES = 10, ONE_IN = 50 };
    uint32_t kept = life->count / ONE_IN;
    for (uint32_t burst = 0; burst < BURSTS; burst++) {
        uint32_t own = burst % LIVES * kept; /* the slots of the sessions of ten bursts ago */
        for (uint32_t i = 0; i < life->count; i++) {
            put(life, LIVES * kept + i, size_of(life, 4, 11));
            if (i % ONE_IN == 0 && i / ONE_IN < kept) {
                drop(life, own + i / ONE_IN);
                put(life, own + i / ONE_IN, size_of(life, 4, 11));
            }
        }
        (void)thin(life, LIVES * kept, life->count, 0);
    }
}

/* A connection has five blocks: its struct, two strings, a read and a write buffer. */
static void connection_open(struct life *life, uint32_t first)
{
    put(life, first, 600);
    put(life, first + 1, size_of(life, 4, 8));
    put(life, first + 2, size_of(life, 4, 8));
    put(life, first + 3, 4096);
    put(life, first + 4, 16384);
}

static void connections(struct life *life)
{
    enum { BLOCKS = 5, READ = 3 };
    uint32_t count = life->count / 25;
    for (uint32_t day = 0; day < 10; day++) {
        for (uint32_t i = 0; i < count; i++) {
            if (life->blocks[i * BLOCKS].start == NULL) {
                connection_open(life, i * BLOCKS);
            }
        }
        for (uint32_t i = 0; i < 4 * count; i++) {
            uint32_t slot = below(life, count) * BLOCKS + READ;
            resize(life, slot, size_of(life, 10, 16));
            resize(life, slot, 1 + below(life, life->blocks[slot].size));
        }
        for (uint32_t i = 0; i < count; i++) {
            bool closes = below(life, 10) != 0;
            for (uint32_t block = 0; closes && block < BLOCKS; block++) {
                drop(life, i * BLOCKS + block);
            }
        }
    }
}

static void (*const patterns[])(struct life *life) = {drift, survivors, nightly,
                                                      cache, sessions,  connections};

static void life_map(struct bench_thread *thread)
{
    struct life *life = bench_map(sizeof *life);
    life->count = (uint32_t)arguments[COUNT].value;
    life->blocks = bench_map((size_t)life->count * 2 * sizeof *life->blocks);
    life->state = thread->seed;
    life->latency = thread->latency;
    thread->data = life;
}

static void life_measure(struct bench_thread *thread)
{
    struct life *life = thread->data;
    for (uint64_t round = 0; round < arguments[ROUNDS].value; round++) {
        patterns[arguments[PATTERN].value](life);
    }
    thread->operations = life->operations;
    shared_live_size += life->live_size;
    shared_live_peak_size += life->live_peak_size;
}

/* The compiler may not drop a pair. */
static void life_rest(struct life *life)
{
    uint64_t step_ns = arguments[IDLE].value * 1000000 / STEPS;
    struct timespec pause = {.tv_sec = (time_t)(step_ns / 1000000000),
                             .tv_nsec = (long)(step_ns % 1000000000)};
    for (uint32_t step = 0; step < STEPS; step++) {
        (void)nanosleep(&pause, NULL);
        for (uint32_t i = 0; i < STEP_PAIRS; i++) {
            unsigned char *volatile block = bench_malloc(NULL, 1 + below(life, PAIR_RANGE));
            block[0] = 1;
            free(block);
        }
    }
}

/* One thread looks while the others wait at the barrier. */
static void life_drain(struct bench_thread *thread)
{
    struct life *life = thread->data;
    life_rest(life);
    if (thread->index == 0) {
        bench_idle(0);
    }
    (void)pthread_barrier_wait(&idle_over);
    for (uint32_t slot = 0; slot < 2 * life->count; slot++) {
        drop(life, slot);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {life_map, life_measure, life_drain};
    bench_start(&workload, argc, argv);
    (void)pthread_barrier_init(&idle_over, NULL, bench_thread_count());
    bench_run(&phases);
    bench_note("live_kib", NULL, shared_live_size / 1024);
    bench_note("live_peak_kib", NULL, shared_live_peak_size / 1024);
    bench_report();
    return 0;
}
