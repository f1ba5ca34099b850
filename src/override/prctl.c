/* SPDX-License-Identifier: MIT */
/* prctl.c: notices when a program sets a filter of system calls (seccomp), which may end the
 * process at calls of hakmem (os/os_filter.c).
 *
 * A filter is set by prctl itself, or by the call seccomp. A program without privileges must forbid
 * itself new ones before that, by prctl; libseccomp and most programs always do. Such a process may
 * set no filter after that; it only does without huge pages then. Weak, so that a program linked
 * with libhakmem.a may define its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hakmem/hakmem.h"
#include "os/os.h"

#pragma weak prctl
#pragma weak dlsym /* a static program may lack it */

typedef int prctl_function(int option, ...);

/* The C library's, or that of another library that puts itself before it. NULL: there is none, as
 * in a static program, or it is not known yet. Looked up at the start, because dlsym takes locks.
 */
static prctl_function *prctl_next;

__attribute__((constructor(101))) static void prctl_find(void)
{
    if (dlsym != NULL) {
        prctl_next = (prctl_function *)(uintptr_t)dlsym(RTLD_NEXT, "prctl");
    }
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
    return prctl_next != NULL
               ? prctl_next(option, words[0], words[1], words[2], words[3])
               : (int)syscall(SYS_prctl, option, words[0], words[1], words[2], words[3]);
}
