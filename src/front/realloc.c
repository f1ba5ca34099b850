/* realloc.c: in place where the class, the neighbours or the page tables allow it, else a copy. */
#include "base/bits.h"
#include "core/diagnose.h"
#include "front/fast.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "large/whale.h"

#include <errno.h>
#include <string.h>

static void realloc_count(enum counter counter)
{
    struct thread *thread = hak__thread;
    if (HAK_LIKELY(thread->heap != NULL)) {
        counter_add(&thread->cache.counters, counter, 1);
    }
}

/* The block where it is now, or near, or moved by its page tables; NULL when it must be copied. */
static void *realloc_in_place(void *pointer, struct location location, size_t size)
{
    void *result = NULL;
    /* Shrinking by less than half is not worth a copy, and there is nothing below the least. */
    bool fits = size <= location.bytes &&
                (size >= location.bytes / 2 || location.bytes == OBJECT_ALIGNMENT);
    switch (location.place) {
    case PLACE_SLAB:
        return fits ? pointer : NULL; /* too common to count */
    case PLACE_SPAN:
        if (size > MID_SIZE_MAX) {
            result = hak__span_resize(location.slice, size);
        }
        break;
    case PLACE_WHALE:
        if (size > SPAN_SIZE_MAX) {
            result = hak__whale_resize(pointer, size);
        }
        break;
    case PLACE_FOREIGN:
    case PLACE_NOBODY:
        break;
    }
    if (result != NULL) {
        realloc_count(COUNTER_REALLOC_IN_PLACE);
    }
    return result;
}

static void *realloc_copy(void *pointer, size_t old_bytes, size_t size)
{
    void *result = hak_malloc(size);
    if (result == NULL) {
        /* Shrinking must not fail: the block it has will do. */
        return size <= old_bytes ? pointer : NULL;
    }
    memcpy(result, pointer, old_bytes < size ? old_bytes : size);
    realloc_count(COUNTER_REALLOC_COPIED);
    hak_free(pointer);
    return result;
}

void *hak_realloc(void *pointer, size_t size)
{
    if (pointer == NULL) {
        return hak_malloc(size);
    }
    if (HAK_UNLIKELY(size == 0)) {
        hak_free(pointer);
        return NULL;
    }
    struct location location = hak__locate_allocation(pointer);
    if (HAK_UNLIKELY(location.place == PLACE_FOREIGN)) {
        hak__diagnose_fatal("realloc of a foreign pointer (not allocated by hakmem)", pointer, 0,
                            0);
    }
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX)) {
        errno = ENOMEM;
        return NULL;
    }
    int saved = errno;
    void *result = realloc_in_place(pointer, location, size);
    if (result == NULL) {
        result = realloc_copy(pointer, location.bytes, size);
    }
    errno = result == NULL ? ENOMEM : saved;
    return result;
}

void *hak_reallocarray(void *pointer, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    return hak_realloc(pointer, total);
}
