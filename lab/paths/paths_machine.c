/* SPDX-License-Identifier: MIT */
/* paths_machine.c: what the machine itself takes for the things the cost model adds up. See
 * paths.h.
 *
 * Each figure is the least of several trials: what disturbs a trial only makes it longer. Cycles
 * are those of the time stamp counter, which runs at one frequency while cores do not.
 */
#include "paths.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TRIALS = 25,
    STEPS = 4096,
    LINE = 64,
    NEAR_LINES = 64,   /* 4 KiB: in any first-level cache */
    L2_LINES = 4096,   /* 256 KiB: in none, and in any second-level cache */
    FAR_LINES = 64,    /* what another core has just written, */
    FAR_STRIDE = 64,   /* one in each page: no prefetcher helps */
    CLEARED = 1 << 17, /* bytes */
    MAPPED = 3 << 20,  /* bytes, as the huge blocks of paths_large.c */
    TOUCHED_PAGES = 256
};

uint64_t paths_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The fences keep what is measured between its two readings. */
uint64_t paths_ticks(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    uint64_t now = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return now;
#else
    return paths_clock_ns();
#endif
}

struct line {
    struct line *next;
} __attribute__((aligned(LINE)));

static struct line lines[L2_LINES];
static struct line *volatile line_reached; /* so that no walk is optimised away */

/* One circle through `count` lines (a power of two) in an order that no prefetcher foresees: the
 * full period of a linear congruence (Knuth, TAOCP 2, 3.2.1.2). */
static void lines_link(size_t count, size_t stride)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t next = (at * 5 + 1747) & (count - 1);
        lines[at * stride].next = &lines[next * stride];
        at = next;
    }
}

static void lines_walk(size_t steps)
{
    struct line *at = lines;
    for (size_t i = 0; i < steps; i++) {
        at = at->next;
    }
    line_reached = at;
}

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static double cycles_of_line(size_t count)
{
    uint64_t least = UINT64_MAX;
    lines_link(count, 1);
    lines_walk(count);
    for (int trial = 0; trial < TRIALS; trial++) {
        uint64_t start = paths_ticks();
        lines_walk(STEPS);
        least = lower(least, paths_ticks() - start);
    }
    return (double)least / STEPS;
}

static void job_link(void)
{
    lines_link(FAR_LINES, FAR_STRIDE);
}

/* Of a line that the worker has just written. To take it over costs the same as to read it. */
static double cycles_of_far_line(void)
{
    uint64_t least = UINT64_MAX;
    for (int trial = 0; trial < TRIALS; trial++) {
        paths_worker_do(job_link);
        uint64_t start = paths_ticks();
        lines_walk(FAR_LINES);
        least = lower(least, paths_ticks() - start);
    }
    return (double)least / FAR_LINES;
}

/* As a lock is taken and released. */
static double cycles_of_atomic(void)
{
    static uint32_t word;
    uint64_t least = UINT64_MAX;
    for (int trial = 0; trial < TRIALS; trial++) {
        uint64_t start = paths_ticks();
        for (int i = 0; i < STEPS; i++) {
            uint32_t expected = 0;
            (void)__atomic_compare_exchange_n(&word, &expected, 1u, false, __ATOMIC_ACQUIRE,
                                              __ATOMIC_RELAXED);
            (void)__atomic_exchange_n(&word, 0u, __ATOMIC_RELEASE);
        }
        least = lower(least, paths_ticks() - start);
    }
    return (double)least / STEPS / 2;
}

static double bytes_cleared_a_cycle(void)
{
    static unsigned char block[CLEARED];
    uint64_t least = UINT64_MAX;
    for (int trial = 0; trial < TRIALS; trial++) {
        uint64_t start = paths_ticks();
        memset(block, trial, sizeof block);
        __asm__ volatile("" : : "r"(block) : "memory");
        least = lower(least, paths_ticks() - start);
    }
    return (double)CLEARED / (double)least;
}

static double ns_of_syscall(void)
{
    uint64_t least = UINT64_MAX;
    for (int trial = 0; trial < TRIALS; trial++) {
        uint64_t start = paths_clock_ns();
        for (int i = 0; i < NEAR_LINES; i++) {
            (void)syscall(SYS_getppid);
        }
        least = lower(least, paths_clock_ns() - start);
    }
    return (double)least / NEAR_LINES;
}

static unsigned char *memory_map(void)
{
    void *memory = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        paths_fail(PATHS_STATUS_FAILED, "there is no memory.");
    }
    return memory;
}

/* Sets the time of one mapping call, half a pair, and of one first touch. */
static void ns_of_memory(double *map_ns, double *fault_ns)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t least_map = UINT64_MAX, least_touch = UINT64_MAX;
    for (int trial = 0; trial < TRIALS; trial++) {
        uint64_t start = paths_clock_ns();
        unsigned char *memory = memory_map();
        (void)munmap(memory, MAPPED);
        least_map = lower(least_map, paths_clock_ns() - start);
        memory = memory_map();
        start = paths_clock_ns();
        for (size_t i = 0; i < TOUCHED_PAGES && i * page < MAPPED; i++) {
            memory[i * page] = 1;
        }
        least_touch = lower(least_touch, paths_clock_ns() - start);
        (void)munmap(memory, MAPPED);
    }
    size_t touched = TOUCHED_PAGES * page < MAPPED ? TOUCHED_PAGES : MAPPED / page;
    *map_ns = (double)least_map / 2;
    *fault_ns = (double)least_touch / (double)touched;
}

void paths_mode_machine(void)
{
    uint64_t start_ns = paths_clock_ns(), start_ticks = paths_ticks();
    double map_ns, fault_ns;
    ns_of_memory(&map_ns, &fault_ns);
    double near = cycles_of_line(NEAR_LINES), l2 = cycles_of_line(L2_LINES);
    double atomic = cycles_of_atomic(), cleared = bytes_cleared_a_cycle();
    double syscall_ns = ns_of_syscall();
    double far = paths_worker_start() ? cycles_of_far_line() : 0.0; /* 0: not known */
    double rate = (double)(paths_ticks() - start_ticks) / (double)(paths_clock_ns() - start_ns);
    printf("{\"near_cycles\":%.2f,\"l2_cycles\":%.2f,\"far_cycles\":%.2f,"
           "\"atomic_cycles\":%.2f,\"bytes_per_cycle\":%.2f,\"syscall_ns\":%.1f,"
           "\"map_ns\":%.1f,\"fault_ns\":%.1f,\"cycles_per_ns\":%.4f}\n",
           near, l2, far, atomic, cleared, syscall_ns, map_ns, fault_ns,
           PATHS_TICKS_ARE_CYCLES ? rate : 0.0);
}
