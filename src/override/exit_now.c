/* SPDX-License-Identifier: MIT */
/* exit_now.c: _exit and _Exit, which end the process without its destructors. Shells, forked
 * children of servers and os._exit of Python end that way. hakmem writes what it was asked to write
 * at the end (control/ending.h). Then the next function of that name ends the process, with its
 * status.
 *
 * exit of a shared C library does not come here; in a static program it does. Weak, so that a
 * program linked with libhakmem.a may define its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomics.h"
#include "control/ending.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

#pragma weak _exit
#pragma weak _Exit
#pragma weak dlsym /* a static program may lack it */

typedef void exit_now_function(int status);

/* The C library's, or those of another library that puts itself before it, which may have only one
 * of them. NULL: there is none, as in a static program. Looked up at the start, because dlsym takes
 * locks. */
static exit_now_function *exit_now_next, *exit_now_next_iso;

__attribute__((constructor(101))) static void exit_now_find(void)
{
    if (dlsym != NULL) {
        exit_now_next = (exit_now_function *)(uintptr_t)dlsym(RTLD_NEXT, "_exit");
        exit_now_next_iso = (exit_now_function *)(uintptr_t)dlsym(RTLD_NEXT, "_Exit");
    }
}

static __attribute__((noreturn)) void exit_now_end(int status, exit_now_function *next)
{
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__ending_wanted)) && hak__ending_take()) {
        hak__ending_write(true);
    }
    if (next != NULL) {
        next(status);
    }
    hak__os_exit(status);
}

HAK_API void _exit(int status)
{
    exit_now_end(status, exit_now_next);
}

HAK_API void _Exit(int status)
{
    exit_now_end(status, exit_now_next_iso);
}
