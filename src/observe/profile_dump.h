/* SPDX-License-Identifier: MIT */
/* profile_dump.h: the profiles that a process appends to HAKMEM_PROFILE_FILE when it gets the
 * signal HAKMEM_PROFILE_SIGNAL, those of HAKMEM_PROFILE_DUMP, and the thread that writes them.
 *
 * The handler only wakes the thread. So a signal that interrupts hakmem itself, or comes beside a
 * fork, is not lost. The thread opens the file at the start, in a table of descriptors of its own.
 * For HAKMEM_PROFILE_DUMP it looks at the process's memory ten times a second. For each reason
 * there are two files: the newest profile, PROFILE_FILE.REASON, and the one before,
 * PROFILE_FILE.REASON.old. A profile gets its name when it is complete, so a process that is killed
 * leaves the two before. */
#ifndef HAK_OBSERVE_PROFILE_DUMP_H
#define HAK_OBSERVE_PROFILE_DUMP_H

#include "base/compiler.h"

/* At the start of the process, after the options were read. Does nothing unless an option is
 * set. */
HAK_HIDDEN void hak__profile_dump_begin(void);

#endif
