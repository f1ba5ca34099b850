/* slow.h: what the files of front/ share behind the fast paths. */
#ifndef HAK_FRONT_SLOW_H
#define HAK_FRONT_SLOW_H

#include "core/limits.h"

/* An object of a slab class for `size` bytes, off the fast path. NULL with ENOMEM. */
HAK_HIDDEN void *hak__malloc_class(uint32_t class_index, size_t size);

/* Spans and whales: any size, any power-of-two alignment. NULL with ENOMEM. */
HAK_HIDDEN void *hak__malloc_large(size_t size, size_t alignment, bool want_zero);

/* What an address is. */
enum place {
    PLACE_FOREIGN, /* not ours */
    PLACE_SLAB,    /* inside an object's slab */
    PLACE_SPAN,    /* in the first slice of a span */
    PLACE_NOBODY,  /* ours, but no allocation starts here */
    PLACE_WHALE    /* the first byte of a whale */
};

struct location {
    enum place place;
    uint32_t class_index; /* of PLACE_SLAB */
    size_t slice;         /* inside the window */
    size_t bytes;         /* usable; 0 for PLACE_FOREIGN and PLACE_NOBODY */
};
HAK_HIDDEN struct location hak__locate(const void *pointer);

/* The same for a pointer that must be the start of an allocation; says what is wrong and aborts
 * otherwise. A foreign one is returned as such. */
HAK_HIDDEN struct location hak__locate_allocation(const void *pointer);

/* A free of memory that is not ours: reported. */
HAK_HIDDEN HAK_COLD void hak__report_foreign(const void *pointer);

#endif
