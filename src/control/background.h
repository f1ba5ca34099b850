/* SPDX-License-Identifier: MIT */
/* background.h: how hakmem's own threads start, and when they must end.
 *
 * A process may have three: the scavenger (control/scavenger.c), the observer (observe/observer.h)
 * and the one that writes profiles (observe/profile_dump.c). Each exists only if it is asked for.
 * All signals are blocked in them: the program's own threads get its signals. */
#ifndef HAK_CONTROL_BACKGROUND_H
#define HAK_CONTROL_BACKGROUND_H

#include "base/compiler.h"

typedef void *background_function(void *argument);

/* Starts a detached thread with a small stack that runs `function`. Returns 0 or an errno value.
 * Any thread that may call pthread_create. */
HAK_HIDDEN int hak__background_start(background_function *function);
/* The thread calls this as the last thing it does. */
HAK_HIDDEN void hak__background_end(void);
/* For hakmem's threads: true if none of the program's own threads is left. A process whose main
 * thread has ended lives until its last thread ends, and hakmem's must not be that thread. */
HAK_HIDDEN bool hak__background_is_left_alone(void);
/* In fork's child: it has none of these threads. */
HAK_HIDDEN void hak__background_fork_child(void);

#endif
