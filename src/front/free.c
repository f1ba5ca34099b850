/* free.c: hak_free and its sized forms. Free starts in front/fast.h and goes on in free_slow.c. */
#include "base/check.h"
#include "core/diagnose.h"
#include "front/fast.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"

HAK_FAST_PATH void hak_free(void *pointer)
{
    free_fast(pointer);
}

static HAK_COLD void free_wrong_size(const void *pointer, size_t size)
{
    hak__diagnose_fatal("sized free with a size larger than the allocation", pointer, size, 0);
}

/* Aborts if the allocation is shorter than `size` bytes. Free itself ignores size and alignment,
 * because it must look up the slab's owner in any case. */
static void free_check_size(const void *pointer, size_t size)
{
    if (HAK_UNLIKELY(pointer != NULL && hak_usable_size(pointer) < size)) {
        free_wrong_size(pointer, size);
    }
}

void hak_free_sized(void *pointer, size_t size)
{
    free_check_size(pointer, size);
    free_fast(pointer);
}

void hak_free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    HAK_ASSERT(((uintptr_t)pointer & (alignment - 1)) == 0);
    free_check_size(pointer, size);
    free_fast(pointer);
}

void hak_free_at(void *pointer, size_t size, uintptr_t site)
{
    (void)site;
    free_check_size(pointer, size);
    free_fast(pointer);
}
