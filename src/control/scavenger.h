/* scavenger.h: a thread of hakmem's own that gives free memory back to the OS while the program
 * idles.
 *
 * Everything else happens when the program allocates or frees; one that does neither keeps what it
 * has freed in its last second. The thread exists only when asked for (HAKMEM_SCAVENGER=1): a
 * program with a thread that it did not start may not do all that one without may (unshare a user
 * namespace, setns), and counts one more.
 *
 * It takes the notifications of heaps, returns kept spans and purges by the clock; bins belong to
 * their threads and stay. It also watches how long tasks wait for memory (pressure stall
 * information of its cgroup, else of the machine): meanwhile every thread purges after 10 ms. It
 * has no heap, allocates nothing, and has a table of descriptors of its own.
 *
 * Rights belong to threads, too: a program that gives up capabilities with capset and then calls
 * setuid is ended by the C library, which finds that the other thread could not follow.
 */
#ifndef HAK_CONTROL_SCAVENGER_H
#define HAK_CONTROL_SCAVENGER_H

#include "base/compiler.h"

/* Starts it, if it is asked for. When the process begins, and in fork's child, which has only the
 * thread that forked. Returns why there is none although it is asked for, else NULL. */
HAK_HIDDEN const char *hak__scavenger_start(void);

#endif
