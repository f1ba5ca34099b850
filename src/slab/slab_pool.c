/* slab_pool.c: the lock-free stage between heaps: a small stack of empty slices.
 *
 * A Treiber stack (R. K. Treiber, IBM RJ 5118, 1986) whose head carries a tag against ABA:
 *
 *   pool_head:  | tag 32, one more at every change | slice + 1, 0 when empty 32 |
 *
 * Links live in slab metadata, which is never unmapped, so reading the link of a slice another
 * thread has just taken is harmless: the tag makes the exchange fail.
 */
#include "region/superslab.h"
#include "slab/slab.h"

static uint64_t shared_pool_head;
static uint32_t
    shared_pool_count; /* may be ahead of the stack by gives in progress, never behind */

HAK_INLINE uint64_t pool_word(uint64_t old, uint32_t link)
{
    return ((old >> 32) + 1) << 32 | link;
}

size_t hak__slab_pool_take(void)
{
    /* acquire: pairs with the release in pool_give, so that the link is seen */
    uint64_t head = atomic_load_acquire(&shared_pool_head);
    while ((uint32_t)head != 0) {
        size_t slice = (uint32_t)head - 1;
        uint32_t next = atomic_load_relaxed(&window_slab_metadata(slice)->shared_link);
        if (atomic_cas_acq_rel(&shared_pool_head, &head, pool_word(head, next))) {
            atomic_sub_relaxed(&shared_pool_count, 1u);
            return slice;
        }
    }
    return SLICE_NONE;
}

bool hak__slab_pool_has_some(void)
{
    return (uint32_t)atomic_load_relaxed(&shared_pool_head) != 0;
}

bool hak__slab_pool_give(size_t slice)
{
    if (atomic_add_relaxed(&shared_pool_count, 1u) >= POOL_SLICES_MAX) {
        atomic_sub_relaxed(&shared_pool_count, 1u);
        return false;
    }
    struct slab *slab = window_slab_metadata(slice);
    uint64_t head = atomic_load_relaxed(&shared_pool_head);
    do {
        atomic_store_relaxed(&slab->shared_link, (uint32_t)head);
        /* release: pairs with the acquire in pool_take */
    } while (
        !atomic_cas_weak_release(&shared_pool_head, &head, pool_word(head, (uint32_t)slice + 1)));
    return true;
}

void hak__slab_pool_empty(void)
{
    for (size_t slice; (slice = hak__slab_pool_take()) != SLICE_NONE;) {
        hak__superslab_give(slice, 1);
    }
}
