/* SPDX-License-Identifier: MIT */
/* paths_machine.c: what the machine itself takes for the things the cost model adds up. See
 * paths.h.
 *
 * Cycles are those of the time stamp counter, which runs at one frequency while cores do not.
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
    SYSCALLS = 64,
    TOUCHED_PAGES = 32,
    MAPPED = 3 << 20 /* bytes, as the huge blocks of paths_large.c; more than these pages */
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

static size_t steps;

static void job_walk(void)
{
    struct line *at = lines;
    for (size_t i = 0; i < steps; i++) {
        at = at->next;
    }
    line_reached = at;
}

static void job_link_far(void)
{
    lines_link(FAR_LINES, FAR_STRIDE);
}

/* Of lines that the worker has just written. To take them over costs the same as to read them. */
static void far_prepare(void)
{
    paths_worker_do(job_link_far);
}

/* As a lock is taken and released. */
static void job_atomic(void)
{
    static uint32_t word;
    for (int i = 0; i < STEPS; i++) {
        uint32_t expected = 0;
        (void)__atomic_compare_exchange_n(&word, &expected, 1u, false, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED);
        (void)__atomic_exchange_n(&word, 0u, __ATOMIC_RELEASE);
    }
}

static void job_clear(void)
{
    static unsigned char block[CLEARED];
    memset(block, 1, sizeof block);
    __asm__ volatile("" : : "r"(block) : "memory");
}

static void job_syscall(void)
{
    for (int i = 0; i < SYSCALLS; i++) {
        (void)syscall(SYS_getppid);
    }
}

static unsigned char *memory;
static size_t page;

static void memory_map(void)
{
    memory = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        paths_fail(PATHS_STATUS_FAILED, "there is no memory.");
    }
}

static void job_map(void)
{
    memory_map();
    (void)munmap(memory, MAPPED);
}

static void touch_prepare(void)
{
    (void)munmap(memory, MAPPED);
    memory_map();
}

static void job_touch(void)
{
    for (size_t i = 0; i < TOUCHED_PAGES; i++) {
        memory[i * page] = 1;
    }
}

/* The least of several trials: what disturbs a trial only makes it longer. */
static double least(uint64_t (*clock)(void), void (*prepare)(void), void (*job)(void))
{
    uint64_t found = UINT64_MAX;
    for (int trial = 0; trial < TRIALS; trial++) {
        if (prepare != NULL) {
            prepare();
        }
        uint64_t start = clock();
        job();
        uint64_t took = clock() - start;
        found = took < found ? took : found;
    }
    return (double)found;
}

static double cycles_of_line(size_t count, void (*prepare)(void))
{
    steps = prepare == NULL ? STEPS : count;
    lines_link(count, prepare == NULL ? 1 : FAR_STRIDE);
    return least(paths_ticks, prepare, job_walk) / (double)steps;
}

void paths_machine(void)
{
    uint64_t start_ns = paths_clock_ns(), start_ticks = paths_ticks();
    page = (size_t)sysconf(_SC_PAGESIZE);
    double map_ns = least(paths_clock_ns, NULL, job_map) / 2; /* half a pair */
    memory_map();
    double fault_ns = least(paths_clock_ns, touch_prepare, job_touch) / TOUCHED_PAGES;
    double near = cycles_of_line(NEAR_LINES, NULL), l2 = cycles_of_line(L2_LINES, NULL);
    double atomic = least(paths_ticks, NULL, job_atomic) / STEPS / 2;
    double cleared = CLEARED / least(paths_ticks, NULL, job_clear);
    double syscall_ns = least(paths_clock_ns, NULL, job_syscall) / SYSCALLS;
    /* 0: not known */
    double far = paths_worker_start() ? cycles_of_line(FAR_LINES, far_prepare) : 0.0;
    double rate = (double)(paths_ticks() - start_ticks) / (double)(paths_clock_ns() - start_ns);
    printf("{\"near_cycles\":%.2f,\"l2_cycles\":%.2f,\"far_cycles\":%.2f,"
           "\"atomic_cycles\":%.2f,\"bytes_per_cycle\":%.2f,\"syscall_ns\":%.1f,"
           "\"map_ns\":%.1f,\"fault_ns\":%.1f,\"cycles_per_ns\":%.4f}\n",
           near, l2, far, atomic, cleared, syscall_ns, map_ns, fault_ns,
           PATHS_TICKS_ARE_CYCLES ? rate : 0.0);
}
