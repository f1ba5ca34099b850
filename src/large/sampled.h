/* SPDX-License-Identifier: MIT */
/* sampled.h: memory for sampled objects of slab classes.
 *
 * A sampled object lies in no ordinary slab, so that free recognises it without a test on the fast
 * path: the owner word of its slice is OWNER_SAMPLED, which belongs to no thread's arena. Its slice
 * holds objects of one class only, each at a multiple of the class's size, and so as aligned as all
 * objects of the class. An object larger than a slice gets as many slices as it needs; the owner
 * word of the further ones is OWNER_NOBODY. The slices are returned to their superslab when their
 * last object is freed. Any thread frees any object.
 *
 * Cost: a slice for each class with live samples, of which the pages with objects are resident. The
 * slab metadata of the slice holds its list of free objects.
 *
 * Lock: SAMPLED. The callers are inside the gate (core/gate.h) and hold no lock. */
#ifndef HAK_LARGE_SAMPLED_H
#define HAK_LARGE_SAMPLED_H

#include "core/size_class.h"

/* Takes an object of the class for `size` bytes; its contents are undefined. NULL: no memory. */
HAK_HIDDEN void *hak__sampled_allocate(uint32_t class_index, size_t size);
/* Frees an object that is in use. */
HAK_HIDDEN void hak__sampled_free(void *object);
/* Bytes of an object that the program may use. `pointer` lies in a slice whose owner word is
 * OWNER_SAMPLED. Any thread, no lock. */
HAK_HIDDEN size_t hak__sampled_usable(const void *pointer);
/* Makes it the object of a request that is not larger. */
HAK_HIDDEN void hak__sampled_shrink(void *object, size_t size);

/* Slices from such a slice on that hold one object, or several. Any thread, no lock. A hint, for
 * reports: the slice may be given back and be a slab at that moment. */
HAK_HIDDEN uint32_t hak__sampled_slices(size_t slice);

/* Objects in use and their bytes, and the slices that hold them. Any thread; each is exact at
 * rest. */
struct sampled_totals {
    uint64_t objects_count;
    uint64_t objects_bytes;
    uint64_t slices_count;
};
HAK_HIDDEN struct sampled_totals hak__sampled_totals(void);

#endif
