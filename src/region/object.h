/* SPDX-License-Identifier: MIT */
/* object.h: a free object of a slab: the link to the next one, and the mark that makes it one.
 *
 * Free objects are linked through their first word. A program that frees an object twice, or writes
 * to it after it has freed it, or beyond the end of the object before, breaks the list. So free
 * writes a mark into the second word. malloc takes the mark away when it hands out the object, and
 * reports an object that does not have it:
 *
 *   in a list twice      The mark is gone when the object comes up the second time. Not if its slab
 *                        was emptied and cut anew between.
 *   in two lists         If they are lists of two arenas, it has the mark of the list it came to
 *                        last. The other list's thread finds a wrong one, even at the same moment.
 *                        If both have the mark of one arena, the second thread finds none, but not
 *                        at the same moment.
 *   an overwritten link  What it leads to has no mark, unless a free object starts there.
 *   an overwritten mark  Somebody has written to the object since it was freed.
 *
 * Marks are random numbers. Each arena has one, for the lists of its slabs and the bins of its
 * threads. The caches of heaps have their own (docs/design/slab.md).
 *
 * Cost: two instructions in free, three in malloc; object and mark lie in one cache line. Free does
 * not look for the mark, because it would wait for that line (docs/decisions/0088).
 * Source: the key of glibc's thread cache (2.29), which free reads and malloc does not.
 *
 * In the secure form there is no mark. The state of the object, which the program cannot reach,
 * says that it is free, and the link is XORed with a key of its slab (secure.h). */
#ifndef HAK_REGION_OBJECT_H
#define HAK_REGION_OBJECT_H

#include "region/secure.h"

struct object {
    struct object *next; /* by object_next and object_link only. NULL: the last of its list */
    uintptr_t mark;      /* that of the list it is in */
};

HAK_STATIC_ASSERT(sizeof(struct object) <= OBJECT_ALIGNMENT, "it fits into the smallest object");

/* A list of `count` objects of one class. The last link is NULL, except in lists that are passed
 * together with their tail. */
struct object_list {
    struct object *head;
    uint32_t count;
};

/* The objects that a refill brings. `stride` 0: a linked list. Otherwise they are carved objects,
 * `stride` bytes apart, not linked yet, in memory that may be untouched. */
struct refill {
    struct object_list list;
    uint32_t stride;
    bool used; /* the carved memory may hold anything; else it is zero */
};

/* Reports an object of a list that has no mark, and aborts. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__object_is_wrong(const struct object *object);

/* What the link of the object is XORed with. */
HAK_INLINE uintptr_t object_key(const struct object *object)
{
    return HAK_SECURE ? secure_key(object) : 0;
}

/* The next object of the list. */
HAK_INLINE struct object *object_next(const struct object *object)
{
    return (struct object *)((uintptr_t)object->next ^ object_key(object));
}

/* Makes `next` the next object of the list. */
HAK_INLINE void object_link(struct object *object, struct object *next)
{
    object->next = (struct object *)((uintptr_t)next ^ object_key(object));
}

/* The mark of an arena's lists. `owner`: an owner word of the arena, or its key. */
HAK_INLINE uintptr_t object_mark_of(uint32_t owner)
{
    return hak__window.mark ^ (owner & ~OWNER_CODE_MASK);
}

/* Makes the object a free one, the first of a list that has `mark` and goes on with `next`. */
HAK_INLINE void object_set_free(struct object *object, struct object *next, uintptr_t mark)
{
    if (HAK_SECURE) {
        secure_set_state(object, SECURE_FREE); /* first: control/secure_end.c */
        atomic_fence_signal();
    } else {
        object->mark = mark;
    }
    object_link(object, next);
}

HAK_INLINE bool object_is_marked(const struct object *object, uintptr_t mark)
{
    return HAK_SECURE ? secure_state_is_free(secure_state_of(object)) : object->mark == mark;
}

/* Takes the mark of the first object of a list of the class, and tells the next one. The object is
 * about to be handed out. False: it had another mark, or none. One instruction subtracts and tests.
 */
HAK_INLINE bool object_pop(struct object *object, uint32_t class_index, uintptr_t mark,
                           struct object **next)
{
    if (HAK_SECURE) { /* object_hand_out does the rest. It may be no address at all */
        bool is_free = secure_is_free(object, class_index);
        *next = is_free ? object_next(object) : NULL;
        return is_free;
    }
    *next = object->next;
    object->mark -= mark;
    return object->mark == 0;
}

/* Makes a free object of `bytes` bytes, which has just left its list, one that the program owns:
 * secure_hand_out. NULL stays NULL. */
HAK_INLINE void *object_hand_out(void *object, size_t bytes, size_t size, enum secure_state state,
                                 bool tiny)
{
    return HAK_SECURE && HAK_LIKELY(object != NULL)
               ? secure_hand_out(object, bytes, size, state, tiny)
               : object;
}

/* The bytes that the program may use of an object of the class: secure_size. */
HAK_INLINE size_t object_usable(const void *pointer, uint32_t class_index)
{
    return HAK_SECURE ? secure_size(pointer, class_index) : size_class_usable(class_index);
}

#endif
