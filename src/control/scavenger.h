/* SPDX-License-Identifier: MIT */
/* scavenger.h: an optional thread that returns free memory to the OS while the program idles.
 *
 * All other work happens in calls of malloc and free. A program that makes no calls keeps what it
 * freed in its last second. The thread exists only if it is asked for (HAKMEM_SCAVENGER=1), because
 * a second thread forbids some things (unshare of a user namespace, setns) and counts against
 * limits.
 *
 * The scavenger takes the notifications of heaps, returns kept spans and purges by the clock. It
 * cannot empty bins, which belong to their threads. It also watches how long tasks of the program's
 * cgroup and of the machine wait for memory (pressure stall information). While they do, every
 * thread purges after 10 ms. The scavenger has no heap, allocates nothing, and has its own table of
 * descriptors.
 *
 * Rights belong to threads, too. A program that gives up capabilities with capset and then calls
 * setuid is ended by the C library, because the scavenger has kept its rights (docs/guarantees.md).
 */
#ifndef HAK_CONTROL_SCAVENGER_H
#define HAK_CONTROL_SCAVENGER_H

#include "base/compiler.h"

/* Starts the scavenger if it is asked for. Called when the process begins and in fork's child,
 * which has no other thread. Returns NULL, or the reason why a scavenger that is asked for does not
 * run. */
HAK_HIDDEN const char *hak__scavenger_start(void);

#endif
