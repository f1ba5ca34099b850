/* SPDX-License-Identifier: MIT */
/* load.h: what the parts of the load generator share: load.c (command line, phases, latencies) and
 * load_protocols.c (what is asked and when an answer is whole). All of it is the one thread's.
 */
#ifndef LAB_LOAD_H
#define LAB_LOAD_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* ppoll, memmem: also with -std=c17 */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOAD_TARGETS_MAX = 8,
    LOAD_ANSWER_MAX = 1 << 20,
    LOAD_REQUEST_MAX = 1 << 16,
    LOAD_CLOSES = 2
};

/* Prints one sentence and ends with status 1. */
_Noreturn void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same numbers for the same seed. */
struct draw {
    uint64_t state;
};
uint64_t draw_next(struct draw *draw);
/* From 0 to `count` - 1. */
uint32_t draw_below(struct draw *draw, uint32_t count);

/* What the requests are made from. */
struct recipe {
    const char *targets[LOAD_TARGETS_MAX]; /* paths or queries; {n} becomes a number below `keys` */
    uint32_t target_count;
    uint64_t keys;
    bool is_burst; /* larger values, that are soon of no use */
};

struct protocol {
    const char *name;
    bool is_datagram;
    /* Greets a new connection; false if the server does not accept it. NULL: nothing to say. */
    bool (*greet)(int socket, unsigned number);
    /* Writes a request to `text` and returns its length. */
    size_t (*ask)(char *text, const struct recipe *recipe, struct draw *draw);
    /* 1: the answer is whole, LOAD_CLOSES: and the server closes the connection, 0: more must come,
     * -1: it is an error. */
    int (*judge)(const char *text, size_t length);
};

/* NULL if there is none of that name. */
const struct protocol *protocol_find(const char *name);

#endif
