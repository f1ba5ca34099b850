/* object.h: a free object of a slab, and the mark that tells free objects from others.
 *
 * The mark is the object's address XOR a random number of the process. Free writes it, and malloc
 * replaces it by 0. So no block in use has the mark of its address:
 *   free    an object that has its mark is free already: a double free
 *   malloc  an object without its mark is in the list twice, was written to after it was freed, or
 *           is no object: the link to it was overwritten
 *
 * A block that is handed out as it was found, not taken from a list, may have a mark from the time
 * when its memory was a slab. So it loses it: the first object that a refill carves, spans, and
 * sampled objects. Spans and sampled objects have no use for marks, but a program may copy them,
 * and back again, without having written to them. Memory that the OS has zeroed has no mark, and is
 * not touched.
 *
 * Source: glibc's thread cache (2.29) writes one random number into all its free blocks. So glibc
 * searches a list before it aborts, and cannot use the number in malloc. */
#ifndef HAK_REGION_OBJECT_H
#define HAK_REGION_OBJECT_H

#include "region/window.h"

struct object {
    struct object *next; /* in its list */
    uintptr_t mark;
};

HAK_STATIC_ASSERT(sizeof(struct object) <= OBJECT_ALIGNMENT, "it fits into the smallest object");

HAK_INLINE uintptr_t object_mark(const struct object *object)
{
    return (uintptr_t)object ^ hak__window.secret;
}

/* True if the object is free already. For a thread that may free it; no lock. */
HAK_INLINE bool object_is_free(const struct object *object)
{
    return object->mark == object_mark(object);
}

/* Makes the object a free one, the first of a list that goes on with `next`. */
HAK_INLINE void object_set_free(struct object *object, struct object *next)
{
    object->next = next;
    object->mark = object_mark(object);
}

/* Takes the mark of an object that is about to be handed out. False: it did not have it. One
 * instruction subtracts and tests. */
HAK_INLINE bool object_set_used(struct object *object)
{
    object->mark -= object_mark(object);
    return object->mark == 0;
}

/* Takes the mark that a block may have from an earlier use of its memory. */
HAK_INLINE void object_forget_mark(void *block)
{
    ((struct object *)block)->mark = 0;
}

#endif
