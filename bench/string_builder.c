/* SPDX-License-Identifier: MIT */
/* string_builder.c: strings that grow by doubling, 8, 16, 32 and 64 bytes, then freed in that
 * order. The workload of this name of hakmem's predecessor.
 *
 * Imitates: a program that puts messages, keys or paths together from pieces, in a language whose
 * strings do not change: each longer string is a new block, the shorter one is copied into it and
 * becomes garbage, which goes all at once and in order of age. Each round builds STRINGS strings,
 * one growth of each at a time, so that blocks of one size lie together; all bytes of all blocks
 * are written. A string is eight operations.
 *
 * Does not show: lifetimes beyond one round, other sizes, the cost of realloc (a builder that
 * gives its buffer up after each growth would call it). With STRINGS 1 four blocks live, and
 * whatever an allocator has as its fastest path is all there is. Threads (--threads N) share
 * nothing.
 */
#include "harness.h"

#include <string.h>

enum { ROUNDS, STRINGS, SEED, ARGUMENT_COUNT };
enum { GROWTH_COUNT = 4, SIZE_FIRST = 8 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "rounds of each thread", 10000000, 20000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(STRINGS, "strings built at a time", 1, 4, 1, 1000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("string_builder",
               "Builds strings by doubling from 8 to 64 bytes, then frees all pieces in order.");

static void pieces_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[STRINGS].value * GROWTH_COUNT * sizeof(char *));
}

/* A block of `size` bytes: the shorter string, then as many letters again. `size` is a literal
 * in every call, for the copies to be single instructions. */
BENCH_INLINE char *piece_grow(const char *shorter, size_t size, char letter,
                              struct bench_latency *latency)
{
    char *piece = bench_malloc(latency, size);
    if (shorter == NULL) {
        memset(piece, letter, size);
    } else {
        memcpy(piece, shorter, size / 2);
        memset(piece + size / 2, letter, size / 2);
    }
    return piece;
}

BENCH_INLINE void pieces_run(struct bench_thread *thread, struct bench_latency *latency)
{
    char **pieces = thread->data;
    uint64_t round_count = arguments[ROUNDS].value;
    size_t string_count = arguments[STRINGS].value;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < round_count; round++) {
        char letter = (char)('a' + bench_random_below(&state, 26));
        char **at = pieces;
        for (size_t i = 0; i < string_count; i++, at++) {
            *at = piece_grow(NULL, SIZE_FIRST, letter, latency);
        }
        for (size_t i = 0; i < string_count; i++, at++) {
            *at = piece_grow(at[-(ptrdiff_t)string_count], SIZE_FIRST * 2, letter, latency);
        }
        for (size_t i = 0; i < string_count; i++, at++) {
            *at = piece_grow(at[-(ptrdiff_t)string_count], SIZE_FIRST * 4, letter, latency);
        }
        for (size_t i = 0; i < string_count; i++, at++) {
            *at = piece_grow(at[-(ptrdiff_t)string_count], SIZE_FIRST * 8, letter, latency);
        }
        for (size_t i = 0; i < string_count * GROWTH_COUNT; i++) {
            bench_free(latency, pieces[i]);
        }
    }
    thread->operations = 2 * GROWTH_COUNT * string_count * round_count;
}

BENCH_MEASURE(pieces_measure, pieces_run)

BENCH_MAIN(pieces_map, pieces_measure, NULL)
