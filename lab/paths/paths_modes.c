/* SPDX-License-Identifier: MIT */
/* paths_modes.c: runs the rounds of a path, and what is measured of the batches. See paths.h. */
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* ---- The batch. ---- */

/* Stored to before each operation and after the last: what lackey's trace is cut by. Each on a line
 * of its own, and what is measured and what is not use different ones. */
struct mark {
    volatile uint64_t operation;
    volatile uint64_t end;
} __attribute__((aligned(64)));

static struct mark mark_measured, mark_warm;

static inline __attribute__((always_inline)) void batch_run(const struct path *path,
                                                            struct mark *mark)
{
    unsigned count = path->count;
    size_t size = path->size;
    for (unsigned i = 0; i < count; i++) {
        mark->operation = i;
        switch (path->operation) {
        case PATH_MALLOC:
            paths_pointers[i] = malloc(size);
            break;
        case PATH_FREE:
            free(paths_pointers[i]);
            break;
        case PATH_CALLOC:
            paths_pointers[i] = calloc(1, size);
            break;
        case PATH_REALLOC:
            paths_pointers[i] = realloc(paths_pointers[i], size);
            break;
        case PATH_ALIGNED:
            paths_pointers[i] = aligned_alloc(path->other, size);
            break;
        }
    }
    mark->end = count;
}

/* The name is known to python/hakmem/lab/cost_measure.py. */
static __attribute__((noinline)) void paths_measured(const struct path *path)
{
    batch_run(path, &mark_measured);
}

static __attribute__((noinline)) void paths_warm(const struct path *path)
{
    batch_run(path, &mark_warm);
}

/* ---- Measuring. ---- */

/* Around each measured batch. */
struct meter {
    void (*open)(void);
    void (*close)(void);
};

static struct paths_snapshot check_open, check_sum;
static struct rusage usage_open;
static uint64_t check_faults;

static void meter_check_open(void)
{
    paths_snapshot_take(&check_open);
    (void)getrusage(RUSAGE_THREAD, &usage_open);
}

static void meter_check_close(void)
{
    static struct paths_snapshot check_close;
    struct rusage usage_close;
    (void)getrusage(RUSAGE_THREAD, &usage_close);
    paths_snapshot_take(&check_close);
    paths_snapshot_add(&check_sum, &check_open, &check_close);
    check_faults += (uint64_t)(usage_close.ru_minflt - usage_open.ru_minflt);
}

enum { TIME_OUTLIER_FACTOR = 4 };

static uint64_t time_open;
static uint64_t time_samples[PATHS_ROUNDS_MAX];
static unsigned time_count;

static void meter_time_open(void)
{
    time_open = paths_ticks();
}

static void meter_time_close(void)
{
    time_samples[time_count++] = paths_ticks() - time_open;
}

static int sample_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* The mean of the samples, since counters step by tens of cycles on some machines and a median
 * would be a step; without those that an interrupt hit, which are many times the median. */
static double time_typical(void)
{
    qsort(time_samples, time_count, sizeof time_samples[0], sample_compare);
    uint64_t longest = TIME_OUTLIER_FACTOR * time_samples[time_count / 2];
    uint64_t sum = 0;
    unsigned count = 0;
    while (count < time_count && time_samples[count] <= longest) {
        sum += time_samples[count++];
    }
    return (double)sum / count;
}

/* What two readings with nothing in between differ by. */
static double time_of_nothing(void)
{
    for (time_count = 0; time_count < PATHS_ROUNDS_MAX;) {
        meter_time_open();
        meter_time_close();
    }
    double typical = time_typical();
    time_count = 0;
    return typical;
}

static void path_run(const struct path *path, unsigned rounds, const struct meter *meter)
{
    path->start(path, rounds + PATHS_ROUNDS_WARM);
    for (unsigned round = 0; round < rounds + PATHS_ROUNDS_WARM; round++) {
        if (path->prepare != NULL) {
            path->prepare(path, round);
        }
        if (round < PATHS_ROUNDS_WARM) {
            paths_warm(path);
        } else if (meter == NULL) {
            paths_measured(path);
        } else {
            meter->open();
            paths_measured(path);
            meter->close();
        }
        if (path->operation != PATH_FREE && paths_pointers[path->count - 1] == NULL) {
            paths_fail(PATHS_STATUS_FAILED, "there is no memory for %s.", path->name);
        }
        if (path->finish != NULL) {
            path->finish(path, round);
        }
    }
}

/* ---- The modes. ---- */

/* The ends of this program's own image: data there is not the allocator's. */
extern char __executable_start[], _end[];

void paths_mode_run(const struct path *path, unsigned rounds)
{
    path_run(path, rounds, NULL);
    printf("{\"path\":\"%s\",\"operations\":%u,\"mark_operation\":%llu,\"mark_end\":%llu,"
           "\"image\":[%llu,%llu],\"stack\":%llu}\n",
           path->name, rounds * path->count,
           (unsigned long long)(uintptr_t)&mark_measured.operation,
           (unsigned long long)(uintptr_t)&mark_measured.end,
           (unsigned long long)(uintptr_t)__executable_start, (unsigned long long)(uintptr_t)_end,
           (unsigned long long)(uintptr_t)__builtin_frame_address(0));
}

void paths_mode_check(const struct path *path, unsigned rounds)
{
    static const struct meter meter = {meter_check_open, meter_check_close};
    path_run(path, rounds, &meter);
    printf("{\"path\":\"%s\",\"operations\":%u,\"faults\":%llu,\"counters\":", path->name,
           rounds * path->count, (unsigned long long)check_faults);
    paths_snapshot_print(&check_sum, 0, check_sum.counters);
    printf(",\"calls\":");
    paths_snapshot_print(&check_sum, check_sum.counters, check_sum.count);
    printf("}\n");
}

void paths_mode_time(const struct path *path, unsigned rounds)
{
    static const struct meter meter = {meter_time_open, meter_time_close};
    double nothing = time_of_nothing();
    uint64_t start_ns = paths_clock_ns(), start_ticks = paths_ticks();
    path_run(path, rounds, &meter);
    double ticks_per_ns =
        (double)(paths_ticks() - start_ticks) / (double)(paths_clock_ns() - start_ns);
    double typical = time_typical();
    double batch = typical > nothing ? typical - nothing : 0.0;
    printf("{\"path\":\"%s\",\"operations\":%u,\"nanoseconds\":%.3f}\n", path->name,
           rounds * path->count, batch / path->count / ticks_per_ns);
}
