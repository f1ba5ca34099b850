/* SPDX-License-Identifier: MIT */
/* resident.h: how many bytes of hakmem's memory are resident, and for what hakmem uses them.
 *
 * The kernel says which pages are resident (mincore), in ranges of 4,096 pages. The owner word of a
 * slice says whether the page belongs to a slab of some class, to a span, or to nobody. Cost: about
 * 2 ms for each GiB that hakmem has mapped. Program threads run on meanwhile, so the figures of a
 * running program are of slightly different moments.
 *
 * A page in a swap area is not resident. A page of the kernel's zero page, which is mapped when a
 * program only reads new memory, counts as resident here and not in the RSS of the process.
 *
 * Locks: REGION and WHALES, one at a time, and none over a system call. */
#ifndef HAK_OBSERVE_RESIDENT_H
#define HAK_OBSERVE_RESIDENT_H

#include "core/limits.h"

/* Bytes. */
struct resident {
    bool known; /* false: the kernel did not answer, or this thread was refused; all others are 0 */
    uint64_t classes[CLASS_COUNT]; /* slabs */
    uint64_t spans;                /* in use */
    uint64_t spans_kept;           /* that heaps keep, and slices on their way to a new owner */
    uint64_t slices_free;          /* in free slices of superslabs */
    uint64_t whales;               /* in use */
    uint64_t whales_kept;
    uint64_t tables; /* owner words, slab metadata, heaps, threads, tables of whales */
};

/* Fills `*resident`. Begins at the gate, and lets a fork that waits go first. No lock held. */
HAK_HIDDEN void hak__resident_take(struct resident *resident);

#endif
