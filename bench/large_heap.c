/* SPDX-License-Identifier: MIT */
/* large_heap.c: what a heap of many gigabytes makes of one span, a trim, a report and a fork.
 *
 * Imitates: a database or a cache server whose heap is full of holes that are too small. GIB of
 * blocks of 94,208 bytes (three slices of hakmem's, a size class of most others) are allocated and
 * every second one is freed; nothing is touched, so that a heap of 256 GiB fits into any machine.
 * Then SPANS blocks of 126,976 bytes, which fit into no hole, are allocated and freed, ROUNDS
 * times: that is the measured part. The notes say what a single step costs in the best round or
 * try, in nanoseconds: span_ns (one such malloc), trim_mib_ns (giving back one MiB of TRIM_MIB that
 * were touched), report_ns (the totals that the allocator keeps), fork_ns (fork, the child's exit,
 * wait). 0: it gives nothing back or has no totals, or the kernel refuses to copy the heap. A cost
 * that does not depend on the heap's size is the same for each GIB. The sizes and the pattern are
 * the project's own.
 *
 * Does not show: memory (nothing is touched), nor page tables of a resident heap, which the kernel
 * copies at a fork. --threads is refused: what is asked is what one call costs.
 */
#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GIB, SPANS, ROUNDS, ARGUMENT_COUNT };
enum { HOLE_SIZE = 94208, SPAN_SIZE = 126976, TRIM_MIB = 64, TRIES = 10, SPANS_MAX = 4096 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(GIB, "gibibytes of blocks before every second one is freed", 16, 1, 1, 512),
    BENCH_COUNT(SPANS, "longer blocks in each round", 256, 32, 1, SPANS_MAX),
    BENCH_COUNT(ROUNDS, "rounds of longer blocks", 50, 3, 1, UINT32_MAX),
};

BENCH_WORKLOAD("large_heap", "Allocates blocks that fit into no hole of a heap of many gigabytes.");

static void **holes;
static uint64_t holes_count;
static uint64_t span_ns = UINT64_MAX;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void heap_build(struct bench_thread *thread)
{
    (void)thread;
    holes_count = (arguments[GIB].value << 30) / HOLE_SIZE;
    size_t size = holes_count * sizeof *holes;
    holes = bench_map(size);
    madvise(holes, size, MADV_DONTFORK); /* the table is no part of what a fork costs */
    for (uint64_t i = 0; i < holes_count; i++) {
        holes[i] = bench_malloc(NULL, HOLE_SIZE);
    }
    for (uint64_t i = 0; i < holes_count; i += 2) {
        free(holes[i]);
        holes[i] = NULL;
    }
}

static void spans_measure(struct bench_thread *thread)
{
    static void *spans[SPANS_MAX];
    uint64_t count = arguments[SPANS].value;
    for (uint64_t round = 0; round < arguments[ROUNDS].value; round++) {
        uint64_t start_ns = bench_now_ns();
        for (uint64_t i = 0; i < count; i++) {
            spans[i] = bench_malloc(thread->latency, SPAN_SIZE);
        }
        span_ns = smaller(span_ns, (bench_now_ns() - start_ns) / count);
        for (uint64_t i = 0; i < count; i++) {
            bench_free(thread->latency, spans[i]);
        }
        thread->operations += 2 * count;
    }
}

/* ---- What each allocator calls it: dlsym finds it if the one that serves has it. ---- */

typedef int control_function(const char *name, void *old, size_t *old_size, void *changed,
                             size_t changed_size);
typedef void collect_function(bool force);
typedef void plain_function(void);
typedef int number_function(const char *property, size_t *value);

