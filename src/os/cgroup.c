/* SPDX-License-Identifier: MIT */
/* cgroup.c: how many processors and how much memory a container may use, and how long it waited for
 * memory. It reads the files of cgroup version 2 and the kernel's pressure stall information. */
#include <string.h>

#include "base/text.h"
#include "os/os.h"

/* Reads "QUOTA PERIOD", both in microseconds, as whole processors, rounded up. UINT32_MAX: no quota
 * ("max"), or not readable. */
static uint32_t cgroup_parse_quota(const char *text)
{
    uint64_t quota = hak__text_number(&text);
    text += *text == ' ';
    uint64_t period = hak__text_number(&text);
    if (quota == 0 || period == 0 || quota > UINT64_MAX - period) {
        return UINT32_MAX;
    }
    uint64_t processors = (quota + period - 1) / period;
    return processors < UINT32_MAX ? (uint32_t)processors : UINT32_MAX;
}

/* Reads a number of bytes. UINT64_MAX: no limit ("max"), or not readable. */
static uint64_t cgroup_parse_memory(const char *text)
{
    uint64_t bytes = hak__text_number(&text);
    return bytes == 0 ? UINT64_MAX : bytes;
}

static void cgroup_put_path(char *path, size_t size, const char *root, const char *group,
                            size_t length, const char *file)
{
    hak__text_make(path, size, "%s%.*s%s", root, (int)length, group, file);
}

/* Writes the path of the process's group to `group`. Returns its length; SIZE_MAX: there is none.
 */
static size_t cgroup_find(const char *membership, char group[OS_TEXT_SIZE])
{
    (void)hak__os_read_text(membership, group, OS_TEXT_SIZE);
    for (const char *line = group; *line != '\0';) {
        size_t length = 0;
        while (line[length] != '\0' && line[length] != '\n') {
            length++;
        }
        /* In /proc/self/cgroup, before the path of version 2's group. */
        const char *found = hak__text_after(line, "0::");
        if (found != NULL) {
            length -= (size_t)(found - line);
            memmove(group, found, length);
            return length;
        }
        line += length + (line[length] == '\n');
    }
    return SIZE_MAX;
}

/* The length of the path of the group above; SIZE_MAX: it is the root. */
static size_t cgroup_above(const char *group, size_t length)
{
    if (length == 0) {
        return SIZE_MAX;
    }
    while (length != 0 && group[--length] != '/') {
    }
    return length;
}

struct os_container hak__os_container(const char *membership, const char *root)
{
    struct os_container least = {UINT32_MAX, UINT64_MAX};
    char group[OS_TEXT_SIZE], path[2 * OS_TEXT_SIZE], line[64];
    size_t length = cgroup_find(membership, group);
    for (; length != SIZE_MAX; length = cgroup_above(group, length)) { /* may have lower limits */
        cgroup_put_path(path, sizeof path, root, group, length, "/cpu.max");
        (void)hak__os_read_text(path, line, sizeof line);
        uint32_t processors = cgroup_parse_quota(line);
        cgroup_put_path(path, sizeof path, root, group, length, "/memory.max");
        (void)hak__os_read_text(path, line, sizeof line);
        uint64_t memory = cgroup_parse_memory(line);
        least.processors = processors < least.processors ? processors : least.processors;
        least.memory = memory < least.memory ? memory : least.memory;
    }
    return least;
}

/* A line of memory.stat, in bytes; 0: it is not there. */
static uint64_t cgroup_stat(const char *text, const char *key)
{
    const char *after = hak__text_line(text, key);
    return after != NULL ? hak__text_number(&after) : 0;
}

/* Of the group whose files have these paths up to `file`. Most of the time it reads two short ones.
 */
static uint32_t cgroup_percent(char *path, size_t size, const char *root, const char *group,
                               size_t length, uint32_t least)
{
    char text[4096]; /* the lines about files come early in memory.stat */
    cgroup_put_path(path, size, root, group, length, "/memory.max");
    (void)hak__os_read_text(path, text, sizeof text);
    uint64_t most = cgroup_parse_memory(text);
    cgroup_put_path(path, size, root, group, length, "/memory.current");
    (void)hak__os_read_text(path, text, sizeof text);
    const char *number = text;
    uint64_t used = hak__text_number(&number);
    if (most == UINT64_MAX || used / ((most + 99) / 100) < least) {
        return 0;
    }
    cgroup_put_path(path, size, root, group, length, "/memory.stat");
    (void)hak__os_read_text(path, text, sizeof text);
    uint64_t cache = cgroup_stat(text, "active_file ") + cgroup_stat(text, "inactive_file ");
    uint64_t percent = (used - (cache < used ? cache : used)) / ((most + 99) / 100);
    return percent < least ? 0 : percent < 100 ? (uint32_t)percent : 100;
}

uint32_t hak__os_memory_percent(const char *membership, const char *root, uint32_t least)
{
    char group[OS_TEXT_SIZE], path[2 * OS_TEXT_SIZE];
    uint32_t fullest = 0;
    size_t length = cgroup_find(membership, group);
    for (; length != SIZE_MAX; length = cgroup_above(group, length)) {
        uint32_t percent = cgroup_percent(path, sizeof path, root, group, length, least);
        fullest = percent > fullest ? percent : fullest;
    }
    return fullest;
}

bool hak__os_pressure_path(const char *membership, const char *root, char *path, size_t size)
{
    char group[OS_TEXT_SIZE];
    size_t length = cgroup_find(membership, group);
    if (length != SIZE_MAX) {
        cgroup_put_path(path, size, root, group, length, "/memory.pressure");
    }
    return length != SIZE_MAX;
}

uint64_t hak__os_pressure_stalled_us(const char *path)
{
    char line[256]; /* the first line: some avg10=0.00 avg60=0.00 avg300=0.00 total=0 */
    (void)hak__os_read_text(path, line, sizeof line);
    for (const char *at = line; *at != '\0' && *at != '\n'; at++) {
        const char *total = hak__text_after(at, "total=");
        if (total != NULL) {
            return hak__text_number(&total);
        }
    }
    return UINT64_MAX;
}
