/* SPDX-License-Identifier: MIT */
/* profile_watch.h: when a process writes a heap profile by itself (HAKMEM_PROFILE_DUMP).
 *
 * The thread of observe/profile_dump.h looks at the process's memory ten times a second. No other
 * thread has any work with it. For each reason there are two files: the newest profile,
 * PROFILE_FILE.REASON, and the one before, PROFILE_FILE.REASON.old. A profile gets its name when
 * it is complete, so a process that is killed meanwhile leaves the two before.
 *
 * State: what the last look found; used by that thread alone. */
#ifndef HAK_OBSERVE_PROFILE_WATCH_H
#define HAK_OBSERVE_PROFILE_WATCH_H

#include "control/exit_file.h"

/* At the start of the process. False: there is nothing to look for. */
HAK_HIDDEN bool hak__profile_watch_begin(void);
/* In a forked child that looks, too. */
HAK_HIDDEN void hak__profile_watch_fork_child(void);
/* Looks, and lets `writer` write what has become due. */
HAK_HIDDEN void hak__profile_watch_look(exit_file_writer *writer);

#endif
