/* SPDX-License-Identifier: MIT */
/* next.c: functions of the C library that hakmem comes before: it takes notice, and hands the call
 * on to the next function of that name.
 *
 *   _exit, _Exit   End the process without its destructors. Shells, forked children of servers and
 *                  os._exit of Python end that way. hakmem writes what it was asked to write at the
 *                  end (control/ending.h). exit of a shared C library does not come here; in a
 *                  static program it does.
 *   prctl          A program may set a filter of system calls (seccomp), which may end the process
 *                  at calls of hakmem (os/os_filter.c). A filter is set by prctl itself, or by the
 *                  call seccomp. A program without privileges must forbid itself new ones before
 *                  that, by prctl; libseccomp and most programs always do. Such a process may set
 *                  no filter after that; it only does without huge pages then.
 *
 * Weak, so that a program linked with libhakmem.a may define its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomics.h"
#include "control/ending.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

#pragma weak _exit
#pragma weak _Exit
#pragma weak prctl
#pragma weak dlsym /* a static program may lack it */

typedef void next_exit_function(int status);
typedef int next_prctl_function(int option, ...);

/* The C library's, or those of another library that puts itself before it, which may have only some
 * of them. NULL: there is none, as in a static program, or it is not known yet. Looked up at the
 * start, because dlsym takes locks. */
static next_exit_function *next_exit, *next_exit_iso;
static next_prctl_function *next_prctl;

__attribute__((constructor(101))) static void next_find(void)
{
    if (dlsym != NULL) {
        next_exit = (next_exit_function *)(uintptr_t)dlsym(RTLD_NEXT, "_exit");
        next_exit_iso = (next_exit_function *)(uintptr_t)dlsym(RTLD_NEXT, "_Exit");
        next_prctl = (next_prctl_function *)(uintptr_t)dlsym(RTLD_NEXT, "prctl");
    }
}

static __attribute__((noreturn)) void next_end(int status, next_exit_function *next)
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
    next_end(status, next_exit);
}

HAK_API void _Exit(int status)
{
    next_end(status, next_exit_iso);
}

/* As the C library does, it hands on four words, whatever the caller has given. */
HAK_API int prctl(int option, ...)
{
    va_list rest;
    unsigned long words[4];
    va_start(rest, option);
    for (int i = 0; i < 4; i++) {
        words[i] = va_arg(rest, unsigned long);
    }
    va_end(rest);
    if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) {
        hak__os_note_filter();
    }
    return next_prctl != NULL
               ? next_prctl(option, words[0], words[1], words[2], words[3])
               : (int)syscall(SYS_prctl, option, words[0], words[1], words[2], words[3]);
}
