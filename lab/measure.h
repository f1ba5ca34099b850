/* SPDX-License-Identifier: MIT */
/* measure.h: what the parts of the measuring process share: measure.c (processes, the JSON line),
 * measure_options.c (the command line), measure_memory.c (resident memory of the process tree),
 * measure_server.c (when a server is ready). All of it is the one thread's.
 */
#ifndef LAB_MEASURE_H
#define LAB_MEASURE_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* pipe2, wait4, sigtimedwait: also with -std=c17 */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#define MEASURE_MS UINT64_C(1000000) /* nanoseconds */
#define MEASURE_SECOND UINT64_C(1000000000)
#define MEASURE_RESTS_MAX 16

/* Prints one sentence and ends with the status. */
_Noreturn void measure_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline uint64_t measure_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MEASURE_SECOND + (uint64_t)now.tv_nsec;
}

/* ---- The command line. ---- */

struct options {
    uint64_t interval_ms;
    uint64_t timeout_s;
    uint64_t ready_ms;
    uint64_t stop_ms;
    const char *directory; /* NULL: where we are */
    const char *output;
    const char *errors;
    const char *load_output;
    char **environment; /* NAME=VALUE; this and what follows: NULL at the end */
    char **load;        /* empty: the program is no server */
    char **rest_s;      /* rising: when to read the memory after the load's end */
};

extern struct options options;

/* Of an option: from 1 to 1,000,000. */
uint64_t number_read(const char *text);

/* Fills them and returns the words of the program. */
char **options_read(int count, char **words);

/* ---- Memory. ---- */

/* All descendants of this process but `except` and its descendants; a list that stays valid until
 * the next call. Only direct knowledge: without /proc/PID/task/TID/children it is `program`. */
struct memory_tree {
    pid_t *pids;
    size_t count;
};
struct memory_tree memory_tree_list(pid_t program, pid_t except);

/* Starts the series; `interval_ns` is the longest time between two samples. */
void memory_start(pid_t program, uint64_t start_ns, uint64_t interval_ns);

/* Reads the resident memory if it is time to; `except` is the load's process or 0. */
void memory_sample(pid_t except);

/* Reads everything now, for the last time: later samples are not taken. */
void memory_close(pid_t except);

/* What all processes hold `rest_s` seconds after the load; at most MEASURE_RESTS_MAX times. */
void memory_rest(uint64_t rest_s);

/* When the next sample is due. */
uint64_t memory_next_ns(void);

/* `maxrss_kib`: the kernel's own figure for the largest single process. */
void memory_print(FILE *out, uint64_t maxrss_kib);

/* ---- Servers. ---- */

/* Whether the program, or anything it started, has a socket that accepts connections. */
bool server_listens(pid_t program);

#endif
