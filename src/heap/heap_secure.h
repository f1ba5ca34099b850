/* SPDX-License-Identifier: MIT */
/* heap_secure.h: the secure form's guard around each object of a heap (docs/security.md).
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

/* What the program asked for. */
struct heap_guarded {
    void *object; /* NULL: none starts there */
    size_t lead;
    size_t size;
    size_t room; /* bytes from the pointer to the object's end */
    bool in_slab;
};

/* The size of the object for a request; a request that is too large stays so. */
HAK_INLINE size_t heap_guarded_size(size_t size, size_t alignment)
{
    size_t lead = alignment < HEAP_LEAD ? HEAP_LEAD : alignment;
    return size <= REQUEST_SIZE_MAX ? lead + size + HEAP_CANARY : size;
}

/* Guards a new object for a request of this size and alignment. Returns the program's pointer. */
HAK_HIDDEN void *hak__heap_guard(struct hak_heap *heap, void *object, size_t alignment,
                                 size_t size);
/* What starts at `pointer`, any value. Reports a changed canary or head, and anything else through
 * the event function. object NULL: that allows it. */
HAK_HIDDEN struct heap_guarded hak__heap_guarded(struct hak_heap *heap, const void *pointer);
/* Writes head and canary for another size, at most room - HEAP_CANARY. */
HAK_HIDDEN void hak__heap_guard_resize(const struct heap_guarded *guarded, size_t size);
/* Clears an object before it is freed. */
HAK_HIDDEN void hak__heap_unguard(const struct hak_heap *heap, const struct heap_guarded *guarded);
/* For walks: what the program has of an object in use, which lies in `bytes` bytes. Reports as
 * above, unless `lost`: threads of fork's parent may have been changing objects. object NULL: it is
 * such an object, or waits in such a thread's cache. */
HAK_HIDDEN struct heap_guarded hak__heap_guarded_object(void *object, size_t bytes, bool lost);

#endif
