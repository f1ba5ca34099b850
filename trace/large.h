/* SPDX-License-Identifier: MIT */
/* large.h: live blocks of TRACE_LARGE_MIN bytes and more, whose residency is recorded when they
 * end: programs ask for large blocks of which they use a part.
 *
 * A table without locks; what finds no room in it is replayed as wholly touched. */
#ifndef TRACE_LARGE_H
#define TRACE_LARGE_H

#include "recorder.h"

extern _Atomic uint32_t shared_large_count;

void large_add(const void *pointer, uint64_t size);
void large_end(struct lane *lane, const void *pointer);
/* At the end of the process. */
void large_record_all(struct lane *lane);
void large_forget_all(void);

static inline void large_born(const void *pointer, uint64_t size)
{
    if (UNLIKELY(size >= TRACE_LARGE_MIN) && pointer != NULL) {
        large_add(pointer, size);
    }
}

/* Before the block is freed or resized. */
static inline void large_ends(struct lane *lane, const void *pointer)
{
    if (atomic_load_explicit(&shared_large_count, memory_order_relaxed) != 0 && pointer != NULL) {
        large_end(lane, pointer);
    }
}

#endif
