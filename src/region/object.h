/* object.h: a free object of a slab: the link to the next one, and the mark that makes it one.
 *
 * Free objects are linked through their first word. A program that frees an object twice, or writes
 * to it after it has freed it, or beyond the end of the object before, breaks the list. So free
 * writes a mark into the second word: a random number of the process. malloc takes the mark away
 * when it hands out the object, and reports an object that does not have it:
 *
 *   in a list twice       the mark is gone when the object comes up the second time. Not if its
 * slab was emptied and cut anew between an overwritten link   what it leads to has no mark, unless
 * a free object starts there an overwritten mark   somebody has written to the object since it was
 * freed
 *
 * Cost: two instructions in free, three in malloc; object and mark lie in one cache line. Free does
 * not look for the mark, because it would wait for that line (docs/decisions/0088).
 * Source: the key of glibc's thread cache (2.29), which free reads and malloc does not. */
#ifndef HAK_REGION_OBJECT_H
#define HAK_REGION_OBJECT_H

#include "region/window.h"

struct object {
    struct object *next; /* NULL: the last of its list */
    uintptr_t mark;      /* hak__window.mark */
};

HAK_STATIC_ASSERT(sizeof(struct object) <= OBJECT_ALIGNMENT, "it fits into the smallest object");

/* Reports an object of a list that has no mark, and aborts. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__object_is_wrong(const struct object *object);

/* Makes the object a free one, the first of a list that goes on with `next`. */
HAK_INLINE void object_set_free(struct object *object, struct object *next)
{
    object->next = next;
    object->mark = hak__window.mark;
}

HAK_INLINE bool object_is_marked(const struct object *object)
{
    return object->mark == hak__window.mark;
}

/* Takes the mark of an object that is about to be handed out. False: it had none. One instruction
 * subtracts and tests. */
HAK_INLINE bool object_set_used(struct object *object)
{
    object->mark -= hak__window.mark;
    return object->mark == 0;
}

#endif
