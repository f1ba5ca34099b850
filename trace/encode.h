/* SPDX-License-Identifier: MIT */
/* encode.h: packs the events of one lane into a frame. Uses only the memory it is given, because
 * it runs inside malloc. */
#ifndef TRACE_ENCODE_H
#define TRACE_ENCODE_H

#include "format.h"

#define ENCODE_TABLE_SIZE (2 * TRACE_EVENTS_MAX)
#define ENCODE_COLUMN_MAX (TRACE_EVENTS_MAX * 12)
#define ENCODE_WORKSPACE (1536u << 10) /* of zstd; it touches little of it */

struct encode_place {
    uint64_t address;
    uint32_t event; /* number from 1 on; 0: the entry is empty */
};

struct encoder {
    struct encode_place places[ENCODE_TABLE_SIZE];
    uint16_t shape_table[ENCODE_TABLE_SIZE]; /* index from 1 on */
    uint64_t shapes[TRACE_EVENTS_MAX];
    uint64_t last_size[TRACE_EVENTS_MAX];
    uint64_t guesses[TRACE_GUESSES];
    uint8_t columns[TRACE_COLUMNS][ENCODE_COLUMN_MAX];
    uint32_t column_bytes[TRACE_COLUMNS];
    uint32_t shape_count;
    uint32_t last_thread; /* that of the last event packed */
    void *packer;         /* zstd's context, inside `workspace` */
    uint8_t output[sizeof(struct trace_frame) + TRACE_COLUMNS * ENCODE_COLUMN_MAX + TRACE_ALIGNMENT]
        __attribute__((aligned(TRACE_ALIGNMENT)));
    uint8_t workspace[ENCODE_WORKSPACE] __attribute__((aligned(64)));
};

/* Packs `count` events, at most TRACE_EVENTS_MAX. `*frame` holds what only the caller knows:
 * lane, thread of the first event, threads, missed, ms, stamp, resident. Returns the number of
 * bytes in `output`. */
size_t encode_events(struct encoder *encoder, const struct trace_event *events, uint32_t count,
                     const struct trace_frame *frame);

/* Makes a frame of another type around `payload`. Returns the number of bytes in `output`. */
size_t encode_frame(struct encoder *encoder, enum trace_frame_type type, const void *payload,
                    uint32_t bytes);

#endif
