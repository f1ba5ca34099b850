/* SPDX-License-Identifier: MIT */
/* mapped.h: which files are mapped where, by the lines of /proc/self/maps, and what was added to
 * the addresses in them. That follows from a mapping and the program headers: the segment whose
 * bytes are mapped there has one address in the file. Where the file's first byte is mapped says
 * nothing, because several segments may share a page of the file, and each maps it again.
 *
 * Headers are read from memory where they are mapped: the file of that path may be another one by
 * now, or lie in another root directory than the one of whoever reads the names. The recorder
 * (trace/modules.c) has a copy of this code. Takes no lock, allocates nothing, and may run in a
 * signal handler. */
#ifndef HAK_BASE_MAPPED_H
#define HAK_BASE_MAPPED_H

#include "base/compiler.h"

/* A mapping of a file, or a part of one. */
struct module_place {
    uint64_t start, end;
    uint64_t offset;    /* of `start` in the file */
    const char *path;   /* not zero-terminated */
    size_t path_length; /* 0: memory without a file */
    bool is_code;
    struct module_head {
        const char *path;
        size_t path_length;
        uint64_t start; /* 0: no mapping so far */
    } head;             /* of the last file up to here: a mapping that begins with its first byte */
};

/* Reads a line and returns the next one; `place` is what the line before was, or zero. */
HAK_HIDDEN const char *hak__modules_next(const char *line, struct module_place *place);

/* Bytes of an id; the linkers' longest has 20. Longer ones count as none. Half: none is kept. */
#define BUILD_ID_MAX 32u

struct build_id {
    uint64_t head, shift; /* of the place that was read: head.start, start - offset; 0, 0: none */
    uint64_t bias;        /* what was added to the file's own addresses */
    bool is_elf;          /* else there is neither an id nor a bias */
    uint8_t size;         /* 0: the file has no id */
    uint8_t bytes[BUILD_ID_MAX];
};

struct mapped_reader {
    /* Reads memory of this process. False: it is not mapped any more. */
    bool (*memory)(uintptr_t from, void *to, size_t size);
    /* Reads a file's first bytes. Returns their number, or less than 0. */
    long (*file)(const char *path, char *to, size_t size);
};

/* Reads the headers of the place's file, unless `id` has them already. */
HAK_HIDDEN void hak__mapped_id(struct build_id *id, const struct module_place *place,
                               const struct mapped_reader *reader);

#endif
