/* SPDX-License-Identifier: MIT */
/* life.h: a name by which the linker finds life.c, and what the higher layers do at the process's
 * start and end. Only the loader calls life.c, and from an archive a linker takes only files that
 * somebody refers to. So malloc, which every program has, refers to this name. */
#ifndef HAK_CONTROL_LIFE_H
#define HAK_CONTROL_LIFE_H

#include "base/compiler.h"

HAK_HIDDEN extern const bool hak__life_linked;

/* The observer at the process's start, in fork's child and at the process's end. */
HAK_HIDDEN void hak__observer_begin(void);
HAK_HIDDEN void hak__observer_fork_child(void);
HAK_HIDDEN void hak__observer_end(void);
/* The profiles that a process writes while it runs. Defined in observe/profile_dump.c. */
HAK_HIDDEN void hak__profile_dump_begin(void);
/* Secure form: reports accesses to closed pages from now on. Defined in observe/secure_report.c. */
HAK_HIDDEN void hak__secure_watch(void);
/* The learner in fork's child. Defined in learn/learner.c. */
HAK_HIDDEN void hak__learn_fork_child(void);
/* Stacks in fork's child, whose parent had one thread or several. Defined in observe/stacks.c. */
HAK_HIDDEN void hak__stacks_fork_child(bool had_threads);

/* The looks of the secure form. If they find something, they report that and end the process. */

/* At the next slabs and spans. Outside an operation. */
HAK_HIDDEN void hak__secure_look_around(void);
HAK_HIDDEN void hak__secure_look_at_end(void);
/* In fork's child. If the parent had several threads, there is no look, nor in the child's own
 * children. */
HAK_HIDDEN void hak__secure_fork_child(bool had_threads);

/* Starts the scavenger if it is asked for. Called when the process begins and in fork's child,
 * which has no other thread. Returns NULL, or the reason why a scavenger that is asked for does not
 * run. */
HAK_HIDDEN const char *hak__scavenger_start(void);

/* The report, the profile and the heap map at the end (last_report.c). */

/* At the start of the process, after the options were read. */
HAK_HIDDEN void hak__last_report_begin(void);
/* In the child of a fork. */
HAK_HIDDEN void hak__last_report_fork_child(void);
/* At exit or _exit. */
HAK_HIDDEN void hak__last_report_at_end(void);

#endif
