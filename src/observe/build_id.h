/* SPDX-License-Identifier: MIT */
/* build_id.h: the build id of a program or library that is mapped, by its ELF headers in memory.
 *
 * Why not by its file: the file of that path may be another one by now, or lie in another root
 * directory than the one of whoever reads the names later. */
#ifndef HAK_OBSERVE_BUILD_ID_H
#define HAK_OBSERVE_BUILD_ID_H

#include "observe/modules.h"
#include "observe/report_writer.h"

/* Bytes of an id; the linkers' longest has 20. Longer ones count as none. Half: none is kept. */
#define BUILD_ID_MAX 32u

struct build_id {
    uintptr_t base; /* where the file's start is mapped; 0: nothing was read */
    uint64_t bias;  /* what was added to the file's own addresses */
    bool is_elf;    /* else there is neither an id nor a bias */
    uint8_t size;   /* 0: the file has no id */
    uint8_t bytes[BUILD_ID_MAX];
};

/* Reads the headers at `base`, unless `id` has them already. The memory may be unmapped meanwhile.
 * Takes no lock, allocates nothing, and may run in a signal handler. */
HAK_HIDDEN void hak__build_id_read(struct build_id *id, uintptr_t base);

/* Appends the id as hexadecimal digits. */
HAK_HIDDEN void hak__build_id_put(struct text *text, const struct build_id *id);

/* Writes the fields `build_id` and `bias`; "" for what is unknown. */
HAK_HIDDEN void hak__build_id_write(struct report_writer *writer, const struct build_id *id);

#endif
