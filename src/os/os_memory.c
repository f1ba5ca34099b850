/* SPDX-License-Identifier: MIT */
/* os_memory.c: how much memory the process has, as the kernel counts it. See os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "os/charge.h"

/* The number at the start of `text`, after blanks. */
static uint64_t memory_number(const char *text)
{
    while (*text == ' ' || *text == '\t') {
        text++;
    }
    return hak__text_number(&text);
}

/* The bytes in the line "<key> <number> kB"; UINT64_MAX: there is no such line. */
static uint64_t memory_line(const char *text, const char *key)
{
    const char *after = hak__text_line(text, key);
    return after != NULL ? memory_number(after) << 10 : UINT64_MAX;
}

uint64_t hak__os_ram_by_file(void)
{
    char text[OS_TEXT_SIZE];
    (void)hak__os_read_text("/proc/meminfo", text, sizeof text);
    return memory_line(text, "MemTotal:");
}

uint64_t hak__os_rss(void)
{
    /* Seven numbers of 64 bits. */
    char text[160];
    (void)hak__os_read_text("/proc/thread-self/statm", text, sizeof text);
    const char *second = text;
    while (*second != '\0' && *second != ' ') {
        second++;
    }
    return *second == '\0' ? UINT64_MAX : memory_number(second) * hak__os_page_size();
}

struct os_memory hak__os_memory(void)
{
    char text[OS_TEXT_SIZE];
    (void)hak__os_read_text("/proc/thread-self/status", text, sizeof text);
    struct os_memory memory = {memory_line(text, "VmRSS:"), memory_line(text, "VmHWM:"),
                               memory_line(text, "VmSwap:"), memory_line(text, "RssFile:")};
    if (memory.files != UINT64_MAX) {
        memory.files += memory_line(text, "RssShmem:"); /* the kernel says both or none */
    }
    if (memory.rss == UINT64_MAX) {
        memory.rss = hak__os_rss();
    }
    /* A smaller process is counted page by page: /proc/self/status may be off by 32 OS pages or
     * more for each processor before Linux 6.17, and the count takes the kernel some 20 ms a GiB.
     * Twice as much: summaries of processes up to 512 MiB take twice as long. Half: the RSS of
     * processes above 128 MiB may be off by more than 1 %. */
    if (memory.rss < (UINT64_C(256) << 20)) {
        (void)hak__os_read_text("/proc/thread-self/smaps_rollup", text, sizeof text);
        uint64_t counted = memory_line(text, "Rss:");
        memory.rss = counted != UINT64_MAX ? counted : memory.rss;
    }
    if (memory.rss != UINT64_MAX && memory.peak_rss < memory.rss) {
        memory.peak_rss = memory.rss;
    }
    return memory;
}

uint64_t hak__os_huge_page_bytes(void)
{
    char text[OS_TEXT_SIZE];
    (void)hak__os_read_text("/proc/thread-self/smaps_rollup", text, sizeof text);
    return memory_line(text, "AnonHugePages:");
}

const char *hak__os_no_huge_pages(void)
{
    char text[OS_TEXT_SIZE];
    if (!hak__os_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) {
        return "the kernel seems to have none: it shows no /sys/kernel/mm/transparent_hugepage";
    }
    if (strstr(text, "[never]") != NULL) {
        return "/sys/kernel/mm/transparent_hugepage/enabled is never";
    }
    (void)hak__os_read_text("/proc/thread-self/status", text, sizeof text);
    return memory_line(text, "THP_enabled:") == 0 ? "the program forbids them (PR_SET_THP_DISABLE)"
                                                  : NULL;
}

bool hak__os_addresses_are_limited(void)
{
    struct rlimit limit;
    HAK_KEEP_ERRNO;
    bool limited = false;
    for (int i = 0; i < 2 && !limited && !hak__os_is_filtered(); i++) {
        limited = syscall(SYS_prlimit64, 0, i == 0 ? RLIMIT_AS : RLIMIT_DATA, NULL, &limit) == 0 &&
                  limit.rlim_cur != RLIM_INFINITY;
    }
    return limited;
}
