/* SPDX-License-Identifier: MIT */
/* modules.c: see modules.h. */
#include "observe/modules.h"

#include "os/os.h"

#include <string.h>

/* Bytes of the list that are tried first: some 3,000 mappings. It doubles until all fit. Half: a
 * large program needs one attempt more. */
#define MODULES_SIZE_START ((size_t)256 << 10)

static struct modules modules_kept; /* constant once the process has started */

/* False: the list cannot be read, or there is no memory. */
static bool modules_read(struct modules *modules)
{
    *modules = (struct modules){NULL, 0};
    for (size_t size = MODULES_SIZE_START;; size *= 2) {
        void *memory;
        if (hak__os_map(size, hak__os_page_size(), &memory) != 0) {
            return false;
        }
        long length = hak__os_read_file("/proc/self/maps", memory, size - 1);
        if (length >= 0 && (size_t)length < size - 1) {
            *modules = (struct modules){memory, size};
            return true;
        }
        hak__os_discard(memory, size);
        if (length < 0) {
            return false;
        }
    }
}

void hak__modules_keep(void)
{
    (void)modules_read(&modules_kept);
}

void hak__modules_open(struct modules *modules)
{
    void *memory;
    if (!modules_read(modules) && modules_kept.text != NULL &&
        hak__os_map(modules_kept.size, hak__os_page_size(), &memory) == 0) {
        memcpy(memory, modules_kept.text, modules_kept.size);
        *modules = (struct modules){memory, modules_kept.size};
    }
}

void hak__modules_close(struct modules *modules)
{
    if (modules->text != NULL) {
        hak__os_discard(modules->text, modules->size);
    }
}

/* Reads a hexadecimal number; returns what follows it and the character behind it. */
static const char *modules_read_hex(const char *at, uint64_t *value)
{
    for (*value = 0;; at++) {
        if (*at >= '0' && *at <= '9') {
            *value = *value * 16 + (uint64_t)(*at - '0');
        } else if (*at >= 'a' && *at <= 'f') {
            *value = *value * 16 + (uint64_t)(*at - 'a' + 10);
        } else {
            return *at != '\0' ? at + 1 : at;
        }
    }
}

/* Where the next line begins, or the end. */
static const char *modules_next_line(const char *at)
{
    while (*at != '\0' && *at != '\n') {
        at++;
    }
    return *at == '\n' ? at + 1 : at;
}

static bool modules_are_same_file(const struct module_place *a, const struct module_place *b)
{
    return a->path_length != 0 && a->path_length == b->path_length &&
           memcmp(a->path, b->path, a->path_length) == 0;
}

/* A line: start-end rights offset device inode   /path */
const char *hak__modules_next(const char *line, struct module_range *range)
{
    struct module_place *place = &range->place, before = *place;
    const char *at = modules_read_hex(modules_read_hex(line, &range->start), &range->end);
    const char *next = modules_next_line(line);
    const char *end = next != line && next[-1] == '\n' ? next - 1 : next;
    while (at < end && *at != ' ') {
        at++;
    }
    range->is_code = at < end && at - line > 2 && at[-2] == 'x';
    (void)modules_read_hex(at < end ? at + 1 : at, &place->offset);
    while (at < end && *at != '/') {
        at++;
    }
    place->path = at;
    place->path_length = (size_t)(end - at);
    if (place->offset == 0) {
        place->base = range->start;
    } else if (!modules_are_same_file(place, &before)) { /* a file's mappings follow each other */
        place->base = 0;
    }
    return next;
}

bool hak__modules_find(const struct modules *modules, uintptr_t address, struct module_place *place)
{
    struct module_range range = {.end = 0};
    for (const char *line = modules->text; line != NULL && *line != '\0';) {
        line = hak__modules_next(line, &range);
        if (address - range.start < range.end - range.start) {
            range.place.offset += address - range.start;
            *place = range.place;
            return place->path_length != 0;
        }
    }
    return false;
}
