/* SPDX-License-Identifier: MIT */
/* mapped.h: which files are mapped where, by the lines of /proc/self/maps and by the headers in
 * memory: the file of that path may be another one by now, or lie in another root directory than
 * the one of whoever reads the names. The recorder (trace/modules.c) has a copy of this code.
 * Takes no lock, allocates nothing, and may run in a signal handler. */
#ifndef HAK_BASE_MAPPED_H
#define HAK_BASE_MAPPED_H

#include "base/compiler.h"

/* A file and the offset in it. */
struct module_place {
    const char *path; /* not zero-terminated */
    size_t path_length;
    uint64_t offset;
    uintptr_t
        base; /* where the file's start is mapped: tools count addresses from there; 0: unknown */
};

/* A line of the list: a mapping. */
struct module_range {
    uint64_t start, end;
    bool is_code;
    struct module_place place; /* of its start */
};

/* Reads a line and returns the next one; `range` is what the line before was, or zero. */
HAK_HIDDEN const char *hak__modules_next(const char *line, struct module_range *range);

/* Bytes of an id; the linkers' longest has 20. Longer ones count as none. Half: none is kept. */
#define BUILD_ID_MAX 32u

struct build_id {
    uintptr_t base; /* where the file's start is mapped; 0: nothing was read */
    uint64_t bias;  /* what was added to the file's own addresses */
    bool is_elf;    /* else there is neither an id nor a bias */
    uint8_t size;   /* 0: the file has no id */
    uint8_t bytes[BUILD_ID_MAX];
};

/* Reads memory of this process. False: it is not mapped any more. */
typedef bool mapped_read(uintptr_t from, void *to, size_t size);

/* Reads the headers at `base`, unless `id` has them already. */
HAK_HIDDEN void hak__mapped_id(struct build_id *id, uintptr_t base, mapped_read *reader);

#endif
