/* SPDX-License-Identifier: MIT */
/* paths.c: takes one path of the allocator again and again, and is measured doing it.
 *
 *   paths --list              the name of each path
 *   paths run PATH ROUNDS     for valgrind; prints where it counts
 *   paths check PATH ROUNDS   prints page faults, and the library's reports before and after each
 *                             batch, a line each
 *   paths time PATH ROUNDS    prints the ticks of each batch, and of two readings of the clock
 *   paths machine             prints what the things cost that the model adds up
 *
 * `run` is made for two tools: callgrind collects in paths_measured only, and lackey's trace has a
 * store to a known address before each operation and after the last of a batch. See paths.h.
 *
 * Exit status: 0, 1 it cannot be done here, 2 usage, 3 another allocator serves malloc.
 */
#include "paths.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hakmem/hakmem.h"
#include "hakmem/stats.h"

static const struct path *const path_tables[] = {paths_small, paths_large, paths_remote, NULL};

void paths_fail(int status, const char *format, ...)
{
    va_list arguments;
    dprintf(STDERR_FILENO, "paths: ");
    va_start(arguments, format);
    vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "\n");
    _exit(status);
}

/* ---- What starts and ends of the paths are made of. ---- */

void *paths_pointers[PATHS_BATCH_MAX];
void *paths_held[PATHS_HELD_MAX];
size_t paths_next;

void *paths_allocate(size_t size)
{
    void *block = malloc(size);
    if (block == NULL) {
        paths_fail(PATHS_STATUS_FAILED, "malloc(%zu) returned NULL: there is no memory.", size);
    }
    return block;
}

void paths_keep(size_t size)
{
    static void **newest; /* the list of them: nothing is lost */
    void **block = paths_allocate(size);
    *block = newest;
    newest = block;
}

void paths_hold(size_t first, size_t count, size_t size)
{
    for (size_t i = first; i < first + count; i++) {
        paths_held[i] = paths_allocate(size);
    }
}

void paths_release(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        free(paths_held[i]);
    }
}

void paths_claim_superslab(size_t size)
{
    struct hak_stats before, now;
    hak_stats_get(&before);
    do {
        paths_keep(size);
        hak_stats_get(&now);
    } while (now.superslabs_count == before.superslabs_count);
}

void paths_no_start(const struct path *path, unsigned rounds)
{
}

void paths_prepare_allocate(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < path->count; i++) {
        paths_pointers[i] = paths_allocate(path->size);
    }
}

void paths_finish_free(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < path->count; i++) {
        free(paths_pointers[i]);
    }
}

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

/* `before` and `after` are called around each measured batch. */
static void path_run(const struct path *path, unsigned rounds, void (*before)(void),
                     void (*after)(void))
{
    path->start(path, rounds + PATHS_ROUNDS_WARM);
    for (unsigned round = 0; round < rounds + PATHS_ROUNDS_WARM; round++) {
        if (path->prepare != NULL) {
            path->prepare(path, round);
        }
        if (round < PATHS_ROUNDS_WARM) {
            paths_warm(path);
        } else if (before == NULL) {
            paths_measured(path);
        } else {
            before();
            paths_measured(path);
            after();
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

static void mode_run(const struct path *path, unsigned rounds)
{
    path_run(path, rounds, NULL, NULL);
    printf("{\"operations\":%u,\"mark_operation\":%llu,\"mark_end\":%llu,"
           "\"image\":[%llu,%llu],\"stack\":%llu}\n",
           rounds * path->count, (unsigned long long)(uintptr_t)&mark_measured.operation,
           (unsigned long long)(uintptr_t)&mark_measured.end,
           (unsigned long long)(uintptr_t)__executable_start, (unsigned long long)(uintptr_t)_end,
           (unsigned long long)(uintptr_t)__builtin_frame_address(0));
}

static struct rusage usage_before;
static unsigned long long faults;

static void report_print(void *argument, const char *text, size_t size)
{
    (void)fwrite(text, 1, size, stdout);
}

static void check_before(void)
{
    hak_report(HAK_REPORT_JSON, report_print, NULL);
    (void)getrusage(RUSAGE_THREAD, &usage_before);
}

static void check_after(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    faults += (unsigned long long)(usage.ru_minflt - usage_before.ru_minflt);
    hak_report(HAK_REPORT_JSON, report_print, NULL);
}

static void mode_check(const struct path *path, unsigned rounds)
{
    path_run(path, rounds, check_before, check_after);
    printf("{\"operations\":%u,\"faults\":%llu}\n", rounds * path->count, faults);
}

static uint64_t ticks_before, ticks[2 * PATHS_ROUNDS_MAX];
static unsigned ticks_count;

static void time_before(void)
{
    ticks_before = paths_ticks();
}

static void time_after(void)
{
    ticks[ticks_count++] = paths_ticks() - ticks_before;
}

static void ticks_print(const char *name, unsigned first)
{
    printf(",\"%s\":[", name);
    for (unsigned i = first; i < ticks_count; i++) {
        printf("%s%llu", i == first ? "" : ",", (unsigned long long)ticks[i]);
    }
    printf("]");
}

static void mode_time(const struct path *path, unsigned rounds)
{
    uint64_t start_ns = paths_clock_ns(), start_ticks = paths_ticks();
    path_run(path, rounds, time_before, time_after);
    printf("{\"operations\":%u,\"ticks_per_ns\":%.6f", rounds * path->count,
           (double)(paths_ticks() - start_ticks) / (double)(paths_clock_ns() - start_ns));
    ticks_print("batches", 0);
    while (ticks_count < rounds + PATHS_ROUNDS_MAX) {
        time_before();
        time_after();
    }
    ticks_print("readings", rounds);
    printf("}\n");
}

/* ---- The command line. ---- */

static unsigned rounds_parse(const char *text)
{
    char *end;
    unsigned long rounds = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || rounds < 1 || rounds > PATHS_ROUNDS_MAX) {
        paths_fail(PATHS_STATUS_USAGE, "ROUNDS must be a whole number from 1 to %d, not '%s'.",
                   PATHS_ROUNDS_MAX, text);
    }
    return (unsigned)rounds;
}

/* NULL: there is none of that name; without a name: all are printed. */
static const struct path *path_find(const char *name)
{
    for (const struct path *const *table = path_tables; *table != NULL; table++) {
        for (const struct path *path = *table; path->name != NULL; path++) {
            if (name == NULL) {
                printf("%s\n", path->name);
            } else if (strcmp(path->name, name) == 0) {
                return path;
            }
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct path *path, unsigned rounds);
    } modes[] = {{"run", mode_run}, {"check", mode_check}, {"time", mode_time}};
    static char output[4096];
    (void)setvbuf(stdout, output, _IOFBF, sizeof output); /* else stdio would use malloc */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    void *block = paths_allocate(1);
    if (!hak_owns(block)) {
        paths_fail(PATHS_STATUS_WRONG_ALLOCATOR, "malloc is not served by hakmem.");
    }
    free(block);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        (void)path_find(NULL);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "machine") == 0) {
        paths_machine();
        return 0;
    }
    for (size_t i = 0; argc == 4 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            const struct path *path = path_find(argv[2]);
            if (path == NULL) {
                paths_fail(PATHS_STATUS_USAGE, "there is no path '%s'.", argv[2]);
            }
            modes[i].run(path, rounds_parse(argv[3]));
            return fflush(stdout) == 0 ? 0 : PATHS_STATUS_FAILED;
        }
    }
    paths_fail(PATHS_STATUS_USAGE,
               "use: paths --list, paths machine, or paths run|check|time PATH ROUNDS");
}
