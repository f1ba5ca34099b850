/* SPDX-License-Identifier: MIT */
/* realloc_growth.c: several vectors grow side by side by realloc, from one byte to LIMIT.
 *
 * Imitates: dynamic arrays, string builders and receive buffers as languages with realloc keep them
 * (vectors of Rust and Zig, lists of Python, strings of redis). In each round VECTORS vectors start
 * with one byte; each step draws one that is not yet full, makes it larger by PERCENT percent and
 * one byte, and writes one byte of each new OS page, and the last. A full one is freed. One
 * operation is a realloc or a free. As several grow in turn, none can count on the space behind it.
 * The shape is the project's own; the range follows what such vectors do in practice.
 *
 * Does not show: std::vector of C++, which cannot realloc, nor programs that read what they have
 * stored. Time is mostly copying, or the kernel's moving of pages (mremap), and the first faults of
 * the new part; a copying allocator also needs up to twice the memory for a moment (peak RSS).
 * --threads N: VECTORS of each thread, nothing is shared.
 */
#include "harness.h"

#include <string.h>

enum { ROUNDS, LIMIT, VECTORS, PERCENT, SEED, ARGUMENT_COUNT };
enum { VECTORS_MAX = 256, PAGE_STEP = 4096 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "times all vectors grow from one byte", 1, 2, 1, UINT64_C(1000000000)),
    BENCH_COUNT(LIMIT, "bytes of a full vector", UINT64_C(1) << 30, UINT64_C(4) << 20, 1,
                UINT64_C(1) << 40),
    BENCH_COUNT(VECTORS, "vectors of each thread that grow side by side", 2, 4, 1, VECTORS_MAX),
    BENCH_COUNT(PERCENT, "how much larger a step makes a vector", 50, 50, 1, 1000),
    BENCH_SEED,
};

BENCH_WORKLOAD("realloc_growth",
               "Grows several vectors side by side by realloc, from one byte to LIMIT.");

struct vector {
    unsigned char *data;
    uint64_t size;
};

static unsigned char *data_resize(unsigned char *data, uint64_t size, struct bench_latency *latency)
{
    uint64_t start_ns = latency == NULL ? 0 : bench_now_ns();
    data = realloc(data, size);
    if (latency != NULL) {
        bench_histogram_record(&latency->allocate, bench_now_ns() - start_ns);
    }
    if (data == NULL) {
        bench_fail_memory(size);
    }
    return data;
}

/* Before and after each step the first byte is 1 and the last is 2, but for one byte: 2. */
static void vector_grow(struct vector *vector, struct bench_latency *latency)
{
    uint64_t old_size = vector->size;
    uint64_t size = old_size + old_size * arguments[PERCENT].value / 100;
    size = 1 + (size < arguments[LIMIT].value - 1 ? size : arguments[LIMIT].value - 1);
    vector->data = data_resize(vector->data, size, latency);
    vector->size = size;
    if (old_size != 0 &&
        (vector->data[old_size - 1] != 2 || (old_size > 1 && vector->data[0] != 1))) {
        bench_fail_run("realloc did not keep the contents.");
    }
    for (uint64_t at = old_size; at < size; at += PAGE_STEP) {
        vector->data[at] = 3;
    }
    vector->data[0] = 1;
    vector->data[size - 1] = 2;
}

static void vectors_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[VECTORS].value * sizeof(struct vector));
}

static void round_run(struct bench_thread *thread, uint32_t *state)
{
    struct vector *vectors = thread->data;
    uint32_t vector_count = (uint32_t)arguments[VECTORS].value;
    memset(vectors, 0, vector_count * sizeof *vectors);
    while (vector_count != 0) {
        struct vector *vector = &vectors[bench_random_below(state, vector_count)];
        vector_grow(vector, thread->latency);
        thread->operations++;
        if (vector->size == arguments[LIMIT].value) {
            bench_free(thread->latency, vector->data);
            thread->operations++;
            *vector = vectors[--vector_count];
        }
    }
}

static void vectors_measure(struct bench_thread *thread)
{
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < arguments[ROUNDS].value; round++) {
        round_run(thread, &state);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {.prepare = vectors_map, .measure = vectors_measure};
    bench_start(&workload, argc, argv);
    bench_run(&phases);
    bench_report();
    return 0;
}
