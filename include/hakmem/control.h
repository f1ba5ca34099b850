/* SPDX-License-Identifier: MIT */
/* control.h: options that the program sets, and one function that reads figures, sets options and
 * does the rest by name.
 *
 * Options come from four places. Each one overrides those before it:
 *
 *   1. the file /etc/hakmem.conf (docs/options.md)
 *   2. the program's own string hak_options, below
 *   3. the environment: HAKMEM_PURGE_DELAY_MS=100
 *   4. hak_option_set, while the program runs
 *
 * The profile is applied before the single options, wherever each of them comes from.
 *
 * All functions are thread-safe, but not async-signal-safe. They return 0 or an errno value, and do
 * not change errno. */
#ifndef HAKMEM_CONTROL_H
#define HAKMEM_CONTROL_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* A program may define this string: settings with commas or white space between them. hakmem reads
 * it once, when the process starts.
 *
 *   #include <hakmem/control.h>
 *   const char hak_options[] = "profile=small,purge_delay_ms=500";
 *
 * It works in programs that are linked with hakmem. In a program on which hakmem is preloaded, it
 * works if the program is linked with -rdynamic. Setuid programs ignore the file and the
 * environment, but not this string. A value in it cannot have commas or spaces. */
HAK_API extern const char hak_options[];

/* Sets an option. `name` is as in docs/options.md, in any case, with or without HAKMEM_. `value` is
 * what the environment would say, such as "64m" or "never". Threads act on it within their next 50
 * ms of allocations. 0, or:
 *
 *   ENOENT  there is no option of that name
 *   EPERM   the option changes at start only
 *   EINVAL  the value is not allowed, or empty; for cache_bytes_total, "0" works at start only
 *   EBUSY   the process learns (HAKMEM_LEARN), and the learner sets this option
 *   EAGAIN  the caller is a signal handler that interrupted the allocator, there is no memory, or
 *           the kernel does not let the secure form write its settings (docs/security.md) */
HAK_API int hak_option_set(const char *name, const char *value) HAK_NOEXCEPT;

/* Stores the value of an option, as hak_option_set takes it, in `value`, which has `size` bytes.
 * 0, ENOENT, or ERANGE: the value does not fit and is cut. It ends with a zero unless `size` is 0.
 */
HAK_API int hak_option_get(const char *name, char *value, size_t size) HAK_NOEXCEPT;

/* Reads a figure, reads or sets an option, or does something, by name: for a program's own console
 * or admin interface. hak_control("list", NULL, answer, size) lists all names, one a line, each
 * with what it is and a help text. docs/options.md has the same list.
 *
 *   "options.purge_delay_ms"   `value` NULL reads the option, else sets it
 *   "counters.malloc_slow"     any figure of hak_stats_value
 *   "trim", "report.json"      actions; `value` is an argument that most do not need
 *
 * Stores the answer in `answer`, which has `size` bytes and may be NULL if that is 0. It ends with
 * a zero unless `size` is 0. 0, or what hak_option_set returns, or:
 *
 *   ENOENT  there is no such name, or the figure is unknown now
 *   EPERM   `value` is given, but the name is that of a figure
 *   EINVAL  the action does not take this value
 *   ERANGE  the answer does not fit and is cut. The action is done nevertheless
 *   others  what the kernel says of a file that cannot be written, or hak_observe_start says */
HAK_API int hak_control(const char *name, const char *value, char *answer,
                        size_t size) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
