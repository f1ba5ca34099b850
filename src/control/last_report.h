/* SPDX-License-Identifier: MIT */
/* last_report.h: the report that a process writes when it ends (HAKMEM_STATS).
 *
 * Its file is opened at the start: at the end a server's worker may have no right to open it, and
 * programs such as ls have closed standard error. A child of fork writes to the same file, or to
 * one of its own if the name has a %p.
 *
 * A signal that ends the process runs no destructor. With HAKMEM_STATS_SIGNAL=1 hakmem installs
 * handlers where the program's parent left the default action. A handler writes the report, the
 * profile and the heap map, as far as they are asked for, and then lets the default action end the
 * process. That is off by default, because it changes what a
 * program sees: sigaction says that there is a handler. There is no way without one: a
 * process that a signal ends runs no more code of its own (docs/observability/summary.md). */
#ifndef HAK_CONTROL_LAST_REPORT_H
#define HAK_CONTROL_LAST_REPORT_H

#include "base/compiler.h"

/* At the start of the process, after the options were read. */
HAK_HIDDEN void hak__last_report_begin(void);
/* In the child of a fork. */
HAK_HIDDEN void hak__last_report_fork_child(void);
/* At exit or _exit. */
HAK_HIDDEN void hak__last_report_at_end(void);

#endif
