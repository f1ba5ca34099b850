/* SPDX-License-Identifier: MIT */
/* replay.h: `hakmem-trace replay` and the process it starts for each allocator. */
#ifndef TRACE_REPLAY_H
#define TRACE_REPLAY_H

#include <stdint.h>

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
 * empty for the C library. Writes the result to `output`. Returns an exit status. */
int replay_run(int image, const char *library, int output);

/* Runs the image in the file once and prints a line of JSON as bench/harness.h says; `expected`:
 * the library, or a name without a slash for the C library. */
int replay_bench(const char *name, const char *expected);

/* Replays `file` `runs` times under each allocator: `arms` are NAME LIBRARY ENVIRONMENT triples. */
int replay_all(const char *file, unsigned runs, char **arms, unsigned arm_count);

#endif
