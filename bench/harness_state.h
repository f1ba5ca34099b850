/* SPDX-License-Identifier: MIT */
/* harness_state.h: what harness.c (command line, threads, clock) and harness_report.c (who serves,
 * percentiles, the JSON line) share. Workloads include harness.h only.
 */
#ifndef BENCH_HARNESS_STATE_H
#define BENCH_HARNESS_STATE_H

#include "harness.h"

#include <sys/resource.h>

enum { BENCH_RESTS_MAX = 8 };
enum { BENCH_STATUS_FAILED = 1, BENCH_STATUS_USAGE = 2, BENCH_STATUS_WRONG_ALLOCATOR = 3 };

/* One for the process. The main thread's, but for mapped_size; threads write their records. */
struct bench_state {
    const struct bench_workload *workload;
    const char *expected;    /* --expect, or NULL */
    uint64_t threads_option; /* --threads, or 0 */
    bool is_smoke;
    bool is_latency;
    uint64_t rests_ms[BENCH_RESTS_MAX]; /* --rest: times after the end of the work, rising */
    size_t rest_count;
    unsigned thread_count;
    uint32_t seed;
    struct bench_thread *threads; /* thread_count of them, from the first run on */
    _Atomic size_t mapped_size;   /* bytes of bench_map, whole pages */
    struct rusage usage_open;     /* at both ends of the last measured interval */
    struct rusage usage_close;
    uint64_t operations; /* of the last run */
    uint64_t duration_ns;
};

extern struct bench_state bench;

/* Prints the workload's name and the sentence to stderr and ends the process. */
_Noreturn void bench_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The value as it stands in JSON. */
void bench_argument_print(const struct bench_argument *argument, char *text, size_t size);

/* Finds the files that own the allocation functions; status 3 if --expect says otherwise. */
void bench_serving_find(void);

/* Facts are of one run. */
void bench_notes_clear(void);

#endif
