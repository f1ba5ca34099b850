/* SPDX-License-Identifier: MIT */
/* profile_dump.h: the profiles that a process appends to HAKMEM_PROFILE_FILE when it gets the
 * signal HAKMEM_PROFILE_SIGNAL, and the thread that writes these and those of HAKMEM_PROFILE_DUMP
 * (observe/profile_watch.h).
 *
 * The handler only wakes a thread of hakmem's, which writes the profile. So a signal that
 * interrupts hakmem itself, or comes beside a fork, is not lost. The thread opens the file at the
 * start, in a table of descriptors of its own.
 *
 * State: the number of signals that have come. */
#ifndef HAK_OBSERVE_PROFILE_DUMP_H
#define HAK_OBSERVE_PROFILE_DUMP_H

#include "base/compiler.h"

/* At the start of the process, after the options were read. Does nothing unless an option is
 * set. */
HAK_HIDDEN void hak__profile_dump_begin(void);

#endif
