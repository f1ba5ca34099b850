/* SPDX-License-Identifier: MIT */
/* life.h: a name by which the linker finds life.c, and what the higher layers do at the
 * process's start and end. Only the loader calls life.c, and from an archive a linker takes only
 * files that somebody refers to. So malloc, which every program has, refers to this name. */
#ifndef HAK_CONTROL_LIFE_H
#define HAK_CONTROL_LIFE_H

#include "base/compiler.h"

HAK_HIDDEN extern const bool hak__life_linked;

/* The observer at the process's start, in fork's child and at the process's end; the profile and
 * the heap map at its end. */
HAK_HIDDEN void hak__observer_begin(void);
HAK_HIDDEN void hak__observer_fork_child(void);
HAK_HIDDEN void hak__observer_end(void);
HAK_HIDDEN void hak__profile_at_end(void);
HAK_HIDDEN void hak__heap_map_at_end(void);
/* Secure form: reports accesses to closed pages from now on. Defined in observe/secure_report.c. */
HAK_HIDDEN void hak__secure_watch(void);
/* The learner in fork's child. Defined in learn/learner.c. */
HAK_HIDDEN void hak__learn_fork_child(void);
/* Stacks in fork's child, whose parent had one thread or several. Defined in observe/stacks.c. */
HAK_HIDDEN void hak__stacks_fork_child(bool had_threads);

#endif
