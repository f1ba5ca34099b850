/* alone.h: is this the only thread of the process? */
#ifndef HAK_BASE_ALONE_H
#define HAK_BASE_ALONE_H

#include "base/compiler.h"

/* glibc's (2.32, <sys/single_threaded.h>); other C libraries have none. Not 0: the process has one
 * thread, and has until that one creates another, which sees all that was stored before. */
extern char __libc_single_threaded __attribute__((weak, visibility("default")));

/* False also where nobody knows. Of no use to who may be interrupted by a signal handler. */
HAK_INLINE bool alone(void)
{
    return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}

#endif
