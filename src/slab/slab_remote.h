/* slab_remote.h: the remote word and the notify stack of slab.h, taken apart. Used inside slab/
 * only. */
#ifndef HAK_SLAB_SLAB_REMOTE_H
#define HAK_SLAB_SLAB_REMOTE_H

#include "slab/slab.h"

/* The remote objects, leaving the word without them; N stays. Owner only. */
HAK_HIDDEN struct object_list hak__slab_take_remote(struct slab *slab);
HAK_HIDDEN uint32_t hak__slab_remote_count(const struct slab *slab);
/* The whole notify stack, as a list through hak__slab_next_notified. Owner only. */
HAK_HIDDEN struct slab *hak__slab_take_notified(struct slab_set *set);
HAK_HIDDEN struct slab *hak__slab_next_notified(const struct slab *slab);
/* Clears N of a slab taken from the stack. Owner only. */
HAK_HIDDEN void hak__slab_clear_notified(struct slab *slab);
/* All carved objects are in the slab's two lists, and nobody is about to notify its owner of it: it
 * can be given back. Owner only. */
HAK_HIDDEN bool hak__slab_is_idle(const struct slab *slab);

#endif
