/* SPDX-License-Identifier: MIT */
/* modules.c: see modules.h. */
#define _GNU_SOURCE
#include "modules.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mapped.h"
#include "base/text.h"
#include "output.h"

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

/* The line of a mapping, and that of its file's build id. The address is the one by which tools
 * know the file's code, which linkers may choose apart from its offset in the file. */
static void put_module(struct text *text, const struct module_place *place, struct build_id *id)
{
    static const struct mapped_reader reader = {read_memory, output_read_file};
    uint64_t before = id->head;
    int length = (int)place->path_length;
    hak__mapped_id(id, place, &reader);
    hak__text_format(text, "%lx-%lx %lx %.*s\n", place->start, place->end,
                     id->is_elf ? place->start - id->bias : place->offset, length, place->path);
    if (id->size != 0 && (id->head == 0 || id->head != before)) {
        hak__text_put(text, "build-id ");
        for (uint32_t i = 0; i < id->size; i++) {
            hak__text_format(text, "%02x", id->bytes[i]);
        }
        hak__text_format(text, " %.*s\n", length, place->path);
    }
}

uint32_t modules_list(char *list, const char *maps)
{
    struct text text = {list, TRACE_MODULES_MAX, 0};
    struct module_place place = {.end = 0};
    struct build_id id = {.head = 0};
    memory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
    range_count = 0;
    while (*maps != 0) {
        maps = hak__modules_next(maps, &place);
        size_t most = 2 * (place.path_length + BUILD_ID_MAX) + 80;
        if (place.is_code && place.path_length != 0 && range_count < MODULES_MAX &&
            text.size - text.length >= most) {
            ranges[range_count++] = (struct range){place.start, place.end};
            put_module(&text, &place, &id);
        }
    }
    if (memory >= 0) {
        syscall(SYS_close, memory);
    }
    return (uint32_t)text.length;
}
