/* SPDX-License-Identifier: MIT */
/* malloc.c: hak_malloc and hak_calloc. malloc starts in front/fast.h, goes on in malloc_slow.c. */
#include "front/short.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "observe/sites.h"

#include <errno.h>
#include <string.h>

HAK_FAST_PATH void *hak_malloc(size_t size)
{
    return malloc_fast(size, hak__malloc_slow, SECURE_MALLOC);
}

void *hak_calloc(size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    if (HAK_UNLIKELY(total > MID_REQUEST_MAX)) {
        return hak__malloc_large(total, OBJECT_ALIGNMENT, true);
    }
    void *pointer = malloc_fast(total, hak__malloc_slow, SECURE_MALLOC);
    if (HAK_SECURE && short_code_is_class(short_code(pointer))) {
        if (total > SECURE_LOOK_MAX) { /* free objects are zero, and malloc has looked so far */
            memset((char *)pointer + SECURE_LOOK_MAX, 0, total - SECURE_LOOK_MAX);
        }
        return pointer;
    }
    return HAK_LIKELY(pointer != NULL) ? memset(pointer, 0, total) : NULL;
}

/* The slow path of hak_alloc_at: only there samples are taken, so only they see the site. */
static HAK_NOINLINE void *malloc_at_slow(size_t size, uintptr_t site)
{
    uintptr_t before = hak__site_current;
    hak__site_current = site != 0 ? site : before;
    void *pointer = hak__malloc_slow(size);
    hak__site_current = before;
    return pointer;
}

void *hak_alloc_at(size_t size, uintptr_t site)
{
    void *pointer = malloc_try(size, SECURE_MALLOC);
    return HAK_LIKELY(pointer != NULL) ? pointer : malloc_at_slow(size, site);
}
