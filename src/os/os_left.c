/* SPDX-License-Identifier: MIT */
/* os_left.c: calls that a program makes by the names of the C library (override/left_calls.c), and
 * memory without what they have left. See os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/charge.h"

long hak__os_pass(enum os_passed call, const void *address, size_t size, long what, long more)
{
    static const long numbers[] = {SYS_mprotect, SYS_pkey_mprotect, SYS_madvise,
                                   SYS_mlock,    SYS_mlock2,        SYS_munlock};
    int saved = errno;
    long result = syscall(numbers[call], address, size, what, more);
    long error = result < 0 ? -(long)errno : result;
    errno = saved;
    return error;
}

int hak__os_renew(void *address, size_t size)
{
    int saved = errno;
    os_count(OS_CALL_MAP);
    void *result = mmap(address, size, hak__os_protection(),
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    int error = result == MAP_FAILED ? -errno : 0;
    errno = saved;
    return error;
}
