/* SPDX-License-Identifier: MIT */
/* false_sharing.c: threads write to small objects of their own; an allocator that puts two of them
 * on one cache line makes them fight for it. After the benchmarks cache-thrash and cache-scratch
 * that E. Berger, K. McKinley, R. Blumofe and P. Wilson describe in "Hoard: a scalable memory
 * allocator for multithreaded applications", ASPLOS 2000.
 *
 * Imitates: counters, small buffers and accumulators, one for each thread, from the heap. Each
 * step allocates an object of SIZE bytes, adds one to each of its bytes WRITES times and frees it:
 * two operations. KIND:
 *   thrash    the threads start at once, each with nothing: an allocator that cuts consecutive
 *             objects for different threads from one line makes the sharing itself (active)
 *   scratch   before the clock starts the main thread has allocated one object for each thread, one
 *             beside the other; each thread frees its object first of all. An allocator that gives
 *             it the same memory again lets the accident go on for ever (passive)
 *
 * "sharing_threads" in the result counts the threads whose last object lay on the same line of 64
 * bytes as another thread's. 0 is right, however fast the run was; of threads that did not run at
 * once some may just have had the same memory in turn.
 *
 * Does not show: the speed of malloc and free: nearly all time goes into the writes. Read the rows
 * of one thread and of several against each other; with more threads than cores a thread often runs
 * alone and the effect shrinks.
 */
#include "harness.h"

enum { KIND, STEPS, WRITES, SIZE, ARGUMENT_COUNT };
enum kind { THRASH, SCRATCH };
enum { LINE_SIZE = 64 }; /* what caches of x86-64 and most of aarch64 fight for */

static const char *const kind_words[] = {"thrash", "scratch", NULL};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_CHOICE(KIND, "who would cause the sharing", kind_words, 0, SCRATCH),
    BENCH_COUNT(STEPS, "objects of each thread", 100000, 1000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(WRITES, "times that an object is written", 1000, 1000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(SIZE, "bytes of an object", 8, 8, 1, 1048576),
};

BENCH_WORKLOAD("false_sharing",
               "Threads write to small objects of their own, which may share cache lines.");

static unsigned char **given; /* one for each thread, NULL with thrash */
static uintptr_t *last_lines; /* of each thread's last object, written at its end */

/* Volatile, for each write to happen. */
BENCH_INLINE void object_write(volatile unsigned char *object, uint64_t write_count, size_t size)
{
    for (uint64_t i = 0; i < write_count; i++) {
        for (size_t at = 0; at < size; at++) {
            object[at] = (unsigned char)(object[at] + 1);
        }
    }
}

BENCH_INLINE void objects_run(struct bench_thread *thread, struct bench_latency *latency)
{
    uint64_t step_count = arguments[STEPS].value;
    uint64_t write_count = arguments[WRITES].value;
    size_t size = arguments[SIZE].value;
    uintptr_t last_line = 0;
    if (given[thread->index] != NULL) {
        bench_free(latency, given[thread->index]);
    }
    for (uint64_t step = 0; step < step_count; step++) {
        unsigned char *object = bench_malloc(latency, size);
        for (size_t i = 0; i < size; i++) {
            object[i] = (unsigned char)step;
        }
        object_write(object, write_count, size);
        if (object[0] != (unsigned char)(step + write_count) || object[size - 1] != object[0]) {
            bench_fail_run("an object has changed by more than its own thread's writes.");
        }
        last_line = (uintptr_t)object / LINE_SIZE;
        bench_free(latency, object);
    }
    last_lines[thread->index] = last_line;
    thread->operations = 2 * step_count;
}

BENCH_MEASURE(objects_measure, objects_run)

/* The threads that share their line with another. */
static uint64_t sharing_count(void)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        bool is_shared = false;
        for (unsigned j = 0; j < bench_thread_count(); j++) {
            is_shared |= j != i && last_lines[j] == last_lines[i];
        }
        count += is_shared;
    }
    return count;
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {NULL, objects_measure, NULL};
    bench_start(&workload, argc, argv);
    given = bench_map(bench_thread_count() * sizeof *given);
    last_lines = bench_map(bench_thread_count() * sizeof *last_lines);
    for (unsigned i = 0; i < bench_thread_count() && arguments[KIND].value == SCRATCH; i++) {
        given[i] = bench_malloc(NULL, arguments[SIZE].value);
        given[i][0] = 1;
    }
    bench_run(&phases);
    bench_note("sharing_threads", NULL, sharing_count());
    bench_report();
    return 0;
}
