/* SPDX-License-Identifier: MIT */
/* plugin_interposed.c: a library that puts functions of its own before the C library's, as
 * libfaketime does: they look the real ones up and allocate. test_interposed preloads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int plugin_interposed_calls(void);

static int calls_count;

/* The next function of that name; asking for one that is not there makes the loader allocate. */
static void *find_real(const char *name)
{
    calls_count++;
    if (dlsym(RTLD_NEXT, "no_function_has_this_name") != NULL) {
        abort();
    }
    void *block = malloc(100000);
    __asm__ volatile("" : "+r"(block) : : "memory");
    free(block);
    return dlsym(RTLD_NEXT, name);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))(uintptr_t)find_real("clock_gettime");
    int result = real(clock, now);
    now->tv_sec += 1000000;
    return result;
}

EXPORT pid_t getpid(void)
{
    return ((pid_t(*)(void))(uintptr_t)find_real("getpid"))();
}

EXPORT int sysinfo(struct sysinfo *info)
{
    return ((int (*)(struct sysinfo *))(uintptr_t)find_real("sysinfo"))(info);
}

EXPORT ssize_t write(int descriptor, const void *data, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))(uintptr_t)find_real("write");
    return real(descriptor, data, size);
}

int plugin_interposed_calls(void)
{
    return calls_count;
}
