/* SPDX-License-Identifier: MIT */
/* migration.c: threads work on objects of their own and swap half of them with each other, again
 * and again.
 *
 * Imitates: work that moves between threads with its data: sessions rebalanced over the workers of
 * a server, tasks stolen from another's queue. Each thread has OBJECTS objects of 16 to 527 bytes
 * in two halves. A step checks and frees a random one of them and puts a new one in its place, head
 * and end written: two operations. After STEPS steps all threads meet and pass their second halves
 * on to the next thread; two threads thereby swap them. Objects that came along are then freed by
 * a thread that did not allocate them ("foreign_frees" in the result), and their memory is wanted
 * by the one that did.
 *
 * Does not show: threads that free each other's objects while the owner is at the same ones; the
 * passing on costs nothing here (a turn of the table and a barrier). One thread keeps its objects.
 * With more threads than cores the wait for the slowest is part of the figure.
 */
#include "harness.h"

enum { ROUNDS, STEPS, OBJECTS, SEED, ARGUMENT_COUNT };

struct object {
    uint32_t maker; /* index of the thread that allocated it */
    uint32_t text_size;
    unsigned char text[];
};

/* A thread's own half, and what it counts. */
struct lane {
    struct object **own;
    uint64_t foreign_count;
} __attribute__((aligned(BENCH_LINE)));

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "times that halves are passed on", 1000, 20, 1, 1000000000),
    BENCH_COUNT(STEPS, "steps of each thread in a round", 10000, 1000, 1, 1000000000),
    BENCH_COUNT(OBJECTS, "objects of each thread, an even number", 10000, 1000, 2, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("migration",
               "Threads replace random objects and pass half of them on, round after round.");

static struct lane *lanes;
/* Second halves. In round r thread t works on number t + r; the barrier between rounds hands it
 * on. */
static struct object ***travelling;
static pthread_barrier_t round_end;

BENCH_INLINE struct object *object_new(uint32_t maker, uint32_t *state,
                                       struct bench_latency *latency)
{
    uint32_t text_size = 8 + (bench_random(state) & 0x1FF);
    struct object *object = bench_malloc(latency, sizeof *object + text_size);
    object->maker = maker;
    object->text_size = text_size;
    object->text[text_size - 1] = (unsigned char)text_size;
    return object;
}

static void halves_fill(struct bench_thread *thread)
{
    size_t half_count = arguments[OBJECTS].value / 2;
    struct object **own = bench_map(half_count * sizeof(struct object *));
    struct object **other = bench_map(half_count * sizeof(struct object *));
    uint32_t state = thread->seed;
    for (size_t i = 0; i < half_count; i++) {
        own[i] = object_new(thread->index, &state, NULL);
        other[i] = object_new(thread->index, &state, NULL);
    }
    lanes[thread->index].own = own;
    travelling[thread->index] = other;
}

/* The number of foreign objects freed. */
BENCH_INLINE uint64_t halves_replace(struct object **const halves[2], uint32_t maker,
                                     uint32_t *state, struct bench_latency *latency)
{
    uint32_t object_count = (uint32_t)arguments[OBJECTS].value;
    uint64_t step_count = arguments[STEPS].value;
    uint64_t foreign_count = 0;
    for (uint64_t step = 0; step < step_count; step++) {
        uint32_t r = bench_random_below(state, object_count);
        struct object **slot = &halves[r & 1][r >> 1];
        struct object *object = *slot;
        if (object->text[object->text_size - 1] != (unsigned char)object->text_size) {
            bench_fail_run("an object has changed while it lived.");
        }
        foreign_count += object->maker != maker;
        bench_free(latency, object);
        *slot = object_new(maker, state, latency);
    }
    return foreign_count;
}

BENCH_INLINE void rounds_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct lane *lane = &lanes[thread->index];
    uint64_t round_count = arguments[ROUNDS].value;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < round_count; round++) {
        struct object **halves[2] = {lane->own,
                                     travelling[(thread->index + round) % bench_thread_count()]};
        lane->foreign_count += halves_replace(halves, thread->index, &state, latency);
        (void)pthread_barrier_wait(&round_end);
    }
    thread->operations = 2 * round_count * arguments[STEPS].value;
}

BENCH_MEASURE(rounds_measure, rounds_run)

static void halves_drain(struct bench_thread *thread)
{
    for (size_t i = 0; i < arguments[OBJECTS].value / 2; i++) {
        free(lanes[thread->index].own[i]);
        free(travelling[thread->index][i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {halves_fill, rounds_measure, halves_drain};
    uint64_t foreign_count = 0;
    bench_start(&workload, argc, argv);
    if (arguments[OBJECTS].value % 2 != 0) {
        bench_fail_usage("OBJECTS must be even.");
    }
    lanes = bench_map(bench_thread_count() * sizeof *lanes);
    travelling = bench_map(bench_thread_count() * sizeof *travelling);
    (void)pthread_barrier_init(&round_end, NULL, bench_thread_count());
    bench_run(&phases);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        foreign_count += lanes[i].foreign_count;
    }
    bench_note("foreign_frees", NULL, foreign_count);
    bench_report();
    return 0;
}
