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

/* Notes that a thread makes for itself. They share a variable, because the loader keeps little room
 * for thread-local ones, and each alone would also take some for its alignment. */
struct own {
    /* core/lock.c. Bit r of `held`: the thread holds a lock of rank r; at assertion level 1 and
     * above. `gave_up_ms`: the low bits of the clock when it last gave up outside of the gate. They
     * wrap, so once a minute, and at first, it may give up too early. */
    uint16_t held;
    uint16_t gave_up_ms;
    uint8_t node;         /* region/numa.h */
    bool in_family;       /* override/family.c */
    bool is_direct;       /* os/os_map.c: its calls are the system's */
    uint8_t hurry;        /* core/gate.h; 0: it does not; else one more than its waits left */
    uint32_t number;      /* observe/samples.c: of its samples; 0: none yet */
    uint16_t inner_forks; /* arena/fork.c: its forks inside another one, or inside an operation */
    bool refused;         /* core/gate.h: an operation was refused */
};
HAK_HIDDEN extern HAK_TLS struct own hak__own;

#endif
