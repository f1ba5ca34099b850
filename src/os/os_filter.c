/* SPDX-License-Identifier: MIT */
/* os_filter.c: whether a filter of system calls (seccomp) may end the process. See os.h.
 *
 * A filter is written for the calls of a program with the C library's malloc, and may end the
 * process at any other. So with a filter hakmem makes none of the calls that only it would make.
 *
 *   at start   a file of the kernel says whether there is one. The loader reads files, too
 *   later      the program calls prctl, which sets a filter or prepares it (override/next.c)
 *   besides    hakmem asks prctl itself before each call in question. It finds filters that were
 *              set in other ways, unless they end the process at that */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/text.h"
#include "os/charge.h"

/* A filter stays: the program cannot remove it. */
enum { FILTER_NONE, FILTER_PRESENT, FILTER_IGNORED };
static uint32_t shared_os_filter; /* relaxed: it orders nothing */

/* What follows `key` in the calling thread's status; NULL: there is no such line. *whole: the file
 * was read to its end. */
static const char *filter_status(const char *key, char text[OS_TEXT_SIZE], bool *whole)
{
    *whole = hak__os_read_text("/proc/thread-self/status", text, OS_TEXT_SIZE);
    return hak__text_line(text, key);
}

void hak__os_init_filter(void)
{
    char text[OS_TEXT_SIZE];
    bool whole;
    const char *mode = filter_status("Seccomp:\t", text, &whole);
    if (mode != NULL ? *mode != '0' : !whole) { /* a kernel without filters has no such line */
        hak__os_note_filter();
    }
}

void hak__os_note_filter(void)
{
    uint32_t none = FILTER_NONE;
    (void)atomic_cas_acquire(&shared_os_filter, &none, (uint32_t)FILTER_PRESENT);
}

void hak__os_ignore_filters(void)
{
    atomic_store_relaxed(&shared_os_filter, (uint32_t)FILTER_IGNORED);
}

bool hak__os_is_filtered(void)
{
    return atomic_load_relaxed(&shared_os_filter) == FILTER_PRESENT;
}

bool hak__os_may_ask(void)
{
    uint32_t filter = atomic_load_relaxed(&shared_os_filter);
    if (filter != FILTER_NONE) {
        return filter == FILTER_IGNORED;
    }
    HAK_KEEP_ERRNO;
    long mode = syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0);
    if (mode > 0 || (mode < 0 && errno != EINVAL)) { /* EINVAL: a kernel without filters */
        hak__os_note_filter();
    }
    return !hak__os_is_filtered();
}

uint32_t hak__os_processors_by_file(void)
{
    char text[OS_TEXT_SIZE];
    bool whole;
    const char *mask = filter_status("Cpus_allowed:\t", text, &whole);
    uint32_t count = 0;
    for (; mask != NULL && *mask > ' '; mask++) { /* hexadecimal digits and commas */
        uint64_t digit = *mask <= '9' ? (uint64_t)(*mask - '0') : (uint64_t)(*mask - 'a' + 10);
        count += *mask == ',' ? 0 : bits_count(digit);
    }
    return count;
}
