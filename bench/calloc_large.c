/* SPDX-License-Identifier: MIT */
/* calloc_large.c: large zeroed tables of which only a little is ever used.
 *
 * Imitates: hash tables, bitmaps and sparse matrices that are sized for the worst case and rely on
 * calloc giving zeroed memory that costs nothing until it is touched. Each step frees the table in
 * a random one of four slots and callocs another there, of 1 MiB to MAX bytes, each power of two
 * equally likely and the size uniform within it; one byte in each 64 KiB is read, must be zero, and
 * is written: two operations. The shape is the project's own.
 *
 * Does not show: dense use of the tables. An allocator that hands out reused memory must clear it
 * (and so makes all of it resident); one that asks the kernel for each pays for the system calls
 * and the faults instead. Which of the two is better depends on how much is touched afterwards:
 * here it is a sixteenth of the pages. Where huge pages back a table, all of it becomes resident.
 * --threads N: four slots of each thread, nothing is shared.
 */
#include "harness.h"

enum { STEPS, MAX, SEED, ARGUMENT_COUNT };
enum { LIVE = 4, STRIDE = 64 << 10, SIZE_MIN = 1 << 20 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(STEPS, "tables each thread allocates", 20, 100, 1, UINT64_C(1000000000)),
    BENCH_COUNT(MAX, "bytes of the largest table", 1 << 30, 4 << 20, SIZE_MIN, 1 << 30),
    BENCH_SEED,
};

BENCH_WORKLOAD("calloc_large",
               "Replaces random ones of four large zeroed tables, each touched sparsely.");

static uint32_t size_draw(uint32_t *state)
{
    uint32_t size_max = (uint32_t)arguments[MAX].value;
    uint32_t power_count = 32u - (uint32_t)__builtin_clz(size_max / SIZE_MIN);
    uint32_t base = (uint32_t)SIZE_MIN << bench_random_below(state, power_count);
    uint32_t size = base + bench_random_below(state, base);
    return size < size_max ? size : size_max;
}

static unsigned char *table_new(struct bench_latency *latency, uint32_t size)
{
    uint64_t start_ns = latency == NULL ? 0 : bench_now_ns();
    unsigned char *table = calloc(1, size);
    if (latency != NULL) {
        bench_histogram_record(&latency->allocate, bench_now_ns() - start_ns);
    }
    if (table == NULL) {
        bench_fail_memory(size);
    }
    return table;
}

static void table_touch(unsigned char *table, uint32_t size)
{
    for (uint32_t at = 0; at < size; at += STRIDE) {
        if (table[at] != 0) {
            bench_fail_run("calloc gave memory that is not zero.");
        }
        table[at] = 1;
    }
}

static void slots_map(struct bench_thread *thread)
{
    thread->data = bench_map(LIVE * sizeof(unsigned char *));
}

static void tables_measure(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < arguments[STEPS].value; step++) {
        unsigned char **slot = &slots[bench_random_below(&state, LIVE)];
        uint32_t size = size_draw(&state);
        if (*slot != NULL) {
            bench_free(thread->latency, *slot);
            thread->operations++;
        }
        *slot = table_new(thread->latency, size);
        table_touch(*slot, size);
        thread->operations++;
    }
}

static void slots_drain(struct bench_thread *thread)
{
    unsigned char **slots = thread->data;
    for (size_t i = 0; i < LIVE; i++) {
        free(slots[i]);
    }
}

BENCH_MAIN(slots_map, tables_measure, slots_drain)
