/* SPDX-License-Identifier: MIT */
/* family.h: functions that follow the malloc and free that the process uses, which need not be
 * hakmem's. */
#ifndef HAK_OVERRIDE_FAMILY_H
#define HAK_OVERRIDE_FAMILY_H

#include "front/slow.h" /* hak__family_allocate, hak__family_free */

/* The function belongs to a recorder of traces, which passes calls on to hakmem. */
HAK_HIDDEN bool hak__family_is_recorded(uintptr_t function);
/* The process's malloc or free is not hakmem's. */
HAK_HIDDEN bool hak__family_is_other(void);

/* The process's realloc and free. */
HAK_HIDDEN void *hak__family_realloc(void *pointer, size_t size);
HAK_HIDDEN void hak__family_free_any(void *pointer);

/* hakmem's functions under names that no program can replace. In libc.c. */
HAK_HIDDEN extern void *hak__own_malloc(size_t size);
HAK_HIDDEN extern void hak__own_free(void *pointer);
HAK_HIDDEN extern void *hak__own_memalign(size_t alignment, size_t size);
HAK_HIDDEN extern void *hak__own_aligned_alloc(size_t alignment, size_t size);
HAK_HIDDEN extern int hak__own_posix_memalign(void **result, size_t alignment, size_t size);

#endif
