/* SPDX-License-Identifier: MIT */
/* diagnose.h: reports what a program did wrong, and ends it if necessary. Allocates nothing and
 * takes no lock. Any thread, also in a signal handler. */
#ifndef HAK_CORE_DIAGNOSE_H
#define HAK_CORE_DIAGNOSE_H

#include "base/compiler.h"

/* Writes "hakmem: fatal: WHAT: pointer 0x.., in a block of N bytes, owned by arena N" to
 * standard error and aborts. A second line names the process and its program. `bytes` is what the
 * program may use of the block, or asked for. If it or `arena_id` is 0, it is unknown and left out.
 */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__diagnose_fatal(const char *what, const void *pointer, size_t bytes, uint32_t arena_id);
/* The same for a size or an alignment that the program gave: "WHAT (GIVEN): pointer 0x..". */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__diagnose_given(const char *what, size_t given, const void *pointer, size_t bytes);
/* The first for what no allocation of hakmem has to do with, so that the guard cannot tell more. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__diagnose_foreign(const char *what,
                                                                         const void *pointer);
/* The first without the end, for a process that ends for another reason. */
HAK_HIDDEN HAK_COLD void hak__diagnose_report(const char *what, const void *pointer, size_t bytes,
                                              uint32_t arena_id);
/* Writes "hakmem: warning: WHAT: pointer 0x.." to standard error and returns. If `pointer` is NULL,
 * it is left out. */
HAK_HIDDEN HAK_COLD void hak__diagnose_warn(const char *what, const void *pointer);

/* Ends the process by SIGABRT, for who has written a report of its own. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__diagnose_abort(void);

/* Makes this thread never use its thread cache again, because the cache may be corrupt after a
 * fatal report. Defined in arena/thread.c. */
HAK_HIDDEN HAK_COLD void hak__thread_give_up(void);

/* Writes a line to standard error, as hak__text_format makes it, cut at `size` bytes, which are on
 * the stack. */
#define DIAGNOSE_SAY(size, ...)                                                                    \
    do {                                                                                           \
        char line_[size];                                                                          \
        hak__diagnose_line(line_, sizeof line_, __VA_ARGS__);                                      \
    } while (0)
HAK_HIDDEN void hak__diagnose_line(char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
