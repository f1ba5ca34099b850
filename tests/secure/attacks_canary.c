/* SPDX-License-Identifier: MIT */
/* attacks_canary.c: overflows with the right bytes: those that a leak or a forking server tells,
 * and those that lie behind what an allocator looks at. */
#include "attacks.h"

#include <fcntl.h>

/* Sizes of which 8 bytes are left in their classes: the canary of every allocator that has one. */
enum { SMALL = 24, LARGER = 1016 };

static uint64_t read_word(const unsigned char *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

enum { SAME_SLAB, OTHER_SLAB, OTHER_CLASS };

/* The attacker reads the 8 bytes behind one block, and knows how the allocator makes a canary:
 * each slab has one, or it is a secret with the address, of which some bits are always set. */
static void leak(const struct attack *attack)
{
    enum { COUNT = 100000 };
    static unsigned char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = make(SMALL);
    }
    qsort(blocks, COUNT, sizeof *blocks, compare_addresses);
    unsigned char *read = blocks[COUNT / 2], *target = blocks[COUNT / 10];
    size_t size = SMALL;
    if (attack->at == SAME_SLAB) {
        /* The closest one, for a slab may end between two. */
        bool is_above =
            (size_t)(blocks[COUNT / 2 + 1] - read) < (size_t)(read - blocks[COUNT / 2 - 1]);
        target = blocks[COUNT / 2 + (is_above ? 1 : -1)];
    } else if (attack->at == OTHER_CLASS) {
        size = LARGER;
        target = make(size);
        make(size); /* else the target may be the last block of the heap */
    }
    uint64_t seen = read_word(read + SMALL);
    uint64_t moved = seen ^ (uintptr_t)read ^ (uintptr_t)target;
    uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t guesses[] = {moved | ones, moved, seen}, guess = guesses[0];
    for (size_t i = 0; i < 3; i++) {
        if (guesses[i] == read_word(target + size)) {
            guess = guesses[i];
        }
    }
    memcpy(hide(target + size), &guess, sizeof guess);
    free(hide(target));
    work(size);
}

/* A child of the server writes the bytes behind its buffer, and frees it. True if that is not
 * noticed. The buffer is the parent's, or NULL. */
