/* SPDX-License-Identifier: MIT */
/* unwind_recipes.c: what was found in the unwind tables, by address, so that they are not read anew
 * for each frame of each sample. See unwind.h.
 *
 * State: a table without a lock. Writers in several threads may mix the words of an entry, and a
 * reader then finds a sum that does not fit (the way of R. M. Hyatt and T. Mann, "A lock-less
 * transposition table implementation for parallel search", 2002). The sum contains the address and
 * the key of its module, so code that was closed leaves nothing behind. */
#include "observe/unwind.h"

#include "base/atomics.h"
#include "base/bits.h"

struct recipe_entry {
    uint64_t words[3]; /* relaxed: the sum binds them */
    uint64_t sum;
};
/* Entries of 32 bytes. Twice: 32 KiB more. Half: a large program reads its tables more often, a
 * third of a microsecond each time. */
static struct recipe_entry shared_recipes[1024] HAK_SELDOM __attribute__((aligned(HAK_CACHE_LINE)));
HAK_STATIC_ASSERT(sizeof(struct unwind_recipe) == 3 * sizeof(uint64_t), "it is stored as words");

static struct recipe_entry *recipe_place(uintptr_t address)
{
    return &shared_recipes[bits_mix(address) % HAK_COUNT_OF(shared_recipes)];
}

static uint64_t recipe_sum(const struct unwind_module *module, uintptr_t address,
                           const uint64_t words[3])
{
    return words[0] ^ bits_mix(words[1] ^ bits_mix(words[2] ^ bits_mix(address ^ module->key)));
}

bool hak__unwind_recall(const struct unwind_module *module, uintptr_t address,
                        struct unwind_recipe *recipe)
{
    struct recipe_entry *entry = recipe_place(address);
    uint64_t words[3];
    for (uint32_t i = 0; i < 3; i++) {
        words[i] = atomic_load_relaxed(&entry->words[i]);
    }
    memcpy(recipe, words, sizeof *recipe);
    return atomic_load_relaxed(&entry->sum) == recipe_sum(module, address, words);
}

void hak__unwind_remember(const struct unwind_module *module, uintptr_t address,
                          const struct unwind_recipe *recipe)
{
    struct recipe_entry *entry = recipe_place(address);
    uint64_t words[3];
    memcpy(words, recipe, sizeof words);
    for (uint32_t i = 0; i < 3; i++) {
        atomic_store_relaxed(&entry->words[i], words[i]);
    }
    atomic_store_relaxed(&entry->sum, recipe_sum(module, address, words));
}

bool hak__unwind_follow(struct unwind_walk *walk, const struct unwind_recipe *recipe)
{
    static const uint8_t kept[] = ARCH_KEPT_ORDER;
    if ((walk->known >> recipe->frame_register & 1) == 0) {
        return false;
    }
    uintptr_t frame =
        walk->registers[recipe->frame_register] + (uintptr_t)(intptr_t)recipe->frame_offset;
    for (uint32_t i = 0; i < sizeof kept; i++) {
        uintptr_t below = recipe->words_below[i] * sizeof(uintptr_t);
        if (below != 0) {
            if (!hak__unwind_read(walk, frame - below, sizeof frame, &walk->registers[kept[i]])) {
                return false;
            }
            walk->known |= UINT64_C(1) << kept[i];
        }
    }
    if ((walk->known >> ARCH_RETURN_ADDRESS & 1) == 0 || frame % sizeof frame != 0) {
        return false;
    }
    walk->registers[ARCH_STACK_POINTER] = frame;
    walk->registers[ARCH_NEXT_INSTRUCTION] =
        arch_strip_signature(walk->registers[ARCH_RETURN_ADDRESS]);
    walk->known |= UINT64_C(1) << ARCH_STACK_POINTER | UINT64_C(1) << ARCH_NEXT_INSTRUCTION;
    return true;
}
