/* SPDX-License-Identifier: MIT */
/* aligned.c: hak_aligned_alloc and its relatives. Objects of many size classes are aligned to more
 * than 16 bytes, so most requests only need the right class (core/size_class.h). For larger
 * alignments or sizes there are spans and huge blocks, which can start at a multiple of any power
 * of two. */
#include "base/bits.h"
#include "front/short.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

/* `alignment` is a power of two, in bytes. Returns NULL with errno ENOMEM if there is no memory. */
static void *aligned_allocate(size_t alignment, size_t size)
{
    void *theirs;
    if (hak__family_allocate != NULL && hak__family_allocate(alignment, size, &theirs)) {
        return theirs;
    }
    if (alignment <= OBJECT_ALIGNMENT) {
        return hak__malloc_slow(size);
    }
    uint32_t class_index = size_class_of_aligned(size, alignment);
    return class_index < CLASS_COUNT ? hak__malloc_class(class_index, size)
                                     : hak__malloc_large(size, alignment, false);
}

void *hak__aligned_slow(size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return aligned_allocate(alignment, size);
}

HAK_FAST_PATH void *hak_aligned_alloc(size_t alignment, size_t size)
{
    void *object = short_aligned(alignment, size);
    return HAK_LIKELY(object != NULL) ? object : hak__aligned_slow(alignment, size);
}

void *hak_aligned_calloc(size_t alignment, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    if (alignment <= OBJECT_ALIGNMENT) {
        return hak_calloc(1, total);
    }
    if (size_class_of_aligned(total, alignment) >= CLASS_COUNT) {
        return hak__malloc_large(total, alignment, true);
    }
    void *object = hak_aligned_alloc(alignment, total);
    return object != NULL ? memset(object, 0, total) : NULL;
}

static HAK_NOINLINE void *memalign_slow(size_t alignment, size_t size)
{
    /* The next power of two does not fit into a size_t. */
    if (HAK_UNLIKELY(alignment > SIZE_MAX / 2 + 1)) {
        errno = EINVAL;
        return NULL;
    }
    if (alignment == 0) {
        alignment = 1;
    }
    if (!bits_is_power_of_two(alignment)) {
        alignment = (size_t)1 << (bits_log2(alignment) + 1);
    }
    return aligned_allocate(alignment, size);
}

HAK_FAST_PATH void *hak_memalign(size_t alignment, size_t size)
{
    void *object = short_aligned(alignment, size);
    return HAK_LIKELY(object != NULL) ? object : memalign_slow(alignment, size);
}

/* posix_memalign returns its error and keeps errno. The other functions here set errno. */
static HAK_NOINLINE int posix_memalign_slow(void **result, size_t alignment, size_t size)
{
    int saved = errno;
    void *pointer = aligned_allocate(alignment, size);
    errno = saved;
    if (HAK_UNLIKELY(pointer == NULL)) {
        return ENOMEM;
    }
    *result = pointer;
    return 0;
}

HAK_FAST_PATH int hak_posix_memalign(void **result, size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!bits_is_power_of_two(alignment) || alignment % sizeof(void *) != 0)) {
        return EINVAL;
    }
    void *object = short_aligned(alignment, size);
    if (HAK_UNLIKELY(object == NULL)) {
        return posix_memalign_slow(result, alignment, size);
    }
    *result = object;
    return 0;
}

void *hak_valloc(size_t size)
{
    return aligned_allocate(hak__os_page_size(), size);
}

void *hak_pvalloc(size_t size)
{
    size_t page = hak__os_page_size();
    if (HAK_UNLIKELY(size > REQUEST_SIZE_MAX - page)) {
        errno = ENOMEM;
        return NULL;
    }
    return aligned_allocate(page, bits_align_up(size == 0 ? 1 : size, page));
}
