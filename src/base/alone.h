/* SPDX-License-Identifier: MIT */
/* alone.h: is this the only thread of the process?
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

#endif
