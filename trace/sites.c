/* SPDX-License-Identifier: MIT */
/* sites.c: see sites.h. */
#define _GNU_SOURCE
#include "sites.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct module {
    uint64_t start, end;
    uint64_t address; /* of `start`, as tools count */
    const char *path; /* in the file, not ended by a 0 */
    size_t path_length;
    const char *name; /* the last part of the path */
    const char *id;   /* the digits of the build id */
    size_t id_length; /* 0: it has none */
};

static size_t name_length(const struct module *module)
{
    return (size_t)(module->path + module->path_length - module->name);
}

/* One line of a frame, which ends at `stop`. */
static void read_line(struct sites *sites, const char *line, const char *stop)
{
    static const char word[] = "build-id ";
    char before[128];
    const char *path = memchr(line, '/', (size_t)(stop - line));
    if (path == NULL || (size_t)(path - line) >= sizeof before) {
        return;
    }
    struct module module = {.path = path, .path_length = (size_t)(stop - path), .id = ""};
    memcpy(before, line, (size_t)(path - line));
    before[path - line] = 0;
    if (strncmp(before, word, sizeof word - 1) == 0) {
        for (size_t i = 0; i < sites->count; i++) {
            struct module *one = &sites->modules[i];
            if (one->path_length == module.path_length &&
                memcmp(one->path, path, module.path_length) == 0) {
                one->id = line + sizeof word - 1;
                one->id_length = strcspn(before + sizeof word - 1, " ");
            }
        }
    } else if (sscanf(before, "%" SCNx64 "-%" SCNx64 " %" SCNx64, &module.start, &module.end,
                      &module.address) == 3) {
        struct module *more = realloc(sites->modules, (sites->count + 1) * sizeof *more);
        if (more != NULL) {
            module.name = (const char *)memrchr(path, '/', module.path_length) + 1;
            sites->modules = more;
            sites->modules[sites->count++] = module;
        }
    }
}

void sites_read(struct sites *sites, const struct trace_file *file)
{
    *sites = (struct sites){0};
    for (size_t i = 0; i < file->frame_count; i++) {
        const struct trace_frame *frame = file->frames[i];
        const char *at = (const char *)frame_payload(frame), *end = at + frame->payload_bytes;
        const char *stop;
        while (frame->type == FRAME_MODULES && (stop = memchr(at, '\n', (size_t)(end - at)))) {
            read_line(sites, at, stop);
            at = stop + 1;
        }
    }
}

static bool is_same_code(const struct module *one, const struct module *other)
{
    return one->address - one->start == other->address - other->start &&
           name_length(one) == name_length(other) &&
           memcmp(one->name, other->name, name_length(one)) == 0;
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
    snprintf(text, room, "%.*s+0x%" PRIx64, (int)name_length(found), found->name,
             call - found->start + found->address);
    trace_make_plain(text);
}

/* Whether one of the names is an offset in this file. */
static bool is_named(const struct module *module, const char *names, size_t count, size_t room)
{
    size_t length = name_length(module);
    for (size_t i = 0; i < count; i++) {
        const char *name = names + i * room;
        if (strncmp(name, module->name, length) == 0 && strncmp(name + length, "+0x", 3) == 0) {
            return true;
        }
    }
    return false;
}

void sites_print_ids(const struct sites *sites, const char *names, size_t count, size_t room)
{
    for (size_t i = 0; i < sites->count; i++) {
        const struct module *module = &sites->modules[i];
        char line[512];
        bool is_said = module->id_length == 0;
        for (size_t k = 0; k < i; k++) {
            is_said |= sites->modules[k].id == module->id;
        }
        if (!is_said && is_named(module, names, count, room)) {
            snprintf(line, sizeof line, "build-id %.*s %.*s", (int)module->id_length, module->id,
                     (int)module->path_length, module->path);
            trace_make_plain(line);
            printf("%s\n", line);
        }
    }
}

void sites_print_mappings(const struct sites *sites)
{
    for (size_t i = 0; i < sites->count; i++) {
        const struct module *module = &sites->modules[i];
        char line[4096], id[80];
        bool is_known = false;
        for (size_t k = 0; k < i; k++) {
            is_known |= sites->modules[k].start == module->start &&
                        is_same_code(&sites->modules[k], module);
        }
        if (is_known) {
            continue;
        }
        snprintf(id, sizeof id, "%.*s", (int)module->id_length, module->id);
        snprintf(line, sizeof line, "%" PRIx64 "-%" PRIx64 " r-xp 0 0:0 0 %.*s", module->start,
                 module->end, (int)module->path_length, module->path);
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
