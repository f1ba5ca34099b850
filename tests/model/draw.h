/* SPDX-License-Identifier: MIT */
/* draw.h: the decisions of a random program. They come from a seed, or from the bytes of an input,
 * so that a fuzzer decides.
 */
#ifndef TESTS_MODEL_DRAW_H
#define TESTS_MODEL_DRAW_H

#include "../support.h"

struct input {
    const uint8_t *bytes;
    size_t left;
};

struct draws {
    uint64_t random;
    struct input *input; /* NULL: from `random` */
};

/* `count` bytes of the input, zeros behind its end. */
static uint64_t input_take(struct input *input, size_t count)
{
    uint64_t value = 0;
    size_t taken = count < input->left ? count : input->left;
    memcpy(&value, input->bytes, taken);
    input->bytes += taken;
    input->left -= taken;
    return value;
}

/* 0 .. bound - 1. An input gives no more bytes than that needs: a fuzzer that changes one changes
 * one decision. */
static size_t draws_below(struct draws *draws, size_t bound)
{
    if (draws->input == NULL) {
        return random_below(&draws->random, bound);
    }
    size_t count = bound <= 1 ? 0 : bound <= 1u << 8 ? 1 : bound <= 1u << 16 ? 2 : 4;
    return (size_t)input_take(draws->input, count) % bound;
}

/* As random_size: each number of bits equally often. */
static size_t draws_size(struct draws *draws, unsigned bits)
{
    unsigned width = (unsigned)draws_below(draws, bits + 1);
    size_t least = width == 0 ? 0 : (size_t)1 << (width - 1);
    return least < 2 ? least : least + draws_below(draws, least);
}

#endif
