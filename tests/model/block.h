/* SPDX-License-Identifier: MIT */
/* block.h: what the model remembers of a block, and the pattern it keeps in it.
 *
 * Blocks to 64 KiB and some larger ones are written in full; of the others the first and last 4 KiB
 * and one word in 64 KiB, so that random megabytes do not cost a page fault each.
 */
#ifndef TESTS_MODEL_BLOCK_H
#define TESTS_MODEL_BLOCK_H

#include "../support.h"

#define DENSE_MAX (64 * KIB)
#define EDGE ((size_t)4096)
#define MARK_STEP (64 * KIB)

struct block {
    char *pointer; /* NULL: no block */
    size_t size;   /* as asked for */
    size_t usable;
    size_t written;   /* bytes under the pattern: size, or all that is usable */
    size_t alignment; /* as asked for; 0: by a function without one */
    uint64_t seed;
    bool dense;
};

static uint64_t block_word(const struct block *block, size_t offset)
{
    return block->seed + offset / 8 * PATTERN_STEP;
}

static void block_write_part(const struct block *block, size_t offset, size_t size)
{
    pattern_fill(block->pointer + offset, size, block_word(block, offset));
}

static void block_write(const struct block *block)
{
    if (block->dense) {
        block_write_part(block, 0, block->written);
        return;
    }
    block_write_part(block, 0, EDGE);
    for (size_t offset = MARK_STEP; offset + 8 <= block->written; offset += MARK_STEP) {
        block_write_part(block, offset, 8);
    }
    size_t tail = (block->written - EDGE) & ~(size_t)7;
    block_write_part(block, tail, block->written - tail);
}

/* Compares [offset, offset + size) with the pattern; the first difference or SIZE_MAX. */
static size_t block_compare_part(const struct block *block, size_t offset, size_t size)
{
    size_t at = pattern_mismatch(block->pointer + offset, size, block_word(block, offset));
    return at == SIZE_MAX ? SIZE_MAX : offset + at;
}

/* Compares the first `kept` bytes (at most all that were written) with what was written. */
static size_t block_compare(const struct block *block, size_t kept)
{
    bool whole = kept >= block->written;
    kept = whole ? block->written : kept & ~(size_t)7;
    if (block->dense) {
        return block_compare_part(block, 0, kept);
    }
    size_t at = block_compare_part(block, 0, kept < EDGE ? kept : EDGE);
    for (size_t offset = MARK_STEP; at == SIZE_MAX && offset + 8 <= kept; offset += MARK_STEP) {
        at = block_compare_part(block, offset, 8);
    }
    if (at == SIZE_MAX && whole) {
        size_t tail = (kept - EDGE) & ~(size_t)7;
        at = block_compare_part(block, tail, kept - tail);
    }
    return at;
}

/* The first byte that is not zero among `size`: all of them, or of large blocks mostly a word an OS
 * page. */
static size_t block_nonzero(const char *pointer, size_t size, bool dense)
{
    if (dense) {
        return nonzero_offset(pointer, size);
    }
    size_t at = nonzero_offset(pointer, EDGE);
    for (size_t offset = EDGE; at == SIZE_MAX && offset + 8 <= size; offset += EDGE) {
        at = nonzero_offset(pointer + offset, 8) == SIZE_MAX ? SIZE_MAX : offset;
    }
    return at == SIZE_MAX && nonzero_offset(pointer + size - 8, 8) != SIZE_MAX ? size - 8 : at;
}

#endif
