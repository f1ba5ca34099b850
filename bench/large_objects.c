/* SPDX-License-Identifier: MIT */
/* large_objects.c: several objects of 5 to 25 MB live at once, each newer one a little larger.
 *
 * Imitates: images, columns of a table or tensors whose size grows with the input, so that what one
 * of them leaves behind is too small for the next. The size rises from MIN to MAX over the run,
 * plus up to a tenth at random. Each step frees what is in a random one of LIVE slots and puts a
 * new object there, one byte of each OS page written: two operations. The range of 5 to 25 MiB is
 * that of `malloc-large` as the README of mimalloc-bench describes it; growing sizes and the rest
 * are the project's own.
 *
 * Does not show: the allocator's own instructions. A step writes to thousands of pages; what counts
 * is whether these are fresh (a fault each) or kept from a freed object, and how much is kept
 * (peak RSS against the live bytes, which the note live_kib_max says). The first LIVE steps fill
 * the slots and are measured too. --threads N: LIVE objects of each thread, nothing is shared.
 */
#include "harness.h"

enum { STEPS, LIVE, MIN, MAX, SEED, ARGUMENT_COUNT };
enum { STRIDE = 4096 + 64, LIVE_MAX = 4096 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(STEPS, "objects each thread allocates", 120, 10, 1, UINT64_C(1000000000)),
    BENCH_COUNT(LIVE, "slots of each thread", 10, 4, 1, LIVE_MAX),
    BENCH_COUNT(MIN, "bytes of the first objects", 5 << 20, 5 << 20, 1, UINT64_C(1) << 40),
    BENCH_COUNT(MAX, "bytes of the last objects", 25 << 20, 25 << 20, 1, UINT64_C(1) << 40),
    BENCH_SEED,
};

BENCH_WORKLOAD("large_objects",
               "Replaces random ones of a few live objects of many megabytes by larger ones.");

struct object {
    unsigned char *data;
    uint64_t size;
};

struct shelf {
    struct object objects[LIVE_MAX];
    uint64_t live_size;
    uint64_t live_size_max;
};

/* From MIN to MAX in a straight line over the run, plus up to a tenth of itself. */
static uint64_t size_draw(uint64_t step, uint32_t *state)
{
    double progress = (double)step / (double)arguments[STEPS].value;
    double span = (double)arguments[MAX].value - (double)arguments[MIN].value;
    uint64_t size = arguments[MIN].value + (uint64_t)(span * progress);
    return size + size * bench_random_below(state, 1024) / 10240;
}

static void shelf_map(struct bench_thread *thread)
{
    thread->data = bench_map(sizeof(struct shelf));
}

static void objects_measure(struct bench_thread *thread)
{
    struct shelf *shelf = thread->data;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < arguments[STEPS].value; step++) {
        uint32_t slot = bench_random_below(&state, (uint32_t)arguments[LIVE].value);
        struct object *object = &shelf->objects[slot];
        if (object->data != NULL) {
            bench_free(thread->latency, object->data);
            thread->operations++;
        }
        shelf->live_size -= object->size;
        object->size = size_draw(step, &state);
        object->data = bench_malloc(thread->latency, object->size);
        for (uint64_t at = 0; at < object->size; at += STRIDE) {
            object->data[at] = (unsigned char)step;
        }
        shelf->live_size += object->size;
        if (shelf->live_size > shelf->live_size_max) {
            shelf->live_size_max = shelf->live_size;
        }
        thread->operations++;
    }
}

static _Atomic uint64_t shared_live_size_max; /* sum of the threads'; orders nothing */

static void objects_drain(struct bench_thread *thread)
{
    struct shelf *shelf = thread->data;
    for (uint64_t i = 0; i < arguments[LIVE].value; i++) {
        free(shelf->objects[i].data);
    }
    shared_live_size_max += shelf->live_size_max;
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {shelf_map, objects_measure, objects_drain};
    bench_start(&workload, argc, argv);
    if (arguments[MIN].value > arguments[MAX].value) {
        bench_fail_usage("MAX must not be less than MIN.");
    }
    bench_run(&phases);
    bench_note("live_kib_max", NULL, shared_live_size_max / 1024);
    bench_report();
    return 0;
}
