/* SPDX-License-Identifier: MIT */
/* charge.h: what the files of os/ share: the count of mapped bytes and its limit, and other parts
 * of contracts in os.h. */
#ifndef HAK_OS_CHARGE_H
#define HAK_OS_CHARGE_H

#include "base/compiler.h"

/* Counts `size` bytes that the caller is about to map. False: they would exceed the limit, and are
 * not counted. Any thread. */
HAK_HIDDEN bool hak__os_charge(size_t size);
/* Counts `size` bytes that are mapped already, though nobody wanted them. Any thread. */
HAK_HIDDEN void hak__os_recharge(size_t size);
/* Subtracts `size` bytes that were unmapped, or that could not be mapped. Any thread. */
HAK_HIDDEN void hak__os_uncharge(size_t size);

/* After a call that has mapped memory: notes a new peak of mapped bytes. Any thread. */
HAK_HIDDEN void hak__os_note_peak(void);

/* For hak__os_init: the clock, the filter, and what descriptor 2 is. */
HAK_HIDDEN void hak__os_init_clock(void);
HAK_HIDDEN void hak__os_init_filter(void);
HAK_HIDDEN void hak__os_note_error_file(void);

/* Read from files of /proc, for processes with a filter. 0, and UINT64_MAX: unknown. */
HAK_HIDDEN uint32_t hak__os_processors_by_file(void);
HAK_HIDDEN uint64_t hak__os_ram_by_file(void);

#endif
