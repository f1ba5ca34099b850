/* SPDX-License-Identifier: MIT */
/* modules.h: in which file the code at an address lies, by the kernel's list of the mappings
 * (/proc/self/maps).
 *
 * Why not dladdr: it takes a lock of the loader, which a fork may wait for or a signal handler may
 * have interrupted. */
#ifndef HAK_OBSERVE_MODULES_H
#define HAK_OBSERVE_MODULES_H

#include "base/mapped.h"
#include "observe/report_writer.h"

struct modules {
    char *text; /* zero-terminated; NULL: no memory, or no such file */
    size_t size;
};

/* Keeps the list as it is now, for a time when the process cannot read it any more: after chroot,
 * or without rights. Called once, at the start, before there are threads. */
HAK_HIDDEN void hak__modules_keep(void);
/* Maps a copy of the list, 256 KiB or more; of the kept one if there is no other. */
HAK_HIDDEN void hak__modules_open(struct modules *modules);
HAK_HIDDEN void hak__modules_close(struct modules *modules);

/* Finds the address: a place of one byte. False: it lies in no file. */
HAK_HIDDEN bool hak__modules_find(const struct modules *modules, uintptr_t address,
                                  struct module_place *place);

/* Reads the headers of the place's file, unless `id` has them already. */
HAK_HIDDEN void hak__build_id_read(struct build_id *id, const struct module_place *place);
/* The address of the place's start as the file's symbols have it, which addr2line takes. In all
 * that hakmem says, FILE+0x.. is this. If the file has no headers, its offset there. */
HAK_HIDDEN uint64_t hak__module_address(const struct module_place *place);

/* The id as hexadecimal digits. */
#define BUILD_ID_TEXT_SIZE (2 * BUILD_ID_MAX + 1)
HAK_HIDDEN const char *hak__build_id_text(const struct build_id *id, char text[BUILD_ID_TEXT_SIZE]);

/* Writes the fields `build_id` and `bias`; "" for what is unknown. */
HAK_HIDDEN void hak__build_id_write(struct report_writer *writer, const struct build_id *id);

#endif
