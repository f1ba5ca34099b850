/* SPDX-License-Identifier: MIT */
/* huge_cache.h: freed huge blocks, kept for later requests.
 *
 * Bound: kept huge blocks and free slices that may be resident are together never more than
 * hak__superslab_wanted. The oldest ranges beyond the bound are unmapped at once. If a request then
 * needs new memory, it missed them, and the bound rises: the ranges did not fit one another.
 *
 * The cache holds up to KEPT_MAX ranges of addresses; then the oldest is unmapped. A request takes
 * a part of a range, and the rest stays. Neighbouring ranges become one again if they are parts of
 * one mapping.
 *
 * Locks: the functions take HUGE themselves, unless said otherwise. They make no system call
 * under it: a range that was taken out of the cache is known to its taker only. Callers are inside
 * the gate (core/gate.h). */
#ifndef HAK_LARGE_HUGE_CACHE_H
#define HAK_LARGE_HUGE_CACHE_H

#include "large/huge.h"
#include "region/secure.h"

/* The most ranges. Twice: of 2,048 freed blocks all are kept, and each free and malloc looks at
 * twice as many, in some microseconds. Half: a program that frees 1,000 blocks and allocates them
 * again touches half of their pages anew. */
#define KEPT_MAX (HAK_TINY_LIMITS ? 2 * HUGE_PARTS_MAX : 1024u)

/* If less than this would be left of a range, the huge block gets the whole range. A joined huge
 * block takes no shorter end out of the cache. Twice: a huge block may be 128 KiB larger than asked
 * for. Half: more and shorter ranges in the cache. */
#define HUGE_REST_MIN ((size_t)64 << 10)

/* calloc takes a new mapping rather than clear more than this. Pages of a new mapping that the
 * program never touches take no memory. Twice: calloc clears up to 64 MiB, and faults less. Half:
 * more page faults where the program uses all of the block. */
#define HUGE_CLEAR_MAX ((size_t)32 << 20)

struct kept_range {
    struct huge block;
    size_t resident;   /* bytes that the bound counts; less than the size if it is sparse */
    uint32_t freed_ms; /* time of the free */
};

/* In no order. Under HUGE; the first three are also read without it, relaxed. */
struct huge_cache {
    uint32_t count;
    size_t resident; /* bytes of all ranges that the bound counts */
    size_t given;    /* bytes unmapped beyond the bound since the last purge pass, and not missed */
    struct kept_range ranges[KEPT_MAX];
};
HAK_HIDDEN extern struct huge_cache hak__huge_cache;

HAK_INLINE uintptr_t huge_end(struct huge block)
{
    return block.address + block.size;
}

/* What a request gets out of the cache: one huge block, or parts to be joined. All parts but the
 * last are whole huge pages; the last may be the end of the huge block and shorter than a huge
 * page. */
struct huge_parts {
    uint32_t count; /* 0: the cache has nothing suitable */
    bool whole;     /* the only part is a huge block; it is too small if it is to be stretched */
    struct huge parts[HUGE_PARTS_MAX];
};
/* Takes ranges for a huge block of `size` bytes, a multiple of the OS page, at a multiple of
 * `alignment`, a power of two and at least the OS page. `want_zero`: takes nothing from a range
 * with more than HUGE_CLEAR_MAX resident bytes, which calloc would have to clear. */
HAK_HIDDEN void hak__huge_cache_take(struct huge_parts *taken, size_t size, size_t alignment,
                                     bool want_zero);
/* Takes up to `size` bytes that directly follow `huge block` and are parts of the same mapping.
 * Returns the bytes taken; 0: none. */
HAK_HIDDEN size_t hak__huge_cache_take_next(struct huge block, size_t size);
/* Keeps a freed huge block, of which the bound counts `resident` bytes, at most its size, until the
 * next trim at least. Unmaps it if there are too many ranges. */
HAK_HIDDEN void hak__huge_cache_put(struct huge block, size_t resident);
/* Unmaps a huge block that is neither in the cache nor in the registry. Size 0: does nothing. */
HAK_HIDDEN void hak__huge_unmap(struct huge block);
/* Bytes of all joined huge blocks. Beyond 16 GiB no huge block is joined. */
HAK_HIDDEN extern size_t hak__huge_joined_bytes; /* relaxed */

/* Subtracts a part of a joined huge block that is unmapped, lost, or moved into another huge
 * block. */
HAK_INLINE void huge_uncount(struct huge block)
{
    if (huge_is_joined(block)) {
        atomic_sub_relaxed(&hak__huge_joined_bytes, block.size);
    }
}

/* Joins a huge block of `size` bytes, a multiple of the OS page, from `taken`, of which it consumes
 * all parts: a part that cannot move is unmapped. Address 0: no memory. */
HAK_HIDDEN struct huge hak__huge_join(const struct huge_parts *taken, size_t size, bool want_zero);

/* Grows a joined huge block to `size` bytes: moves it into a new mapping, 2 MiB at a time. If one
 * step fails, the earlier ones are copied back. Needs Linux 5.7. Address 0: that failed, and the
 * huge block is as it was. */
HAK_HIDDEN struct huge hak__huge_join_grow(struct huge block, size_t size);

/* --- canaries --- */

/* Secure form: notes the size of the request and writes the canary behind its end. */
HAK_INLINE void huge_begin_use(struct huge *block, size_t size)
{
    if (HAK_SECURE && block->address != 0) {
        void *pointer = (void *)block->address;
        *block->slack = block->size - size;
        *block->key = hak__secure_draw();
        hak__secure_put_gap(pointer, size, block->size, secure_mark_by(*block->key, pointer));
    }
}

/* Secure form: reports a huge block whose canary has changed. */
HAK_INLINE void huge_check_canary(const struct huge *block)
{
    if (!HAK_SECURE) {
        return;
    }
    const void *pointer = (const void *)block->address;
    if (HAK_UNLIKELY(!hak__secure_gap_is_whole(pointer, huge_usable(block), block->size,
                                               secure_mark_by(*block->key, pointer)))) {
        hak__secure_overflow(pointer, huge_usable(block));
    }
}

#endif
