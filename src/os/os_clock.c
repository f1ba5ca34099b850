/* SPDX-License-Identifier: MIT */
/* os_clock.c: clocks and processor time, a part of os.h on Linux. See os_machine.c for how the
 * kernel is called. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/charge.h"
#include "os/vdso.h"

/* The kernel's name for it; NULL: there is none, ask by a system call. */
#if defined(__x86_64__)
#define OS_VDSO_CLOCK "__vdso_clock_gettime"
#else
#define OS_VDSO_CLOCK "__kernel_clock_gettime"
#endif
typedef int os_clock_function(clockid_t clock, struct timespec *now);
static os_clock_function *os_clock;

void hak__os_init_clock(void)
{
    os_clock = (os_clock_function *)(uintptr_t)hak__vdso_find(OS_VDSO_CLOCK);
}

static struct timespec os_clock_read(clockid_t clock)
{
    struct timespec now = {0, 0}; /* if reading it fails, only decay stops */
    if (os_clock != NULL) {
        os_clock(clock, &now); /* makes no system call, and does not change errno */
    } else if (!hak__os_is_filtered()) {
        HAK_KEEP_ERRNO;
        syscall(SYS_clock_gettime, clock, &now);
    }
    return now;
}

static uint64_t os_clock_coarse_ms(void)
{
    struct timespec now = os_clock_read(CLOCK_MONOTONIC_COARSE);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint32_t hak__os_clock_ms(void)
{
    return (uint32_t)os_clock_coarse_ms();
}

uint64_t hak__os_clock_uncalled_ms(void)
{
    return os_clock != NULL ? os_clock_coarse_ms() : 0;
}

uint64_t hak__os_wall_clock_s(void)
{
    return (uint64_t)os_clock_read(CLOCK_REALTIME).tv_sec;
}

uint64_t hak__os_clock_us(void)
{
    struct timespec now = os_clock_read(CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t hak__os_cpu_ns(void)
{
    struct timespec now = os_clock_read(CLOCK_PROCESS_CPUTIME_ID);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
