/* SPDX-License-Identifier: MIT */
/* token_stream.c: tokens are made, wait in a queue and are freed in order; a few stay longer. The
 * workload of this name of hakmem's predecessor, with lengths as source text has them.
 *
 * Imitates: the lexer of a compiler or interpreter, a log shipper, a protocol decoder. Each token
 * is a block of a 16-byte head and its text, all written: two in five are signs of 1 or 2 bytes,
 * two in five names of 2 to 17, one in five literals of 1 to 64. The parser looks WINDOW tokens
 * ahead: the oldest is read and freed when a new one comes. One token in 16 goes into the tree
 * instead and lives until 4096 more have gone there, so that what is freed in order leaves gaps.
 * A token is two operations.
 *
 * Does not show: the parser's own nodes (small_objects.c, json.c), sizes above 80 bytes, threads
 * that pass tokens on (producer_consumer.c). Drawing and writing a token's text are part of the
 * figure, the same for every allocator. Threads (--threads N) share nothing.
 */
#include "harness.h"

#include <string.h>

enum { TOKENS, WINDOW, SEED, ARGUMENT_COUNT };
enum { KEPT_COUNT = 4096, KEPT_ONE_IN = 16 };

struct token {
    uint64_t position;
    uint32_t length;
    uint32_t sum; /* of the text's first and last byte, checked when the token goes */
    unsigned char text[];
};

/* A thread's tokens: the queue, then those in the tree, both rings. */
struct stream {
    struct token **window;
    struct token **kept;
    uint64_t kept_count; /* ever; the place of the next is its rest by KEPT_COUNT */
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(TOKENS, "tokens of each thread", 20000000, 200000, 1, UINT64_C(1000000000000)),
    BENCH_COUNT(WINDOW, "tokens between lexer and parser", 64, 64, 1, 10000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("token_stream",
               "Tokens of 17 to 80 bytes pass through a queue; one in 16 stays longer.");

static void stream_prepare(struct bench_thread *thread)
{
    struct stream *stream = bench_map(sizeof *stream);
    stream->window = bench_map(arguments[WINDOW].value * sizeof(struct token *));
    stream->kept = bench_map(KEPT_COUNT * sizeof(struct token *));
    thread->data = stream;
}

BENCH_INLINE uint32_t token_length_draw(uint32_t *state)
{
    uint32_t kind = bench_random_below(state, 5);
    uint32_t r = bench_random(state) >> 16;
    return kind < 2 ? 1 + (r & 1) : kind < 4 ? 2 + (r & 15) : 1 + (r & 63);
}

BENCH_INLINE struct token *token_new(uint64_t position, uint32_t *state,
                                     struct bench_latency *latency)
{
    uint32_t length = token_length_draw(state);
    unsigned char letter = (unsigned char)('a' + (position & 15));
    struct token *token = bench_malloc(latency, sizeof *token + length);
    token->position = position;
    token->length = length;
    token->sum = 2u * letter;
    memset(token->text, letter, length);
    return token;
}

/* What the parser does with it, before it goes or stays. */
BENCH_INLINE void token_read(const struct token *token)
{
    if (token->sum != (uint32_t)token->text[0] + token->text[token->length - 1]) {
        bench_fail_run("a token has changed while it waited.");
    }
}

BENCH_INLINE void stream_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct stream *stream = thread->data;
    uint64_t token_count = arguments[TOKENS].value;
    size_t window_count = arguments[WINDOW].value;
    uint32_t state = thread->seed;
    size_t at = 0;
    for (uint64_t i = 0; i < token_count; i++) {
        struct token *oldest = stream->window[at];
        if (oldest != NULL) {
            token_read(oldest);
            if (oldest->position % KEPT_ONE_IN == 0) {
                struct token **place = &stream->kept[stream->kept_count++ % KEPT_COUNT];
                struct token *leaving = *place;
                *place = oldest;
                oldest = leaving;
            }
            if (oldest != NULL) {
                bench_free(latency, oldest);
            }
        }
        stream->window[at] = token_new(i, &state, latency);
        at = at + 1 == window_count ? 0 : at + 1;
    }
    thread->operations = 2 * token_count;
}

BENCH_MEASURE(stream_measure, stream_run)

static void stream_drain(struct bench_thread *thread)
{
    struct stream *stream = thread->data;
    for (uint64_t i = 0; i < arguments[WINDOW].value; i++) {
        free(stream->window[i]);
    }
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        free(stream->kept[i]);
    }
}

BENCH_MAIN(stream_prepare, stream_measure, stream_drain)
