/* SPDX-License-Identifier: MIT */
/* commands.h: what hakmem-trace does (main.c). Each function returns an exit status. */
#ifndef TRACE_COMMANDS_H
#define TRACE_COMMANDS_H

#include "decode.h"

/* Runs `words` with LD_PRELOAD=libraries and writes its trace to `file`, an absolute path. Ends as
 * the program does, also by its signal. */
int record_program(const char *file, const char *libraries, char **words);

/* Prints what is in a trace. */
int summary_print(const struct trace_file *file);

/* Memory over time, as JSON: live bytes and resident memory at TIMELINE_MOMENTS moments, and for
 * each call site and thread how much was allocated and freed between which of them. */
int timeline_print(const struct trace_file *file);

/* --- replay --- */

/* What one replay measured; the replaying process writes it to its parent. */
struct replay_result {
    uint64_t wall_ns;
    uint64_t cpu_ns;
    uint64_t live_bytes;    /* requested, at the recorded peak */
    uint64_t peak_resident; /* anonymous memory over the whole replay, bytes beyond its start */
    uint64_t resident_then; /* the same at the recorded peak */
    uint64_t resident_end;  /* of anonymous memory, when the calls are done */
    uint64_t calls;
};

/* In a process that the allocator serves: runs the image once; `library`: what must own malloc,
 * empty for the C library. Writes the result to `output`. */
int replay_run(int image, const char *library, int output);

/* Runs the image in the file once and prints a line of JSON as bench/harness.h says; `expected`:
 * the library, or a name without a slash for the C library. */
int replay_bench(const char *name, const char *expected);

/* Replays `file` `runs` times under each allocator: `arms` are NAME LIBRARY ENVIRONMENT triples. */
int replay_all(const char *file, unsigned runs, char **arms, unsigned arm_count);

/* Writes the image of the trace `name` to the file `image` and prints a line of JSON about it. */
int image_write(const char *name, const char *image);

#endif
