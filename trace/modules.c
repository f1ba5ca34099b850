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

static long read_file(const char *path, char *to, size_t size)
{
    long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    long length = file >= 0 ? syscall(SYS_pread64, file, to, size, 0) : -1;
    if (file >= 0) {
        syscall(SYS_close, file);
    }
    return length;
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
static char *put_module(char *to, const struct module_place *place, struct build_id *id)
{
    static const struct mapped_reader reader = {read_memory, read_file};
    static const char word[] = "build-id ";
    uint64_t before = id->head;
    hak__mapped_id(id, place, &reader);
    to = put_hex(to, place->start, 1);
    *to++ = '-';
    to = put_hex(to, place->end, 1);
    *to++ = ' ';
    to = put_hex(to, id->is_elf ? place->start - id->bias : place->offset, 1);
    to = put_path(to, place);
    if (id->size != 0 && (id->head == 0 || id->head != before)) {
        memcpy(to, word, sizeof word - 1);
        to += sizeof word - 1;
        for (uint32_t i = 0; i < id->size; i++) {
            to = put_hex(to, id->bytes[i], 2);
        }
        to = put_path(to, place);
    }
    return to;
}

uint32_t modules_list(char *text, const char *maps)
{
    char *to = text;
    struct module_place place = {.end = 0};
    struct build_id id = {.head = 0};
    memory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
    range_count = 0;
    while (*maps != 0) {
        maps = hak__modules_next(maps, &place);
        size_t most = 2 * (place.path_length + BUILD_ID_MAX) + 80;
        if (place.is_code && place.path_length != 0 && range_count < MODULES_MAX &&
            (size_t)(text + TRACE_MODULES_MAX - to) >= most) {
            ranges[range_count++] = (struct range){place.start, place.end};
            to = put_module(to, &place, &id);
        }
    }
    if (memory >= 0) {
        syscall(SYS_close, memory);
    }
    return (uint32_t)(to - text);
}
