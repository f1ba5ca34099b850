/* SPDX-License-Identifier: MIT */
/* observer.h: a thread that answers tools which look into the process from outside.
 *
 * It exists only if it is asked for: HAKMEM_OBSERVE=1, hak_observe_start, or ./hakmem observe PID
 * (include/hakmem/observe.h). It sleeps until a tool writes a request into the file
 * /dev/shm/hakmem.UID.PID and wakes it. The reply goes into the same file. While nobody asks, it
 * only wakes every BACKGROUND_LOOK_MS to see whether the program's threads have all ended. In a
 * name space of process ids (a container) the name is hakmem.UID.PID.SPACE, with its inode number.
 *
 *   file:   struct observer_page | padding to OBSERVER_REPLY_OFFSET | reply, reply_size bytes
 *
 * Protocol. A reader takes flock on the file, so that there is one reader at a time and the lock
 * goes when the reader dies. It writes the request's text, then adds 1 to shared_request and wakes
 * that word. It waits until shared_reply is that number; then status, reply_size and the reply
 * belong to this request. It gives up the lock when it has read them.
 *
 * A reader that does not trust the program copies before it parses. The observer trusts the reader
 * with nothing but the request's text, which it copies first, too.
 *
 * The thread has its own table of descriptors, allocates nothing and holds no lock while it waits.
 * Only it touches the file's mapping. */
#ifndef HAK_OBSERVE_OBSERVER_H
#define HAK_OBSERVE_OBSERVER_H

#include "hakmem/observe.h"
#include "hakmem/stats.h"

#define OBSERVER_REPLY_OFFSET 4096u

/* All numbers are the machine's own.          written by */
struct observer_page {
    char magic[8];       /* observer: "hakmem\0O" */
    uint32_t version;    /* observer: 1; readers refuse to talk to another one */
    uint32_t process;    /* observer: its process id, in its own name space */
    uint64_t start_time; /* observer: the process's start, field 22 of /proc/PID/stat; 0: unknown */
    uint32_t shared_request; /* readers: number of the last request; wraps */
    uint32_t shared_reply;   /* observer: number of the request that was answered last */
    uint64_t reply_size;     /* observer: bytes */
    uint32_t status;         /* observer: 0, or an errno value: ENOENT: there is no such request */
    uint32_t unused[3];
    char request[960]; /* readers: "NAME" or "NAME ARGUMENT", and a zero */
};

#endif
