/* object.h: a free object of a slab, and the link to the next one.
 *
 * Free objects are linked through their first word. A program that writes to an object after it has
 * freed it, or beyond the end of the object before, overwrites such a link. So links are encoded:
 *
 *   word = (address of the next object * multiplier) ^ address of this object
 *
 * The multiplier is a random odd number of the process. Decoding multiplies by its inverse modulo
 * 2^64, so whatever else the word holds, the result is as good as random. The window takes at most
 * 2^46 of 2^64 addresses: at least 2^17 - 1 of 2^17 wrong words decode to an address beyond its
 * end.
 *
 * malloc clears the word. So an object that is in a list twice has no right word when it comes up
 * the second time, and is never handed out to two owners.
 *
 * Cost: one multiplication (3 cycles) in malloc and one in free, and no memory. Other ways were
 * slower: docs/decisions/0087. Source: glibc's safe-linking XORs a link with its address, which
 * does not show that a link was overwritten. */
#ifndef HAK_REGION_OBJECT_H
#define HAK_REGION_OBJECT_H

#include "region/window.h"

struct object {
    uintptr_t word; /* the encoded link */
};

/* Reports an object whose word is no link, and aborts. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__object_is_wrong(const struct object *object);

/* Links the free object to `next`; NULL: it is the last of its list. */
HAK_INLINE void object_set_next(struct object *object, const struct object *next)
{
    object->word = (uintptr_t)next * hak__window.multiplier ^ (uintptr_t)object;
}

/* The address that the word decodes to. If it is not below hak__window.end, the word is no link. */
HAK_INLINE uintptr_t object_decode(const struct object *object)
{
    return (object->word ^ (uintptr_t)object) * hak__window.inverse;
}

/* The next object of the list; NULL: there is none. Aborts if the word is no link. */
HAK_INLINE struct object *object_next(const struct object *object)
{
    uintptr_t next = object_decode(object);
    if (HAK_UNLIKELY(next >= hak__window.end)) {
        hak__object_is_wrong(object);
    }
    return (struct object *)next;
}

/* Makes the word no link, because the object is handed out. */
HAK_INLINE void object_forget(struct object *object)
{
    object->word = 0;
}

#endif
