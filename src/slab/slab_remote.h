/* SPDX-License-Identifier: MIT */
/* slab_remote.h: the owner's operations on the remote word and the notify stack of slab.h.
 *
 * Used inside slab/ only. Locks: the caller holds the owner arena's lock. */
#ifndef HAK_SLAB_SLAB_REMOTE_H
#define HAK_SLAB_SLAB_REMOTE_H

#include "slab/slab.h"

/* Takes all remote objects out of the word and leaves N as it is. count 0: there were none. */
HAK_HIDDEN struct object_list hak__slab_take_remote(struct slab *slab);
/* The remote objects in the word, which stay there. */
HAK_HIDDEN struct object_list hak__slab_see_remote(const struct slab *slab);
/* Takes the whole notify stack and returns its first slab; NULL: it was empty. */
HAK_HIDDEN struct slab *hak__slab_take_notified(struct slab_set *set);
/* The next slab of a taken stack; NULL: there is none. Called before N of `slab` is cleared. */
HAK_HIDDEN struct slab *hak__slab_next_notified(const struct slab *slab);
/* Clears N of a slab that was taken from the stack. */
HAK_HIDDEN void hak__slab_clear_notified(struct slab *slab);
/* True if the slab can be given back: all carved objects are in its free list or its remote word,
 * and N is clear. */
HAK_HIDDEN bool hak__slab_is_idle(const struct slab *slab);

#endif
