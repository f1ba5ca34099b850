/* SPDX-License-Identifier: MIT */
/* background.h: how hakmem's own threads start, and when they must end.
 *
 * A process may have three: the scavenger (control/scavenger.c), the observer (observe/observer.h)
 * and the one that writes profiles (observe/profile_dump.c). Each exists only if it is asked for.
 * All signals are blocked in them: the program's own threads get its signals. */
#ifndef HAK_CONTROL_BACKGROUND_H
#define HAK_CONTROL_BACKGROUND_H

#include "base/compiler.h"

/* Longest sleep of such a thread between two looks whether the program's threads have all ended.
 * Doubled: a process whose main thread ended by pthread_exit may live on for a second. Halved:
 * twice as many wake-ups of an idle process. */
#define BACKGROUND_LOOK_MS 500u
/* Longest wait of a process's start, and of its end, for a thread that starts. A busy machine needs
 * some 10 ms. Doubled: a process whose thread never runs starts a second later. */
#define BACKGROUND_WAIT_MS 1000u

typedef void *background_function(void *argument);

/* Starts a detached thread with a small stack that runs `function`. Returns 0 or an errno value.
 * Any thread that may call pthread_create. */
HAK_HIDDEN int hak__background_start(background_function *function);
/* Sleeps while the word has that value, at most BACKGROUND_WAIT_MS unless `patiently`. Returns its
 * value then. acquire: pairs with the release of the thread that changes it. */
HAK_HIDDEN uint32_t hak__background_wait(uint32_t *word, uint32_t value, bool patiently);
/* The thread calls this as the last thing it does. */
HAK_HIDDEN void hak__background_end(void);
/* For hakmem's threads: true if none of the program's own threads is left. A process whose main
 * thread has ended lives until its last thread ends, and hakmem's must not be that thread. */
HAK_HIDDEN bool hak__background_is_left_alone(void);
/* In fork's child: it has none of these threads. */
HAK_HIDDEN void hak__background_fork_child(void);

#endif
