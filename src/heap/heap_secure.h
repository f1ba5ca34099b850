/* SPDX-License-Identifier: MIT */
/* heap_secure.h: what the program has of an object of a heap. In the ordinary form that is all of
 * it, and the functions here do nothing. The secure form has a guard around it (docs/security.md).
 *
 * region/secure.h knows objects by their place in the window, where heaps need not lie. So the
 * words that guard an object of a heap lie beside it:
 *
 *   object of the heap's lists                        the next one
 *   |<- lead, 16 bytes or more ->|<- size ->|<- 8 bytes or more ->|
 *   |                     | head | program  | canary              |
 *
 *   head    size and lead, and a check of both that depends on the process and the address. With a
 *           lead above 16 there is one at the object's start, too.
 *   free    looks at head and canary, and clears the object, as carving does. malloc looks whether
 *           it still is clear, behind its link.
 *
 * The program's pointers are called pointers here, those of the lists objects. */
#ifndef HAK_HEAP_HEAP_SECURE_H
#define HAK_HEAP_HEAP_SECURE_H

#include "heap/heap.h"
#include "region/secure.h"

#define HEAP_LEAD 16u
#define HEAP_CANARY 8u

struct heap_owned {
    void *object; /* NULL: none starts there */
    size_t lead;
    size_t size; /* that the program may use */
    size_t room; /* that it may use after a resize */
};

/* In heap_secure.c, which only the secure form has; the names without hak__ say what each does. */
HAK_HIDDEN void *hak__heap_guard(struct hak_heap *heap, void *object, size_t alignment,
                                 size_t size);
HAK_HIDDEN void *hak__heap_unguard(struct hak_heap *heap, void *pointer);
HAK_HIDDEN struct heap_owned hak__heap_find_guarded(struct hak_heap *heap, const void *pointer);
HAK_HIDDEN struct heap_owned hak__heap_look_at(void *object, size_t bytes, bool lost);
HAK_HIDDEN void hak__heap_resize_guarded(const struct heap_owned *owned, size_t size);

/* The size of the object for a request; a request that is too large stays so. */
HAK_INLINE size_t heap_object_size(size_t size, size_t alignment)
{
    if (!HAK_SECURE || size > REQUEST_SIZE_MAX) {
        return size;
    }
    return (alignment < HEAP_LEAD ? HEAP_LEAD : alignment) + size + HEAP_CANARY;
}

/* Gives a new object to the program, for a request of this size and alignment. Returns the pointer.
 * NULL stays NULL. */
HAK_INLINE void *heap_hand_out(struct hak_heap *heap, void *object, size_t alignment, size_t size)
{
    return HAK_SECURE && object != NULL ? hak__heap_guard(heap, object, alignment, size) : object;
}

/* Takes the object at `pointer`, any value, from the program. NULL: as heap_find. */
HAK_INLINE void *heap_take_back(struct hak_heap *heap, void *pointer)
{
    return HAK_SECURE && pointer != NULL ? hak__heap_unguard(heap, pointer) : pointer;
}

/* What starts at `pointer`, any value but NULL. Reports anything else through the event function;
 * object NULL: that allows it. A changed canary or head is a fatal report. */
HAK_INLINE struct heap_owned heap_find(struct hak_heap *heap, const void *pointer)
{
    if (HAK_SECURE) {
        return hak__heap_find_guarded(heap, pointer);
    }
    hak__heap_check_alive(heap);
    struct heap_place place = hak__heap_locate(heap, pointer);
    if (HAK_UNLIKELY(place.run == NULL)) {
        hak__heap_no_object(heap, pointer);
        return (struct heap_owned){NULL, 0, 0, 0};
    }
    return (struct heap_owned){(void *)(uintptr_t)pointer, 0, place.bytes, place.bytes};
}

/* For walks: what the program has of an object in use, which lies in `bytes` bytes. A changed
 * canary or head is a fatal report, unless `lost`: threads of fork's parent may have been changing
 * objects. object NULL: it is such an object, or waits in such a thread's cache. */
HAK_INLINE struct heap_owned heap_look_at(void *object, size_t bytes, bool lost)
{
    if (HAK_SECURE) {
        return hak__heap_look_at(object, bytes, lost);
    }
    return (struct heap_owned){object, 0, bytes, bytes};
}

/* The program gets another size at the same place, at most `room`. */
HAK_INLINE void heap_resize(const struct heap_owned *owned, size_t size)
{
    if (HAK_SECURE) {
        hak__heap_resize_guarded(owned, size);
    }
}

#endif
