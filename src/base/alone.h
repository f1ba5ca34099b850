/* SPDX-License-Identifier: MIT */
/* alone.h: is this the only thread of the process? And what each thread knows of itself.
 *
 * Why: locks of the only thread need no atomic operation (core/lock.h, docs/decisions/0040). */
#ifndef HAK_BASE_ALONE_H
#define HAK_BASE_ALONE_H

#include "base/compiler.h"

/* A variable of glibc 2.32 and later (<sys/single_threaded.h>); other C libraries have none. Not 0:
 * the process has one thread. A thread it creates later sees everything this one has stored. */
extern char __libc_single_threaded __attribute__((weak, visibility("default")));

/* True if the process certainly has one thread; false if it has more or the C library cannot say.
 * A signal handler runs in the same thread, so a true result does not exclude one. */
HAK_INLINE bool alone(void)
{
    return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}

/* What only the thread itself knows, few bytes each: a library that is loaded late has little room
 * for such variables, and each one alone would need some for its alignment, too. */
struct lock_own {
    uint16_t held; /* bit r: this thread holds a lock of rank r. At assertion level 1 and above */
    /* The low bits of the clock when this thread last gave up outside of the gate. They wrap, so
     * once a minute, and at first, a thread may take another time for a late one: it gives up too
     * early. */
    uint16_t gave_up_ms;
    uint8_t node;         /* not of locks: region/numa.h */
    bool in_family;       /* nor this: override/family.c */
    bool is_direct;       /* nor this: its calls are the system's (os/os_map.c) */
    uint8_t waits_left;   /* this and the bits below: core/gate.c. If it hurries */
    uint32_t number;      /* of the thread's samples (observe/samples.c); 0: none yet */
    uint16_t inner_forks; /* this thread's forks that began inside */
    bool hurries : 1;
    bool pinned : 1;
    bool refused : 1;
};
HAK_HIDDEN extern HAK_TLS struct lock_own hak__lock_own;

#endif
