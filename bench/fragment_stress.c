/* SPDX-License-Identifier: MIT */
/* fragment_stress.c: sizes change while half of the older objects stay. The workload of this name
 * of hakmem's predecessor.
 *
 * Imitates: a long-running program whose load changes character: caches keep what they have while
 * new requests need other sizes. Each round fills the free half of BLOCKS slots with blocks of BASE
 * to 2 * BASE - 1 bytes, head and end written, then checks and frees a random half of all. BASE
 * goes through 16, 24, 40, 64, 100, 160, 256, 400, 640 and 1000, round by round, so that new blocks
 * rarely fit where old ones were and survivors of up to ten sizes hold pages that others need. A
 * block is two operations. "live_peak_kib" in the result is the most that was asked for and not yet
 * freed, heads included: rss_peak_kib less harness_kib over it is the price of fragmentation.
 *
 * Does not show: survivors that stay for ever (each round halves them), blocks above 2 KB, memory
 * given back while idle. With the usual 20,000 slots cache misses are part of the figure. Threads
 * (--threads N: N times BLOCKS slots) share nothing; their peaks are added.
 */
#include "harness.h"

enum { ROUNDS, BLOCKS, SEED, ARGUMENT_COUNT };

struct block {
    uint32_t size;
    uint32_t mark;
    unsigned char text[];
};

/* A thread's slots; the first `empty_count` hold nothing. */
struct field {
    struct block **slots;
    uint32_t empty_count;
    uint64_t live_size;
    uint64_t live_size_max;
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "rounds of each thread", 500, 20, 1, 1000000000),
    BENCH_COUNT(BLOCKS, "slots of each thread, an even number", 20000, 2000, 2, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("fragment_stress",
               "Frees a random half of its blocks and refills with another size, each round.");

static struct field *fields;

static void field_map(struct bench_thread *thread)
{
    struct field *field = &fields[thread->index];
    field->slots = bench_map(arguments[BLOCKS].value * sizeof(struct block *));
    field->empty_count = (uint32_t)arguments[BLOCKS].value;
}

BENCH_INLINE void field_fill(struct field *field, uint32_t base, uint32_t *state,
                             struct bench_latency *latency)
{
    for (uint32_t i = 0; i < field->empty_count; i++) {
        uint32_t size = base + bench_random_below(state, base);
        struct block *block = bench_malloc(latency, size);
        block->size = size;
        block->mark = size & 0xFF;
        block->text[size - sizeof *block - 1] = (unsigned char)size;
        field->slots[i] = block;
        field->live_size += size;
    }
    if (field->live_size > field->live_size_max) {
        field->live_size_max = field->live_size;
    }
    field->empty_count = 0;
}

/* Draws the half to free into the first slots (the start of a shuffle after Fisher and Yates). */
BENCH_INLINE void field_thin(struct field *field, uint32_t block_count, uint32_t *state,
                             struct bench_latency *latency)
{
    for (uint32_t i = 0; i < block_count / 2; i++) {
        uint32_t victim = i + bench_random_below(state, block_count - i);
        struct block *block = field->slots[victim];
        field->slots[victim] = field->slots[i];
        if (block->text[block->size - sizeof *block - 1] != block->mark) {
            bench_fail_run("a block has changed while it lived.");
        }
        field->live_size -= block->size;
        bench_free(latency, block);
    }
    field->empty_count = block_count / 2;
}

BENCH_INLINE void field_run(struct bench_thread *thread, struct bench_latency *latency)
{
    static const uint32_t bases[] = {16, 24, 40, 64, 100, 160, 256, 400, 640, 1000};
    struct field *field = &fields[thread->index];
    uint64_t round_count = arguments[ROUNDS].value;
    uint32_t block_count = (uint32_t)arguments[BLOCKS].value;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < round_count; round++) {
        thread->operations += field->empty_count + block_count / 2;
        field_fill(field, bases[round % (sizeof bases / sizeof bases[0])], &state, latency);
        field_thin(field, block_count, &state, latency);
    }
}

BENCH_MEASURE(field_measure, field_run)

static void field_drain(struct bench_thread *thread)
{
    struct field *field = &fields[thread->index];
    for (uint64_t i = field->empty_count; i < arguments[BLOCKS].value; i++) {
        free(field->slots[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {field_map, field_measure, field_drain};
    uint64_t live_size = 0;
    bench_start(&workload, argc, argv);
    if (arguments[BLOCKS].value % 2 != 0) {
        bench_fail_usage("BLOCKS must be even.");
    }
    fields = bench_map(bench_thread_count() * sizeof *fields);
    bench_run(&phases);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        live_size += fields[i].live_size_max;
    }
    bench_note("live_peak_kib", NULL, live_size / 1024);
    bench_report();
    return 0;
}
