/* SPDX-License-Identifier: MIT */
/* left.h: what a program has left on memory that it frees: a protection, MADV_DONTFORK, a memory
 * lock and the like would reach the next owner of the addresses.
 *
 * The functions mprotect, madvise, mlock and their relatives call the kernel and then note here the
 * pages that they have changed (override/left_calls.c). A free looks only if something was ever
 * noted:
 *
 *   slice in the window   one bit for each 4 KiB, in the slice's slab metadata. When slices go back
 *                         to their superslab, those with a bit get a new mapping.
 *   huge allocation       large/whale_left.h
 *
 * Calls that undo a change take the bits away, as long as the program has made changes of one kind
 * only: then a bit has one meaning. Otherwise the bits stay, and the memory gets a new mapping
 * although it needs none.
 *
 * Concurrency: bits are set and cleared by relaxed atomic operations, so the functions may be
 * called in signal handlers. A thread that frees a block sees the bits of the block's pages: they
 * are its own calls, or those of a thread that gave it the block and so synchronized with it. Other
 * calls may set bits too late, which matters as much as if they came after the free. */
#ifndef HAK_REGION_LEFT_H
#define HAK_REGION_LEFT_H

#include "region/window.h"

enum left_kind { /* bits of a word */
                 LEFT_PROTECTION = 1,
                 LEFT_KEY = 2,
                 LEFT_FORK = 4,
                 LEFT_WIPE = 8,
                 LEFT_DUMP = 16,
                 LEFT_MERGE = 32,
                 LEFT_GUARD = 64,
                 LEFT_LOCK = 128
};

/* No page is shorter. */
#define LEFT_PAGE_SIZE 4096u

/* A change of [from, to), whole OS pages, by the program. */
struct left_change {
    uintptr_t from;
    uintptr_t to;
    enum left_kind kind;
    bool undone; /* back to what new memory has */
};

/* The kinds that were noted so far in slices: 0 in nearly all programs. Relaxed. */
HAK_HIDDEN extern uint32_t hak__left_kinds;

/* Notes the part of a change that lies in slices. Any thread, also in a signal handler. */
HAK_HIDDEN void hak__left_note(const struct left_change *change);

/* True: a page of these slices is noted. The caller has freed them. */
HAK_HIDDEN HAK_COLD bool hak__left_in(size_t slice, size_t count);
/* Gives noted slices of a run new mappings. False: the kernel refused; nobody can use the run. The
 * caller has taken the slices, of one superslab, and nobody owns them. */
HAK_HIDDEN HAK_COLD bool hak__left_renew(size_t slice, uint32_t count);

HAK_INLINE bool left_may_be_in(size_t slice, size_t count)
{
    return HAK_UNLIKELY(atomic_load_relaxed(&hak__left_kinds) != 0) && hak__left_in(slice, count);
}

#endif
