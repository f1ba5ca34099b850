/* SPDX-License-Identifier: MIT */
/* seal.h: the secure form keeps its settings in read-only pages.
 *
 * The options (core/options.h, core/knobs.h) have pages of their own. The start closes these pages
 * for writes. Whoever changes an option later calls hak__seal_open, writes, and calls
 * hak__seal_close. So an overflow or a wrong pointer cannot change an option. The addresses of
 * the tables of region/secure.h have such a page, too, which never opens again.
 *
 * State: one thread at a time has the pages open, under SEAL. Its signals are blocked meanwhile, so
 * no handler of that thread forks or sets an option. A fork in another thread may copy open pages;
 * its child closes them.
 *
 * If the kernel refuses to close a page, it stays open. If the kernel refuses to open one, nothing
 * is written. */
#ifndef HAK_CORE_SEAL_H
#define HAK_CORE_SEAL_H

#include "base/arch.h"

/* The alignment of a sealed object, for _Alignas: 0, which says nothing, in the ordinary form. */
#define SEAL_ALIGNMENT (HAK_SECURE * ARCH_PAGE_SIZE_MAX)
/* The length of an array that beside an object of `size` bytes, in a union, fills its pages. */
#define SEAL_BYTES(size) (((size) + ARCH_PAGE_SIZE_MAX - 1) / ARCH_PAGE_SIZE_MAX * SEAL_ALIGNMENT)

/* Pages that hold one object. */
struct seal_pages {
    void *address;
    size_t size; /* 0: none */
};

/* Lets this thread write options; it must soon call hak__seal_close. False: the kernel refuses, and
 * the caller writes nothing and calls nothing. Any thread, and any lock but SEAL may be held. */
HAK_HIDDEN bool hak__seal_open(void);
HAK_HIDDEN void hak__seal_close(void);
/* From the next hak__seal_close on, the pages are read-only. Between open and close. */
HAK_HIDDEN void hak__seal_begin(void);
/* In the child of a fork: closes the pages if another thread had them open. */
HAK_HIDDEN void hak__seal_fork_child(void);

/* The same, without an instruction in the ordinary form. */
HAK_INLINE bool seal_open(void)
{
    return SEAL_ALIGNMENT == 0 || hak__seal_open();
}

HAK_INLINE void seal_close(void)
{
    if (SEAL_ALIGNMENT != 0) {
        hak__seal_close();
    }
}

#endif
