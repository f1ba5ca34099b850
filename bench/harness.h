/* SPDX-License-Identifier: MIT */
/* harness.h: what every workload shares: arguments, threads, the clock, the one line of JSON.
 *
 * A workload is one file: a table of arguments with defaults, the phases a thread runs, and a main
 * of three calls (bench_start, bench_run, bench_report). It uses the plain names malloc and free,
 * so that whichever allocator is preloaded or linked in serves it, and prints ONE line of JSON on
 * stdout for each measurement:
 *
 *   workload, arguments, smoke, threads, seed    what ran
 *   operations                                   one is a malloc or a free; a step may be several
 *   nanoseconds, operations_per_second           from the first thread's start to the last's end
 *   minor_faults, major_faults, user_ns,         getrusage over the same interval (CPU time is as
 *   system_ns, {in,}voluntary_switches           exact as the kernel keeps it)
 *   rss_peak_kib                                 VmHWM of the process
 *   rss_end_kib, lazyfree_end_kib                smaps_rollup, after everything was freed
 *   rss_idle_kib, lazyfree_idle_kib              smaps_rollup after a pause, where there is one
 *   rest                                         the same at the times of --rest after the end:
 *                                                [[seconds, rss_kib, lazyfree_kib], ...]
 *   harness_kib                                  tables of harness and workload, part of all
 *   serving                                      the files that own malloc, free, calloc, realloc
 *                                                and operator new (null: there is none)
 *   latency                                      with --latency: percentiles of single calls in
 *                                                ns, the clock's own cost included
 *
 * Options of every workload: --smoke (small counts, under a second), --threads N, --latency,
 * --json (always so), --help, --rest SECONDS (sleep after the work and read the memory then; it is
 * no part of the time), --expect NAME (exit status 3 unless the file that serves is called so).
 * Exit status: 0, 1 the run failed (no memory, no thread), 2 bad arguments, 3 the wrong allocator.
 *
 * Rules for workloads: nothing of the harness goes through malloc; tables come from bench_map,
 * already touched, so they cost no fault while measuring; random numbers come from xorshift32 with
 * a state of each thread's own; a run of one thread happens on the main thread.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* dladdr, barriers, clocks: also with -std=c17 */
#endif

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_INLINE static inline __attribute__((always_inline))
#define BENCH_LINE 128 /* two cache lines: the adjacent-line prefetcher pairs them */
#define BENCH_THREADS_MAX 1024

/* ---- Arguments. ---- */

enum bench_kind {
    BENCH_NUMBER,  /* a whole number */
    BENCH_SECONDS, /* "2" or "0.25", kept as milliseconds */
    BENCH_WORD     /* one of `words`, kept as its index */
};

/* One positional argument. `value` holds the default until bench_start replaces it. SEED and
 * THREADS are known to the harness by their names; where there is no THREADS, --threads says how
 * many threads run the same phases. */
struct bench_argument {
    const char *name;
    const char *meaning;
    enum bench_kind kind;
    uint64_t value;
    uint64_t value_smoke;
    uint64_t min; /* of numbers and milliseconds, both ends allowed */
    uint64_t max;
    const char *const *words; /* ends with NULL */
    bool is_given;
};

struct bench_workload {
    const char *name;
    const char *summary; /* one sentence for --help */
    struct bench_argument *arguments;
    size_t argument_count;
};

/* A row of the table `arguments`, at the constant of the argument's name: its meaning, its default,
 * that of --smoke, and the ends of what it may be. */
#define BENCH_RANGE(key, sort, text, usual, small, least, most)                                    \
    [key] = {.name = #key,                                                                         \
             .meaning = (text),                                                                    \
             .kind = (sort),                                                                       \
             .value = (usual),                                                                     \
             .value_smoke = (small),                                                               \
             .min = (least),                                                                       \
             .max = (most)}
#define BENCH_COUNT(key, ...) BENCH_RANGE(key, BENCH_NUMBER, __VA_ARGS__)
#define BENCH_TIME(key, ...) BENCH_RANGE(key, BENCH_SECONDS, __VA_ARGS__)
#define BENCH_CHOICE(key, text, names, usual, small)                                               \
    [key] = {.name = #key,                                                                         \
             .meaning = (text),                                                                    \
             .kind = BENCH_WORD,                                                                   \
             .value = (usual),                                                                     \
             .value_smoke = (small),                                                               \
             .words = (names)}
#define BENCH_SEED BENCH_COUNT(SEED, "start of the random numbers", 42, 42, 1, UINT32_MAX)

/* What bench_start reads: the program's name, one sentence for --help, the table above it. */
#define BENCH_WORKLOAD(program, sentence)                                                          \
    static const struct bench_workload workload = {.name = (program),                              \
                                                   .summary = (sentence),                          \
                                                   .arguments = arguments,                         \
                                                   .argument_count = ARGUMENT_COUNT}

/* Reads the command line into the tables, answers --help, checks --expect; may end there. */
void bench_start(const struct bench_workload *workload, int argc, char **argv);

unsigned bench_thread_count(void);

/* Ends the process: a wrong combination of arguments (status 2), a failed run (status 1).
 * `sentence` says what and is printed after the workload's name. */
_Noreturn void bench_fail_usage(const char *sentence);
_Noreturn void bench_fail_run(const char *sentence);
_Noreturn void bench_fail_memory(size_t size);

/* ---- Latency of single calls: log-linear histograms, 32 steps in each power of two (3 %). ----
 * */

