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

/* Debug builds check the size. Release builds ignore size and alignment, because free must look up
 * the slab's owner in any case. */
static void free_check_size(const void *pointer, size_t size)
{
    if (HAK_LEVEL >= 1 && pointer != NULL && hak__locate_allocation(pointer).bytes < size) {
        hak__diagnose_fatal("sized free with a size larger than the allocation", pointer, size, 0);
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
