/* SPDX-License-Identifier: MIT */
/* empty.c: see empty.h. */
#include "large/empty.h"

#include "core/diagnose.h"
#include "os/os.h"
#include "region/secure.h"

uintptr_t hak__empty_range;
static uint64_t shared_empty_used[EMPTY_BLOCKS_MAX / 64]; /* a bit for each address */
static size_t shared_empty_next;                          /* relaxed: a counter */

bool hak__empty_start(void)
{
    void *made;
    uintptr_t none = 0;
    if (atomic_load_relaxed(&hak__empty_range) != 0) {
        return true;
    }
    if (hak__os_map(EMPTY_RANGE_SIZE, OS_PAGE_SIZE_MAX, &made) != 0) {
        return false;
    }
    if (!hak__os_keep_addresses(made, EMPTY_RANGE_SIZE)) {
        hak__os_discard(made, EMPTY_RANGE_SIZE);
        return false;
    }
    atomic_add_relaxed(&shared_empty_next, (size_t)hak__secure_draw() % EMPTY_BLOCKS_MAX);
    /* Pairs with nothing: see empty.h. */
    if (!atomic_cas_acquire(&hak__empty_range, &none, (uintptr_t)made)) {
        hak__os_release_addresses(made, EMPTY_RANGE_SIZE); /* another thread was faster */
    }
    return true;
}

void *hak__empty_allocate(void)
{
    uintptr_t range = atomic_load_relaxed(&hak__empty_range);
    for (uint32_t i = 0; range != 0 && i < LOOKS_MAX; i++) {
        size_t number = atomic_add_relaxed(&shared_empty_next, (size_t)1) % EMPTY_BLOCKS_MAX;
        uint64_t bit = UINT64_C(1) << number % 64;
        if ((atomic_or_relaxed(&shared_empty_used[number / 64], bit) & bit) == 0) {
            return (void *)(range + number * OBJECT_ALIGNMENT);
        }
    }
    return NULL;
}

/* The word of a block's bit, and *bit. */
static uint64_t *empty_place(const void *pointer, uint64_t *bit)
{
    size_t offset = (uintptr_t)pointer - atomic_load_relaxed(&hak__empty_range);
    size_t number = offset / OBJECT_ALIGNMENT;
    if (offset % OBJECT_ALIGNMENT != 0) {
        hak__diagnose_fatal("invalid free (no object starts here)", pointer, 0, 0);
    }
    *bit = UINT64_C(1) << number % 64;
    return &shared_empty_used[number / 64];
}

static HAK_COLD __attribute__((noreturn)) void empty_is_free(const void *pointer)
{
    hak__diagnose_fatal("double free (of a block of size 0)", pointer, 0, 0);
}

void hak__empty_free(const void *pointer)
{
    uint64_t bit, *word = empty_place(pointer, &bit);
    if (HAK_UNLIKELY((atomic_and_relaxed(word, ~bit) & bit) == 0)) {
        empty_is_free(pointer);
    }
}

void hak__empty_check(const void *pointer)
{
    uint64_t bit, *word = empty_place(pointer, &bit);
    if (HAK_UNLIKELY((atomic_load_relaxed(word) & bit) == 0)) {
        empty_is_free(pointer);
    }
}
