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

/* A line: start-end rights offset device inode   /path */
bool hak__modules_find(const struct modules *modules, uintptr_t address, struct module_place *place)
{
    const char *line = modules->text, *next;
    uintptr_t base = 0;
    for (; line != NULL && *line != '\0'; line = next) {
        uint64_t start, end;
        const char *at = modules_read_hex(modules_read_hex(line, &start), &end);
        next = modules_next_line(line);
        while (at < next && *at != ' ') { /* the rights */
            at++;
        }
        (void)modules_read_hex(at + 1, &place->offset);
        base = place->offset == 0 ? start : base; /* the mappings of a file follow each other */
        if (address - start >= end - start) {
            continue;
        }
        place->offset += address - start;
        place->base = base;
        while (at < next && *at != '/') {
            at++;
        }
        place->path = at;
        place->path_length = at < next ? (size_t)(next - at) - 1 : 0; /* without the newline */
        return place->path_length != 0;
    }
    return false;
}
