/* emergency.h: what a thread does that is refused at the gate (core/gate.h): no lock may be waited
 * for, and no structure changed.
 *
 *   allocates   maps the block by itself: a whale, however small, that is not in the registry yet
 *   frees       puts spans and whales on a list; objects of slabs need no lock
 *
 * Both lists are stacks (R. K. Treiber, IBM RJ 5118, 1986) that anybody pushes on. What is on them
 * becomes a registered whale, or is freed, when somebody settles. In fork's child they are whole:
 * to a child the parent's other threads have stopped between two of their instructions (the kernel
 * protects all pages before it lets go of the address space, and a thread that writes to one of
 * them meanwhile waits).
 */
#ifndef HAK_LARGE_EMERGENCY_H
#define HAK_LARGE_EMERGENCY_H

#include "large/whale.h"

/* Any size but 0, any power-of-two alignment; zeroed. NULL: no memory. Any thread, signal handlers
 * too. */
HAK_HIDDEN void *hak__emergency_allocate(size_t size, size_t alignment);
/* A span or a whale, which is freed later. Any thread, signal handlers too. */
HAK_HIDDEN void hak__emergency_free(void *pointer);

/* Registers and frees what waits. Inside the gate, no lock held. */
HAK_HIDDEN void hak__emergency_settle(void);
/* Something waits. A hint. */
HAK_HIDDEN bool hak__emergency_waits(void);

/* The one that contains `address` and is not registered; address 0: there is none. Under WHALES. */
HAK_HIDDEN struct whale hak__emergency_find(uintptr_t address);

#endif
