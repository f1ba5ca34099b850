/* SPDX-License-Identifier: MIT */
/* early.c: malloc while the loader still relocates the program.
 *
 * The resolver of an indirect function (ifunc) may allocate. The loader runs the resolvers of the
 * program before it gives thread-local variables their initial values: until then they are zero,
 * and the fast paths have no test for that. hakmem is relocated before the program, and has a
 * resolver of its own, which sets these variables. The loader may set them once more afterwards:
 * then the thread gets a second struct, and the first one stays.
 *
 * This file is in the shared library only: a static program runs resolvers before there is a place
 * for thread-local variables. musl's loader has no resolvers. */
#include "arena/arena.h"
#include "heap/heap.h"
#include "override/direct.h"

#if defined(__GLIBC__)

static void early_function(void)
{
}

/* used: clang does not count a resolver's name as a use. */
__attribute__((used)) static void (*early_resolve(void))(void)
{
    hak__direct_bind();
    hak__thread = (struct thread *)(uintptr_t)&hak__thread_none;
    hak__heap_slots.first = &hak__heap_no_slot;
    return early_function;
}

HAK_HIDDEN void hak__early(void) __attribute__((ifunc("early_resolve")));

/* Its relocation makes the loader call the resolver. */
__attribute__((used)) static void (*const volatile early_relocated)(void) = hak__early;

#endif
