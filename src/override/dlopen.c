/* dlopen.c: dlopen without RTLD_DEEPBIND, a flag that would give a library another malloc.
 *
 * With the flag, a library's own calls of malloc and free go to the C library. Blocks that it gets
 * from others (strdup, asprintf, the program) are hakmem's, and freeing them with the C library's
 * free ends the process or corrupts its memory. So dlopen drops the flag, unless
 * HAKMEM_KEEP_DEEPBIND=1 (docs/decisions/0006-deepbind.md).
 *
 * This file is in the shared library only: a static program must use the C library's own dlopen. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#include "base/atomics.h"
#include "core/options.h"
#include "hakmem/hakmem.h"

typedef void *dlopen_function(const char *file, int mode);

/* The loader finds the search path and the namespace of the caller by the return address. So the
 * last call must be a jump, which returns to hakmem's caller. That is why this file is compiled
 * with -O2 in every form; tests/override/test_deepbind.c checks it. */
HAK_API void *dlopen(const char *file, int mode)
{
    dlopen_function *next = (dlopen_function *)(uintptr_t)dlsym(RTLD_NEXT, "dlopen");
    if (next == NULL) {
        return NULL;
    }
    bool keep = atomic_load_relaxed(&hak__settings.keep_deepbind);
    return next(file, keep ? mode : mode & ~RTLD_DEEPBIND);
}
