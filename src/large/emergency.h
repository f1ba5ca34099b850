/* SPDX-License-Identifier: MIT */
/* emergency.h: how a thread that is refused at the gate (core/gate.h) allocates and frees. It may
 * wait for no lock, and change no data that a lock guards.
 *
 *   allocate   maps the block by itself, of any size, and puts it into a place of a table
 *   free       unmaps such a block. Puts a span or huge block into a place as well, where it
 *              waits; objects of slabs do not come here, because their remote free needs no lock
 *
 * Later, a thread that is inside the gate settles: it makes the new blocks huge blocks and frees
 * the waiting ones. A place is changed by its taker only, who has marked it as busy by one atomic
 * instruction. Nothing is written to the blocks, because they may be anybody's. The table is whole
 * in the child of a fork: the child sees each other thread stopped between two instructions,
 * because the kernel write-protects all pages while it copies the address space. A place that was
 * busy then stays so, and its block is nobody's there. */
#ifndef HAK_LARGE_EMERGENCY_H
#define HAK_LARGE_EMERGENCY_H

#include "large/huge.h"

/* Maps a block of `size` bytes, at least 1, at a multiple of `alignment`, a power of two. All bytes
 * are 0. NULL: no memory. Any thread, also in a signal handler. */
HAK_HIDDEN void *hak__emergency_allocate(size_t size, size_t alignment);
/* Bytes of such a block for a request of `size` bytes. */
HAK_HIDDEN size_t hak__emergency_mapped(size_t size);
/* Unmaps such a block, unless it `stays` mapped until the next settle: a fork may take long, and a
 * program that allocates and frees meanwhile must not grow. Lets the next settle free a taken span
 * or a huge block; a pointer that turns out to be none of them is ignored. False:
 * the pointer waits already. If there is no memory for one more place, the block is lost. Any
 * thread, also in a signal handler. */
HAK_HIDDEN bool hak__emergency_free(void *pointer, bool stays);

/* Makes the new blocks huge blocks and frees the waiting ones. The caller is inside the
 * gate and holds no lock. Forks pass in between; false: the caller was refused then, and is no
 * longer inside the gate. */
HAK_HIDDEN bool hak__emergency_settle(void);
/* True: there is something to settle. A hint. */
HAK_HIDDEN bool hak__emergency_waits(void);

/* Bytes mapped for more places than the first ones. Any thread. */
HAK_HIDDEN size_t hak__emergency_metadata_bytes(void);

/* The block that starts at `address` and is no huge block yet. Address 0: there is none. Under
 * HUGE. */
HAK_HIDDEN struct huge hak__emergency_find(uintptr_t address);
/* The same for the one that contains `address`; takes longer. */
HAK_HIDDEN struct huge hak__emergency_containing(uintptr_t address);

#endif
