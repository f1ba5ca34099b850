/* SPDX-License-Identifier: MIT */
/* slab_inherited.h: in fork's child, the slabs of its parent.
 *
 * Parent and child share each page until one of them writes to it. A free that links the object
 * into a list would write to it, and so copy its page to give it back. So in the child a freed
 * object of the parent is counted: its bit is set in a table beside the arena, and its slab's
 * free_count grows. The child's threads have arenas of their own (arena/fork.c), so their keys
 * match no owner word of these slabs, and their fast paths do not know of any of this.
 *
 *   inherited arena   one that existed at the fork; no thread draws from it (but see below)
 *   inherited slab    its owner is such an arena; free_count = objects in free_list + bits set
 *   counted object    a free object with its bit set; it is in no list, and nobody writes to it
 *
 * What becomes of the memory (docs/design/arena.md#memory-of-the-parent):
 *   1. An inherited slab that is wholly free is given back to the region, untouched.
 *   2. Before an arena takes a new slab, it takes over an inherited one of the class of which at
 *      least half is free: its counted objects are linked, and its owner changes.
 *   3. If there is no memory for a new slab, one with any free object will do.
 *
 * Lists: an inherited slab is listed if at least half of it may be free. Rule 2 takes a slab that
 * has less off its list, and the count that makes it half free lists it again.
 *
 * Owner words of these slabs change while objects are in use, at a take-over. It happens under the
 * locks of both arenas. A free reads the word, takes the lock of the inherited arena, and reads the
 * word again: if it has changed, the object is a new owner's, and the free is a remote one.
 *
 * Locks: an arena's lock guards its slabs' bits and counts. Inherited arenas' locks have their own
 * rank, after those of other arenas. A free that may not take the lock (core/gate.h) defers: it
 * pushes the object on a stack, and a later free counts it. If no memory for bits is left, objects
 * are linked, as they are outside of such children. If no arena can be made, a thread draws from an
 * inherited one: each refill links the counted objects of its slab first, and no slab of that arena
 * is taken over. */
#ifndef HAK_SLAB_SLAB_INHERITED_H
#define HAK_SLAB_SLAB_INHERITED_H

#include "slab/slab.h"

/* In fork's child, before it has two threads: the slabs of this set are inherited now. The first
 * call after a fork has `first`, and forgets the sets of earlier ones. */
HAK_HIDDEN void hak__slab_inherit(struct slab_set *set, bool first);

/* A thread is about to draw from this inherited set. Its bins will have objects of the slabs, which
 * are not taken over from now on. */
HAK_HIDDEN void hak__slab_draw(struct slab_set *set);

/* Frees an object of an inherited slab; `slice` is its slice. Aborts if it notices a double free,
 * or that no object starts there. Any thread, also in a signal handler. */
HAK_HIDDEN void hak__slab_free_inherited(size_t slice, void *pointer);

/* Counts an object that was found in a list of a parent's thread, which may be any address, unless
 * it was counted before. Sets *next to the next one of the list. False: it is no object of an
 * inherited slab of the class, or does not have the list's mark. The caller is inside the gate and
 * holds no arena's lock. */
HAK_HIDDEN bool hak__slab_count_inherited(struct object *object, uint32_t class_index,
                                          uintptr_t mark, struct object **next);

/* Rules 2 and 3: takes over a slab for `set`, whose lock is held. NULL: none was found. They skip
 * arenas whose lock is taken. The first looks at few slabs, the second at all. */
HAK_HIDDEN struct slab *hak__slab_take_over(struct slab_set *set, uint32_t class_index);
HAK_HIDDEN struct slab *hak__slab_take_over_any(struct slab_set *set, uint32_t class_index);

/* Under the arena's lock. Links the counted objects of an inherited slab into its free list. */
HAK_HIDDEN void hak__slab_link_counted(struct slab *slab);
/* Clears the bits of a slab that is given back. */
HAK_HIDDEN void hak__slab_forget_counted(const struct slab *slab);
/* The number of counted objects. */
HAK_HIDDEN uint32_t hak__slab_counted(const struct slab *slab);

/* Bytes mapped for bits. Any thread. */
HAK_HIDDEN size_t hak__slab_bits_bytes(void);
/* The mapping of bits that was made before `bits`; NULL: the newest one. Sets *size to its bytes.
 * NULL: there is none. Any thread. */
HAK_HIDDEN const void *hak__slab_bits_before(const void *bits, size_t *size);

#endif
