/* SPDX-License-Identifier: MIT */
/* modules.c: see modules.h. */
#define _GNU_SOURCE
#include "modules.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mapped.h"
#include "format.h"

#define MODULES_MAX 512

static struct range {
    uint64_t start, end;
} ranges[MODULES_MAX];
static uint32_t range_count;
static int memory; /* /proc/self/mem: other threads may unmap what is read */

bool modules_have(uint64_t site)
{
    for (uint32_t i = 0; i < range_count; i++) {
        if (site - ranges[i].start < ranges[i].end - ranges[i].start) {
            return true;
        }
    }
    return false;
}

void modules_forget(void)
{
    range_count = 0;
}

static bool read_memory(uintptr_t from, void *to, size_t size)
{
    return syscall(SYS_pread64, memory, to, size, from) == (long)size;
}

/* `digits` of them at least. */
static char *put_hex(char *to, uint64_t value, int digits)
{
    int shift = 60;
    while (shift > 4 * (digits - 1) && value >> shift == 0) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        *to++ = "0123456789abcdef"[value >> shift & 15];
    }
    return to;
}

/* A space, the path and the end of the line. */
static char *put_path(char *to, const struct module_place *place)
{
    *to++ = ' ';
    memcpy(to, place->path, place->path_length);
    to += place->path_length;
    *to++ = '\n';
    return to;
}

/* The line of a mapping, and that of its file's build id. The address is the one by which tools
 * know the file's code, which linkers may choose apart from its offset in the file. */
static char *put_module(char *to, const struct module_range *range, struct build_id *id)
{
    static const char word[] = "build-id ";
    uintptr_t before = id->base;
    hak__mapped_id(id, range->place.base, read_memory);
    to = put_hex(to, range->start, 1);
    *to++ = '-';
    to = put_hex(to, range->end, 1);
    *to++ = ' ';
    to = put_hex(to, id->is_elf ? range->start - id->bias : range->place.offset, 1);
    to = put_path(to, &range->place);
    if (id->size != 0 && id->base != before) {
        memcpy(to, word, sizeof word - 1);
        to += sizeof word - 1;
        for (uint32_t i = 0; i < id->size; i++) {
            to = put_hex(to, id->bytes[i], 2);
        }
        to = put_path(to, &range->place);
    }
    return to;
}

uint32_t modules_list(char *text, const char *maps)
{
    char *to = text;
    struct module_range range = {.end = 0};
    struct build_id id = {.base = 0};
    memory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
    range_count = 0;
    while (*maps != 0) {
        maps = hak__modules_next(maps, &range);
        size_t most = 2 * (range.place.path_length + BUILD_ID_MAX) + 80;
        if (range.is_code && range.place.path_length != 0 && range_count < MODULES_MAX &&
            (size_t)(text + TRACE_MODULES_MAX - to) >= most) {
            ranges[range_count++] = (struct range){range.start, range.end};
            to = put_module(to, &range, &id);
        }
    }
    if (memory >= 0) {
        syscall(SYS_close, memory);
    }
    return (uint32_t)(to - text);
}
