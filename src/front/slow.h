/* SPDX-License-Identifier: MIT */
/* slow.h: functions of the slow paths that several files of front/ call. All functions here are
 * thread-safe; the caller holds no lock. */
#ifndef HAK_FRONT_SLOW_H
#define HAK_FRONT_SLOW_H

#include "core/limits.h"

/* Allocates an object of a slab class, off the fast path. `size` is the size of the request, in
 * bytes. Returns NULL with errno ENOMEM if there is no memory. */
HAK_HIDDEN void *hak__malloc_class(uint32_t class_index, size_t size);

/* hak_aligned_alloc for what its fast path did not serve. */
HAK_HIDDEN HAK_NOINLINE void *hak__aligned_slow(size_t alignment, size_t size);

/* Allocates a span or a huge block: `size` bytes, any size, aligned to any power of two, and zeroed
 * if `want_zero`. Returns NULL with errno ENOMEM if there is no memory. */
HAK_HIDDEN void *hak__malloc_large(size_t size, size_t alignment, bool want_zero);

/* Counts `size` bytes for this thread's next sample, and makes the block a sample if it is its
 * turn. The block is a span or a huge block that was just allocated or resized; NULL counts,
 * too. */
HAK_HIDDEN void hak__malloc_sample_block(void *pointer, size_t size);

/* What a pointer points to. */
enum place {
    PLACE_SLAB,    /* inside a slab */
    PLACE_SPAN,    /* the start of a span's block */
    PLACE_OUTSIDE, /* neither of them, and not looked at more closely */
    PLACE_HUGE,    /* the first byte of a huge block */
    PLACE_HEAP,    /* in a chunk of a heap (heap/heap.h) */
    PLACE_CLOSED,  /* a guarded block (observe/guard.h), or one of size 0 (large/empty.h) */
    PLACE_FOREIGN  /* not allocated by hakmem */
};

struct location {
    enum place place;
    uint32_t class_index; /* for PLACE_SLAB */
    size_t bytes;         /* usable size; 0 for PLACE_FOREIGN */
};

/* Finds out what starts at `pointer`; never PLACE_OUTSIDE. Aborts with a fatal report if it lies in
 * a span or huge block, but not where its block starts, or in freed memory. A foreign pointer is no
 * error here: the result is PLACE_FOREIGN. In a slab it does not check that an object starts there.
 * `freed`: what to report if it was a huge block. */
HAK_HIDDEN struct location hak__locate_allocation(const void *pointer, const char *freed);

/* Secure form and debug builds: aborts if the block does not lie at a multiple of `alignment`. */
HAK_HIDDEN void hak__free_check_alignment(const void *pointer, size_t alignment);

/* The process's own malloc and free, if these are not hakmem's (override/family.c): weak, because
 * not every form of the library has the C library's names. False: nothing was done: the functions
 * are hakmem's, or lack one for this alignment. *result is NULL if they have no memory. */
HAK_HIDDEN __attribute__((weak)) bool hak__family_allocate(size_t alignment, size_t size,
                                                           void **result);
HAK_HIDDEN __attribute__((weak)) bool hak__family_free(void *pointer);

/* Frees a pointer that hakmem did not allocate, if the process has a free of its own. Else reports
 * it: as a warning, or, with HAKMEM_ABORT_ON_FOREIGN=1, as a fatal error. */
HAK_HIDDEN HAK_COLD void hak__free_foreign(void *pointer);

#endif
