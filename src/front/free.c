/* SPDX-License-Identifier: MIT */
/* free.c: hak_free and its sized forms. Free starts in front/fast.h and goes on in free_slow.c. */
#include "base/bits.h"
#include "base/check.h"
#include "core/diagnose.h"
#include "core/knobs.h"
#include "front/short.h"
#include "front/slow.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

HAK_FAST_PATH void hak_free(void *pointer)
{
    free_fast(pointer);
}

static HAK_COLD void free_wrong_size(const void *pointer, size_t size)
{
    hak__diagnose_given("sized free with a size larger than the allocation", size, pointer,
                        hak_usable_size(pointer));
}

/* pvalloc rounds sizes up to whole pages, and its caller frees with the size before that. */
static bool free_may_be_rounded(const void *pointer, size_t size)
{
    return bits_align_up(size == 0 ? 1 : size, hak__os_page_size()) == hak_usable_size(pointer);
}

static HAK_COLD void free_other_size(const void *pointer, size_t size)
{
    if (atomic_load_relaxed(&hak__knobs.abort_on_size) && !free_may_be_rounded(pointer, size)) {
        hak__diagnose_given("sized free with another size than that of the request", size, pointer,
                            hak_usable_size(pointer));
    }
}

/* Aborts if the allocation is shorter than `size` bytes, or, in the secure form, longer. Free
 * itself ignores size and alignment, because it must look up the slab's owner in any case. */
static void free_check_size(const void *pointer, size_t size)
{
    if (HAK_SECURE) {
        if (HAK_UNLIKELY(!short_size_is_right(pointer, size))) {
            free_other_size(pointer, size);
        }
        return;
    }
    if (HAK_UNLIKELY(pointer != NULL && hak_usable_size(pointer) < size)) {
        free_wrong_size(pointer, size);
    }
}

void hak__free_check_alignment(const void *pointer, size_t alignment)
{
    bool wrong = (HAK_SECURE || HAK_LEVEL >= 1) && ((uintptr_t)pointer & (alignment - 1)) != 0;
    if (HAK_UNLIKELY(wrong) && atomic_load_relaxed(&hak__knobs.abort_on_size)) {
        hak__diagnose_given("free or delete with an alignment that the block does not have",
                            alignment, pointer, 0);
    }
}

void hak_free_sized(void *pointer, size_t size)
{
    free_check_size(pointer, size);
    free_fast(pointer);
}

void hak_free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    hak__free_check_alignment(pointer, alignment);
    free_check_size(pointer, size);
    free_fast(pointer);
}

void hak_free_at(void *pointer, size_t size, uintptr_t site)
{
    (void)site;
    if (size != 0) {
        free_check_size(pointer, size);
    }
    free_fast(pointer);
}
