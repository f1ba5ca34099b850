/* SPDX-License-Identifier: MIT */
/* collect.h: a sink that keeps what a report, a profile or a heap map writes, as one string. */
#ifndef TESTS_COLLECT_H
#define TESTS_COLLECT_H

#include "support.h"

struct collected {
    size_t length;
    char text[4 << 20]; /* zero-terminated */
};

/* A hak_report_sink; `into` is a struct collected. */
static inline void collect(void *into, const char *piece, size_t size)
{
    struct collected *collected = into;
    REQUIRE_SIZE(collected->length + size, <, sizeof collected->text);
    memcpy(collected->text + collected->length, piece, size);
    collected->length += size;
    collected->text[collected->length] = '\0';
}

static inline const char *collect_report(struct collected *into, enum hak_report_format format)
{
    into->length = 0;
    hak_report(format, collect, into);
    return into->text;
}

#endif