static void *find(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* A function of that name that belongs to whoever serves malloc, not to the C library only. */
static bool has_own(const char *name)
{
    Dl_info own, serving;
    void *function = find(name);
    return function != NULL && dladdr(function, &own) != 0 &&
           dladdr(find("malloc"), &serving) != 0 && own.dli_fbase == serving.dli_fbase;
}

static void trim(void)
{
    control_function *control = (control_function *)(uintptr_t)find("mallctl");
    collect_function *collect = (collect_function *)(uintptr_t)find("mi_collect");
    plain_function *release =
        (plain_function *)(uintptr_t)find("MallocExtension_ReleaseFreeMemory");
    if (control != NULL) { /* jemalloc: all arenas */
        control("thread.tcache.flush", NULL, NULL, NULL, 0);
        control("arena.4096.purge", NULL, NULL, NULL, 0);
    } else if (collect != NULL) {
        collect(true);
    } else if (release != NULL) {
        release();
    } else if (has_own("malloc_trim")) {
        malloc_trim(0);
    }
}

/* False: it has none that the program could ask for. */
static bool report(void)
{
    uint64_t epoch = 1;
    size_t size = sizeof epoch;
    control_function *control = (control_function *)(uintptr_t)find("mallctl");
    plain_function *merge = (plain_function *)(uintptr_t)find("mi_stats_merge");
    number_function *number =
        (number_function *)(uintptr_t)find("MallocExtension_GetNumericProperty");
    if (control != NULL) { /* sums its statistics anew */
        control("epoch", &epoch, &size, &epoch, sizeof epoch);
    } else if (merge != NULL) {
        merge();
    } else if (number != NULL) {
        number("generic.heap_size", &size);
    } else if (has_own("mallinfo2")) {
        (void)mallinfo2();
    } else {
        return false;
    }
    return true;
}

static size_t resident_bytes(void)
{
    char text[128] = {0};
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0) {
        bench_fail_run("/proc/self/statm cannot be read.");
    }
    close(file);
    char *second = strchr(text, ' ');
    return second == NULL ? 0 : strtoul(second, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- Single steps; 0: the allocator or the kernel cannot do it. ---- */

static uint64_t trim_measure(void)
{
    enum { COUNT = (TRIM_MIB << 20) / HOLE_SIZE };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = bench_malloc(NULL, HOLE_SIZE);
        memset(blocks[i], 't', HOLE_SIZE);
    }
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    size_t resident = resident_bytes();
    uint64_t start_ns = bench_now_ns();
    trim();
    uint64_t taken_ns = bench_now_ns() - start_ns;
    return resident_bytes() + (TRIM_MIB << 19) < resident ? taken_ns / TRIM_MIB : 0;
}

static uint64_t report_measure(void)
{
    uint64_t start_ns = bench_now_ns();
    return report() ? bench_now_ns() - start_ns : 0;
}

static uint64_t fork_measure(void)
{
    uint64_t start_ns = bench_now_ns();
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    if (child < 0) { /* the heap is larger than the machine: the kernel may refuse a copy */
        return 0;
    }
    if (waitpid(child, NULL, 0) != child) {
        bench_fail_run("the child is lost.");
    }
    return bench_now_ns() - start_ns;
}

static void measure_steps(void)
{
    static const struct {
        const char *key;
        uint64_t (*measure)(void);
    } steps[] = {
        {"trim_mib_ns", trim_measure}, {"report_ns", report_measure}, {"fork_ns", fork_measure}};
    trim(); /* what the heap's own blocks have left */
    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++) {
        uint64_t best_ns = UINT64_MAX;
        for (int i = 0; i < TRIES; i++) {
            best_ns = smaller(best_ns, steps[step].measure());
        }
        bench_note(steps[step].key, NULL, best_ns);
    }
}

static void heap_free(void)
{
    for (uint64_t i = 1; i < holes_count; i += 2) {
        free(holes[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {heap_build, spans_measure, NULL};
    bench_start(&workload, argc, argv);
    if (bench_thread_count() != 1) {
        bench_fail_usage("it runs on one thread.");
    }
    bench_run(&phases);
    bench_note("span_ns", NULL, span_ns);
    measure_steps();
    heap_free();
    bench_report();
    return 0;
}
