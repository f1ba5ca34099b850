/* SPDX-License-Identifier: MIT */
/* bound.h: functions of the C library that malloc and free call. The loader binds them at the start
 * instead of at their first call, which takes 3 KiB of a stack that may have 4. They are few,
 * because each one that a process never calls costs its start a look-up. */
#ifndef HAK_OS_BOUND_H
#define HAK_OS_BOUND_H

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_attribute)
#if __has_attribute(noplt)
#define OS_BOUND(name) extern __typeof__(name) name __attribute__((noplt))
#endif
#endif
#ifndef OS_BOUND /* other compilers have an option for all functions, -fno-plt */
#define OS_BOUND(name) extern __typeof__(name) name
#endif

OS_BOUND(mmap);
OS_BOUND(munmap);
OS_BOUND(mremap);
OS_BOUND(madvise);
OS_BOUND(mincore);
OS_BOUND(syscall);
OS_BOUND(memset);
OS_BOUND(memcpy);
OS_BOUND(memmove);
OS_BOUND(pthread_setspecific);
#if defined(__GLIBC__)
OS_BOUND(__errno_location);
#endif

#endif
