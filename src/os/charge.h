/* charge.h: counts mapped bytes and enforces the hard limit on them. For the files of os/ only. */
#ifndef HAK_OS_CHARGE_H
#define HAK_OS_CHARGE_H

#include "base/compiler.h"

/* Counts `size` bytes that the caller is about to map. False: they would exceed the limit, and are
 * not counted. Any thread. */
HAK_HIDDEN bool hak__os_charge(size_t size);
/* Subtracts `size` bytes that were unmapped, or that could not be mapped. Any thread. */
HAK_HIDDEN void hak__os_uncharge(size_t size);

/* The protection of new memory, as mmap takes it. */
HAK_HIDDEN int hak__os_protection(void);

/* After a call that has mapped memory: notes a new peak of mapped bytes. Any thread. */
HAK_HIDDEN void hak__os_note_peak(void);

#endif
