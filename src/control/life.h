/* life.h: a name by which the linker finds life.c, and the report that life.c writes when a signal
 * ends the process. Only the loader calls life.c, and from an archive a linker takes only files
 * that somebody refers to. So malloc, which every program has, refers to this name. */
#ifndef HAK_CONTROL_LIFE_H
#define HAK_CONTROL_LIFE_H

#include "base/compiler.h"
#include "hakmem/stats.h"

HAK_HIDDEN extern const bool hak__life_linked;

/* hak_report for a signal handler: it gives up if the signal has interrupted hakmem itself, or if a
 * fork takes long. False: nothing was written. In observe/report.c, a higher layer. */
HAK_HIDDEN bool hak__report_soon(enum hak_report_format format, hak_report_sink *sink,
                                 void *argument);
/* The observer at the process's start, in fork's child and at the process's end. Defined in
 * observe/observer.c, which lies above this layer. */
HAK_HIDDEN void hak__observer_begin(void);
HAK_HIDDEN void hak__observer_fork_child(void);
HAK_HIDDEN void hak__observer_end(void);
/* Stacks in fork's child, whose parent had one thread or several. Defined in observe/stacks.c. */
HAK_HIDDEN void hak__stacks_fork_child(bool had_threads);

#endif
