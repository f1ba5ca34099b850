/* SPDX-License-Identifier: MIT */
/* shadow.h: which bytes of the address space are handed out: one bit for 16 bytes, set by whoever
 * gets a block.
 *
 * A block that overlaps another one finds bits already set, whichever thread has the other. No
 * lock: words are changed by relaxed fetch-and-or. The allocator's own synchronisation orders a
 * release here, a free, a malloc of the same bytes elsewhere and the claim; if it does not, that is
 * a failure worth reporting.
 */
#ifndef TESTS_MODEL_SHADOW_H
#define TESTS_MODEL_SHADOW_H

#include "../support.h"

/* 47 bits of addresses: 2^17 leaves of 2^20 words of 64 bits of 16 bytes. A leaf, 8 MiB, covers a
 * gibibyte. */
#define SHADOW_LEAF_SHIFT 30
#define SHADOW_LEAF_WORDS ((size_t)1 << 20)
#define SHADOW_LEAVES ((size_t)1 << 17)

static uint64_t *shadow_leaves[SHADOW_LEAVES];

static uint64_t *shadow_leaf(size_t number)
{
    REQUIRE_SIZE(number, <, SHADOW_LEAVES);
    uint64_t *leaf = __atomic_load_n(&shadow_leaves[number], __ATOMIC_ACQUIRE);
    if (leaf == NULL) {
        uint64_t *fresh = support_map(SHADOW_LEAF_WORDS * sizeof *fresh);
        if (__atomic_compare_exchange_n(&shadow_leaves[number], &leaf, fresh, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            leaf = fresh;
        } else {
            munmap(fresh, SHADOW_LEAF_WORDS * sizeof *fresh);
        }
    }
    return leaf;
}

/* Sets (claim) or clears the bits of `size` bytes at `pointer`; the number of bits that were
 * already so. */
static size_t shadow_change(const void *pointer, size_t size, bool claim)
{
    size_t bit = (uintptr_t)pointer / 16;
    size_t end = bit + (size + 15) / 16;
    size_t wrong = 0;
    while (bit < end) {
        size_t word_number = bit / 64;
        uint64_t *leaf = shadow_leaf(word_number / SHADOW_LEAF_WORDS);
        size_t first = bit % 64;
        size_t count = end - bit < 64 - first ? end - bit : 64 - first;
        uint64_t mask = (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << first;
        uint64_t *word = &leaf[word_number % SHADOW_LEAF_WORDS];
        uint64_t old = claim ? __atomic_fetch_or(word, mask, __ATOMIC_RELAXED)
                             : __atomic_fetch_and(word, ~mask, __ATOMIC_RELAXED);
        wrong += (size_t)__builtin_popcountll((claim ? old : ~old) & mask);
        bit += count;
    }
    return wrong;
}

#endif
