/* dlopen.c: the C library's dlopen, but RTLD_DEEPBIND does not hide the allocator from a library.
 *
 * With that flag a library's malloc and free would be the C library's own, while everything it
 * gets from others (strdup, asprintf, the program) is ours: freeing it would end the process or
 * corrupt it. So the flag is left out, unless HAKMEM_KEEP_DEEPBIND says otherwise
 * (docs/decisions/0006-deepbind.md).
 *
 * In the shared library only: a static program's dlopen has to stay the C library's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#include "core/options.h"
#include "hakmem/hakmem.h"

typedef void *dlopen_function(const char *file, int mode);

/* The loader takes the search path and the namespace of whoever it returns to. So the last call is
 * a jump, which returns to our caller: this file is compiled with -O2 in every form, and
 * tests/override/test_deepbind.c looks. */
HAK_API void *dlopen(const char *file, int mode)
{
    dlopen_function *next = (dlopen_function *)(uintptr_t)dlsym(RTLD_NEXT, "dlopen");
    if (next == NULL) {
        return NULL;
    }
    return next(file, hak__settings.keep_deepbind ? mode : mode & ~RTLD_DEEPBIND);
}
