/* SPDX-License-Identifier: MIT */
/* sites.c: see sites.h. */
#include "sites.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct module {
    uint64_t start, end;
    uint64_t address;  /* of `start`, as tools count */
    const char *whole; /* path, in the file, ends at a newline */
    const char *path;  /* its last part */
    size_t path_length;
};

/* One line of a frame; returns what follows it. */
static const char *read_line(struct sites *sites, const char *line, const char *end)
{
    char numbers[64];
    struct module module;
    int used = 0;
    const char *stop = memchr(line, '\n', (size_t)(end - line)), *slash;
    if (stop == NULL) {
        return end;
    }
    slash = memchr(line, '/', (size_t)(stop - line));
    if (slash != NULL && (size_t)(slash - line) < sizeof numbers) {
        memcpy(numbers, line, (size_t)(slash - line));
        numbers[slash - line] = 0;
        if (sscanf(numbers, "%" SCNx64 "-%" SCNx64 " %" SCNx64 "%n", &module.start, &module.end,
                   &module.address, &used) == 3) {
            struct module *more = realloc(sites->modules, (sites->count + 1) * sizeof *more);
            if (more != NULL) {
                module.whole = slash;
                while (slash > line && memchr(slash, '/', (size_t)(stop - slash)) != NULL) {
                    slash = (const char *)memchr(slash, '/', (size_t)(stop - slash)) + 1;
                }
                module.path = slash;
                module.path_length = (size_t)(stop - slash);
                sites->modules = more;
                sites->modules[sites->count++] = module;
            }
        }
    }
    return stop + 1;
}

void sites_read(struct sites *sites, const struct trace_file *file)
{
    *sites = (struct sites){0};
    for (size_t i = 0; i < file->frame_count; i++) {
        const struct trace_frame *frame = file->frames[i];
        const char *at = (const char *)frame_payload(frame), *end = at + frame->payload_bytes;
        while (frame->type == FRAME_MODULES && at < end) {
            at = read_line(sites, at, end);
        }
    }
}

static bool is_same_code(const struct module *one, const struct module *other)
{
    return one->address - one->start == other->address - other->start &&
           one->path_length == other->path_length &&
           memcmp(one->path, other->path, one->path_length) == 0;
}

void site_name(const struct sites *sites, uint64_t site, char *text, size_t room)
{
    const struct module *found = NULL;
    uint64_t call = site - 1; /* the last byte of the call */
    for (size_t i = sites->count; i-- > 0;) {
        const struct module *module = &sites->modules[i];
        if (call - module->start >= module->end - module->start) {
            continue;
        }
        if (found != NULL && !is_same_code(found, module)) {
            snprintf(text, room, "0x%" PRIx64 " (in a library that another one replaced)", site);
            return;
        }
        found = module;
    }
    if (found == NULL) {
        snprintf(text, room, "0x%" PRIx64, site);
        return;
    }
    snprintf(text, room, "%.*s+0x%" PRIx64, (int)found->path_length, found->path,
             call - found->start + found->address);
    trace_make_plain(text);
}

/* Whether one of the names is an offset in this file. */
static bool is_named(const char *path, size_t length, const char *names, size_t count, size_t room)
{
    for (size_t i = length; i-- > 0;) {
        if (path[i] == '/') {
            path += i + 1;
            length -= i + 1;
            break;
        }
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = names + i * room;
        if (strncmp(name, path, length) == 0 && strncmp(name + length, "+0x", 3) == 0) {
            return true;
        }
    }
    return false;
}

void sites_print_ids(const struct trace_file *file, const char *names, size_t count, size_t room)
{
    const struct trace_frame *last = NULL;
    char line[512];
    for (size_t i = 0; i < file->frame_count; i++) {
        last = file->frames[i]->type == FRAME_MODULES ? file->frames[i] : last;
    }
    const char *at = last != NULL ? (const char *)frame_payload(last) : NULL;
    const char *end = last != NULL ? at + last->payload_bytes : NULL;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop != NULL ? stop : end) - at);
        const char *path = memchr(at, '/', length);
        if (path != NULL && path - at > 9 && memcmp(at, "build-id ", 9) == 0 &&
            is_named(path, (size_t)(at + length - path), names, count, room)) {
            snprintf(line, sizeof line, "%.*s", (int)length, at);
            trace_make_plain(line);
            printf("%s\n", line);
        }
        at += length + 1;
    }
}

/* Sets `id` to that of the file, or to "". */
static void find_id(const struct trace_file *file, const char *path, size_t length, char id[80])
{
    id[0] = 0;
    for (size_t i = 0; i < file->frame_count; i++) {
        const char *at = (const char *)frame_payload(file->frames[i]);
        const char *end = at + file->frames[i]->payload_bytes;
        while (file->frames[i]->type == FRAME_MODULES && at < end) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            const char *slash = memchr(at, '/', (size_t)((stop != NULL ? stop : end) - at));
            if (slash != NULL && slash - at > 10 && memcmp(at, "build-id ", 9) == 0 &&
                stop == slash + length && memcmp(slash, path, length) == 0) {
                snprintf(id, 80, "%.*s", (int)(slash - at - 10), at + 9);
            }
            at = stop != NULL ? stop + 1 : end;
        }
    }
}

void sites_print_mappings(const struct sites *sites, const struct trace_file *file)
{
    for (size_t i = 0; i < sites->count; i++) {
        const struct module *module = &sites->modules[i];
        char line[4096], id[80];
        bool is_known = false;
        size_t length = (size_t)(module->path + module->path_length - module->whole);
        for (size_t k = 0; k < i; k++) {
            is_known |= sites->modules[k].start == module->start &&
                        is_same_code(&sites->modules[k], module);
        }
        if (is_known) {
            continue;
        }
        find_id(file, module->whole, length, id);
        snprintf(line, sizeof line, "%" PRIx64 "-%" PRIx64 " r-xp 0 0:0 0 %.*s", module->start,
                 module->end, (int)length, module->whole);
        trace_make_plain(line);
        trace_make_plain(id);
        printf("%s{\"line\": \"%s\", \"build_id\": \"%s\", \"bias\": \"0x%" PRIx64 "\"}",
               i != 0 ? ", " : "", line, id, module->start - module->address);
    }
}

void sites_free(struct sites *sites)
{
    free(sites->modules);
}
