/* SPDX-License-Identifier: MIT */
/* measure_perf.c: hardware counters of the program and all it starts, where the machine has them
 * and lets us: instructions, cycles, cache misses, misses of the data TLB, in user space.
 *
 * A processor with fewer counters than asked for shares them out over time; each value is then
 * scaled by the share of the time it was counted.
 */
#include "measure.h"

#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PERF_DTLB_READ_MISSES                                                                      \
    (PERF_COUNT_HW_CACHE_DTLB | (PERF_COUNT_HW_CACHE_OP_READ << 8) |                               \
     (PERF_COUNT_HW_CACHE_RESULT_MISS << 16))

static struct perf_counter {
    const char *name;
    uint64_t config;
    uint32_t type;
    int file; /* -1: this machine does not have it */
} counters[] = {
    {"instructions", PERF_COUNT_HW_INSTRUCTIONS, PERF_TYPE_HARDWARE, -1},
    {"cycles", PERF_COUNT_HW_CPU_CYCLES, PERF_TYPE_HARDWARE, -1},
    {"cache_misses", PERF_COUNT_HW_CACHE_MISSES, PERF_TYPE_HARDWARE, -1},
    {"dtlb_misses", PERF_DTLB_READ_MISSES, PERF_TYPE_HW_CACHE, -1},
};

void perf_open(pid_t program)
{
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        struct perf_event_attr attributes;
        memset(&attributes, 0, sizeof attributes);
        attributes.size = sizeof attributes;
        attributes.type = counters[i].type;
        attributes.config = counters[i].config;
        attributes.disabled = 1;
        attributes.enable_on_exec = 1;
        attributes.inherit = 1;
        attributes.exclude_kernel = 1; /* what perf_event_paranoid 2, the usual setting, allows */
        attributes.exclude_hv = 1;
        attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
        counters[i].file = (int)syscall(SYS_perf_event_open, &attributes, program, -1, -1,
                                        (unsigned long)PERF_FLAG_FD_CLOEXEC);
    }
}

void perf_print(FILE *out)
{
    const char *separator = "{";
    (void)fputs(",\"perf\":", out);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        uint64_t values[3]; /* count, time enabled, time running */
        if (counters[i].file < 0 ||
            read(counters[i].file, values, sizeof values) != (ssize_t)sizeof values ||
            values[2] == 0) {
            continue;
        }
        (void)fprintf(out, "%s\"%s\":%.0f", separator, counters[i].name,
                      (double)values[0] * ((double)values[1] / (double)values[2]));
        separator = ",";
    }
    (void)fputs(*separator == '{' ? "null" : "}", out);
}
