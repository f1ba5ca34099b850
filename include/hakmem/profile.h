/* SPDX-License-Identifier: MIT */
/* profile.h: the heap profiler: which call stacks allocated the memory in use, and all memory so
 * far.
 *
 * hakmem samples about one allocation in each `period` bytes (exponentially distributed) with its
 * call stack, and follows the sampled block until it is freed. Every sample carries a weight, so
 * that the sums are unbiased estimates of all blocks: with 512 KiB, 2,000 live samples stand for a
 * heap of 1 GiB. The fast paths of malloc and free do not change. `./hakmem profile` writes
 * profiles for pprof, folded stacks and flame graphs.
 *
 * All functions are thread-safe. Only hak_profile_write takes long. */
#ifndef HAKMEM_PROFILE_H
#define HAKMEM_PROFILE_H

#include "hakmem/stats.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* The default: the average number of allocated bytes from one sample to the next. */
#define HAK_PROFILE_PERIOD ((size_t)512 << 10)

/* Starts sampling, or changes the period, in bytes. With `period` 0 it is HAK_PROFILE_PERIOD, and
 * threads that would sample more than 4,000 blocks a second sample fewer, with larger weights. A
 * tool that looks at the process may want a shorter period meanwhile. Threads that allocate notice
 * it within about 50 ms. Blocks allocated before are not in the profile. Returns 0 once samples are
 * taken, also if they were taken before. If the process has no unwind tables (a static program that
 * was stripped of its list of sections), the profile has no stacks, and one line on standard error
 * says so. May open files, so it must not be called in a signal handler. */
HAK_API int hak_profile_start(size_t period) HAK_NOEXCEPT;

/* Stops sampling, but not for tools that sample the process at the moment. Blocks sampled so far
 * are followed until they are freed, and the profile keeps its sums. */
HAK_API void hak_profile_stop(void) HAK_NOEXCEPT;

/* Writes the profile to `sink`, which gets `argument`: one line of JSON with the sums of each
 * stack, and the executable mappings of the process. docs/observability/formats.md describes it. No
 * lock is held while the sink runs, so it may allocate. */
HAK_API void hak_profile_write(hak_report_sink *sink, void *argument) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