#define BENCH_STEP_BITS 5
#define BENCH_EXPONENT_MAX                                                                         \
    40 /* 2^41 ns is 36 minutes; longer counts as that, `max` stays exact                          \
        */
#define BENCH_BUCKETS ((BENCH_EXPONENT_MAX - BENCH_STEP_BITS + 2) << BENCH_STEP_BITS)

struct bench_histogram {
    uint64_t count;
    uint64_t max;
    uint64_t buckets[BENCH_BUCKETS];
};

/* One per thread, so that recording shares nothing. */
struct bench_latency {
    struct bench_histogram allocate;
    struct bench_histogram release;
};

void bench_histogram_record(struct bench_histogram *histogram, uint64_t duration_ns);
void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from);

/* The value that `part_count` of `whole_count` records do not exceed (999 of 1000 is p99.9), 0 of
 * an empty one. */
uint64_t bench_histogram_percentile(const struct bench_histogram *histogram, uint64_t part_count,
                                    uint64_t whole_count);

/* ---- Running. ---- */

struct bench_thread {
    unsigned index;
    uint32_t seed;                 /* SEED itself for thread 0, never 0 */
    uint64_t operations;           /* set by `measure` */
    struct bench_latency *latency; /* NULL unless --latency */
    void *data;                    /* the workload's own, between phases */
    uint64_t start_ns;
    uint64_t end_ns;
    pthread_t handle;
} __attribute__((aligned(BENCH_LINE)));

/* What each thread does; `prepare` and `drain` are not measured and may be NULL. */
struct bench_phases {
    void (*prepare)(struct bench_thread *thread);
    void (*measure)(struct bench_thread *thread);
    void (*drain)(struct bench_thread *thread);
};

/* Runs the phases on every thread; all start measuring together at a barrier and drain when the
 * last has measured. A single thread is the main thread: the process then has no other, as most
 * programs. */
void bench_run(const struct bench_phases *phases);

/* For workloads that make their own threads: the records of bench_thread_count() threads, reset;
 * the two ends of the measured interval; bench_interval_close takes its times and operations from
 * the records, bench_interval_open none. */
struct bench_thread *bench_threads_reset(void);
void bench_interval_open(void);
void bench_interval_close(void);

/* Starts a thread whose stack is small enough for glibc to keep it for the next one. */
pthread_t bench_thread_create(void *(*body)(void *), void *argument);

/* A fact of this run for the JSON line: a string or, when `text` is NULL, a number. After
 * bench_run or bench_threads_reset, which forget the earlier ones. */
void bench_note(const char *key, const char *text, uint64_t number);

/* Sleeps, then notes what memory the process still holds: rss_idle_kib, lazyfree_idle_kib. From one
 * thread, between the end of the measured part and the report. */
void bench_idle(uint64_t delay_ms);

/* Prints the line of the last run. */
void bench_report(void);

/* ---- For the inner loops. ---- */

/* Zeroed, touched, outside every allocator, never given back; counted in harness_kib. Small OS
 * pages, so that the same call costs the same memory on every machine. From any thread. */
void *bench_map(size_t size);

/* Marsaglia's xorshift32: never 0 when the state is not. */
BENCH_INLINE uint32_t bench_random(uint32_t *state)
{
    uint32_t r = *state;
    r ^= r << 13;
    r ^= r >> 17;
    r ^= r << 5;
    *state = r;
    return r;
}

/* 0 .. limit - 1 without a division. */
BENCH_INLINE uint32_t bench_random_below(uint32_t *state, uint32_t limit)
{
    return (uint32_t)(((uint64_t)bench_random(state) * limit) >> 32);
}

BENCH_INLINE uint64_t bench_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* malloc and free as the loops use them. Called with a literal NULL they are the plain call (and
 * the test for a failure that every program has); loops are therefore written once, always inline,
 * and called with and without. */
BENCH_INLINE void *bench_malloc(struct bench_latency *latency, size_t size)
{
    void *block;
    if (latency == NULL) {
        block = malloc(size);
    } else {
        uint64_t start_ns = bench_now_ns();
        block = malloc(size);
        bench_histogram_record(&latency->allocate, bench_now_ns() - start_ns);
    }
    if (__builtin_expect(block == NULL, 0)) {
        bench_fail_memory(size);
    }
    return block;
}

BENCH_INLINE void bench_free(struct bench_latency *latency, void *block)
{
    if (latency == NULL) {
        free(block);
    } else {
        uint64_t start_ns = bench_now_ns();
        free(block);
        bench_histogram_record(&latency->release, bench_now_ns() - start_ns);
    }
}

/* The phase of a loop that is written once: with a literal NULL, for which bench_malloc and
 * bench_free are the plain calls, and with the thread's histograms. */
#define BENCH_MEASURE(phase, run)                                                                  \
    static void phase(struct bench_thread *thread)                                                 \
    {                                                                                              \
        if (thread->latency == NULL) {                                                             \
            run(thread, NULL);                                                                     \
        } else {                                                                                   \
            run(thread, thread->latency);                                                          \
        }                                                                                          \
    }

/* Of a program that has nothing to do besides. */
#define BENCH_MAIN(prepare, measure, drain)                                                        \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        static const struct bench_phases phases = {prepare, measure, drain};                       \
        bench_start(&workload, argc, argv);                                                        \
        bench_run(&phases);                                                                        \
        bench_report();                                                                            \
        return 0;                                                                                  \
    }

#endif
