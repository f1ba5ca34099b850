/* SPDX-License-Identifier: MIT */
/* test_vdso.c: os/vdso: the kernel's clock without the C library. */
#include "unit.h"

#include <sys/auxv.h>
#include <time.h>

#include "os/vdso.h"

#if defined(__x86_64__)
#define CLOCK_NAME "__vdso_clock_gettime"
#else
#define CLOCK_NAME "__kernel_clock_gettime"
#endif

typedef int clock_function(clockid_t clock, struct timespec *now);

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

TEST(the_clock_is_the_kernels)
{
    if (getauxval(AT_SYSINFO_EHDR) == 0) { /* valgrind and some kernels have none */
        assert_null(hak__vdso_find(CLOCK_NAME));
        skip();
    }
    clock_function *clock = (clock_function *)(uintptr_t)hak__vdso_find(CLOCK_NAME);
    assert_non_null(clock);
    struct timespec before;
    struct timespec between;
    struct timespec after;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
    assert_int_equal(clock(CLOCK_MONOTONIC, &between), 0);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
    assert_true(nanoseconds(&before) <= nanoseconds(&between));
    assert_true(nanoseconds(&between) <= nanoseconds(&after));
}

TEST(unknown_names)
{
    assert_null(hak__vdso_find(""));
    assert_null(hak__vdso_find(CLOCK_NAME "x"));
    assert_null(hak__vdso_find("malloc"));
}

TESTS(NULL)
