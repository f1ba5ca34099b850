/* SPDX-License-Identifier: MIT */
/* modules.h: in which file the code at an address lies, by the kernel's list of the mappings
 * (/proc/self/maps).
 *
 * Why not dladdr: it takes a lock of the loader, which a fork may wait for or a signal handler may
 * have interrupted. */
#ifndef HAK_OBSERVE_MODULES_H
#define HAK_OBSERVE_MODULES_H

#include "base/compiler.h"

struct modules {
    char *text; /* zero-terminated; NULL: no memory, or no such file */
    size_t size;
};

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

/* Keeps the list as it is now, for a time when the process cannot read it any more: after chroot,
 * or without rights. Called once, at the start, before there are threads. */
HAK_HIDDEN void hak__modules_keep(void);
/* Maps a copy of the list, 256 KiB or more; of the kept one if there is no other. */
HAK_HIDDEN void hak__modules_open(struct modules *modules);
HAK_HIDDEN void hak__modules_close(struct modules *modules);

/* Finds the address. False: it lies in no file. */
HAK_HIDDEN bool hak__modules_find(const struct modules *modules, uintptr_t address,
                                  struct module_place *place);

#endif