static bool serve(unsigned char *buffer, const unsigned char *bytes, size_t count)
{
    int status = -1, nowhere;
    pid_t pid = fork();
    if (pid == 0) {
        nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        buffer = buffer == NULL ? make(SMALL) : buffer;
        memcpy(hide(buffer + SMALL), bytes, count);
        free(hide(buffer));
        _exit(0);
    }
    if (pid < 0) {
        _exit(STATUS_NO_MEMORY);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

/* Zero, which one canary begins with, then odd bytes, of which others consist. */
static unsigned char guess_of(unsigned number)
{
    return (unsigned char)(number <= 128 ? number == 0 ? 0 : number * 2 - 1 : (number - 128) * 2);
}

/* The attacker finds the bytes one after the other, from whether the child has died. */
static void fork_and_guess(const struct attack *attack)
{
    enum { TRIES_MAX = 4000, CHECKS = 3 };
    unsigned char known[8];
    size_t tries = 0, count = 0;
    work(SMALL);
    unsigned char *buffer = attack->at == 0 ? make(SMALL) : NULL;
    while (count < sizeof known) {
        bool found = false;
        for (unsigned i = 0; i < 256 && !found; i++) {
            if (tries == TRIES_MAX) {
                figure("tries", tries);
                exit(STATUS_HELD);
            }
            tries++;
            known[count] = guess_of(i);
            found = serve(buffer, known, count + 1);
        }
        /* A byte that none of all is right for: one before it was luck. */
        count = found ? count + 1 : 0;
        for (int i = 0; i < CHECKS && count == sizeof known; i++) {
            count = serve(buffer, known, count) ? count : 0;
        }
    }
    figure("tries", tries);
    exit(STATUS_HARMED);
}

/* Some bytes behind what the program may use. */
static void write_behind_usable(const struct attack *attack)
{
    unsigned char *blocks[64];
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = make(attack->size);
    }
    memset(hide(blocks[32] + malloc_usable_size(blocks[32])), 'o', attack->at);
    for (size_t i = 0; i < 64; i++) {
        free(blocks[i]);
    }
    work(attack->size);
}

enum { FREED, FRESH };

/* The least distance of two blocks, which come in the order of their addresses; `low` is the first
 * of the two. */
static size_t stride_of(unsigned char *const *blocks, size_t count, unsigned char **low)
{
    size_t stride = SIZE_MAX;
    for (size_t i = 0; i + 1 < count; i++) {
        if ((size_t)(blocks[i + 1] - blocks[i]) < stride) {
            stride = (size_t)(blocks[i + 1] - blocks[i]);
            *low = blocks[i];
        }
    }
    return stride;
}

/* A block with places that were never handed out behind it, and another block behind those, so that
 * they are places of blocks: what follows a slab's last block is not. NULL: there is none. */
static unsigned char *before_hole(unsigned char *const *blocks, size_t count, size_t stride)
{
    enum { SLAB = 32768 };
    for (size_t i = 0; i + 1 < count; i++) {
        size_t distance = (size_t)(blocks[i + 1] - blocks[i]);
        bool is_one_slab = (uintptr_t)blocks[i] / SLAB == (uintptr_t)blocks[i + 1] / SLAB;
        if (is_one_slab && distance != stride && distance % stride == 0) {
            return blocks[i];
        }
    }
    return NULL;
}

/* The write begins where the block next to it does, so it leaves the canary alone. */
static void jump(const struct attack *attack)
{
    enum { COUNT = 1990, ENOUGH = 1500, JUMPED = 32, LATER = 5000 };
    static unsigned char *blocks[COUNT], *later[LATER];
    unsigned char *block = NULL, *low = NULL;
    size_t stride = 0, handed_out = 0;
    for (size_t i = 0; i < COUNT && block == NULL; i++) {
        blocks[i] = make(attack->size);
        if (i >= ENOUGH) {
            qsort(blocks, i + 1, sizeof *blocks, compare_addresses);
            stride = stride_of(blocks, i + 1, &low);
            block = attack->at == FRESH ? before_hole(blocks, i + 1, stride) : low;
        }
    }
    block = block == NULL ? blocks[COUNT - 1] : block; /* blocks come in order */
    unsigned char *neighbour = block + stride;
    if (attack->at == FREED) {
        free(hide(neighbour));
    }
    memset(hide(neighbour), 'j', JUMPED);
    free(hide(block));
    figure("free_passed", 1);
    for (size_t i = 0; i < LATER; i++) {
        later[i] = make(attack->size);
        handed_out |= later[i] == neighbour;
    }
    for (size_t i = 0; i < PAIRS_MAX && !handed_out; i++) {
        unsigned char *other = make(attack->size);
        handed_out |= other == neighbour;
        free(other);
    }
    figure("handed_out", handed_out);
}

/* Behind a block that nobody frees, in a program that goes on. */
static void write_behind_kept(const struct attack *attack)
{
    memset(hide(make(attack->size)) + attack->size, 'k', attack->at);
    for (size_t size = 1; size < 60000; size += size / 8 + 1) {
        make(size);
    }
    _exit(0);
}

const struct attack canary_attacks[] = {
    {"canary_same_slab", "A canary that leaked tells that of another block in its slab", leak, 0,
     SAME_SLAB, 0},
    {"canary_other_slab", "A canary that leaked tells that of a block in another slab", leak, 0,
     OTHER_SLAB, 0},
    {"canary_other_class", "A canary that leaked tells that of a block of another size", leak, 0,
     OTHER_CLASS, 0},
    {"fork_before", "The canary of the parent's buffer is guessed byte by byte in children",
     fork_and_guess, 0, 0, 5},
    {"fork_after", "The canary is guessed byte by byte in children, which allocate the buffer",
     fork_and_guess, 0, 1, 5},
    {"behind_usable_24_8", "8 bytes behind malloc_usable_size of 24", write_behind_usable, 24, 8,
     0},
    {"behind_usable_24_16", "16 bytes behind malloc_usable_size of 24", write_behind_usable, 24, 16,
     0},
    {"behind_usable_1000_8", "8 bytes behind malloc_usable_size of 1,000", write_behind_usable,
     1000, 8, 0},
    {"behind_usable_1000_16", "16 bytes behind malloc_usable_size of 1,000", write_behind_usable,
     1000, 16, 0},
    {"jump_freed_56", "32 bytes behind the canary, over a freed neighbour of 56", jump, 56, FREED,
     0},
    {"jump_fresh_56", "32 bytes behind the canary, over a neighbour of 56 that was never used",
     jump, 56, FRESH, 0},
    {"jump_freed_1000", "32 bytes behind the canary, over a freed neighbour of 1,000", jump, 1000,
     FREED, 0},
    {"jump_fresh_1000", "32 bytes behind the canary, over a neighbour of 1,000 that was never used",
     jump, 1000, FRESH, 0},
    {"behind_kept", "8 bytes behind a block that nobody frees", write_behind_kept, 40, 8, 0},
    {0}};
