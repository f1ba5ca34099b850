/* SPDX-License-Identifier: MIT */
/* decode.h: opens a trace file and unpacks its frames. Trusts nothing that stands in the file. */
#ifndef TRACE_DECODE_H
#define TRACE_DECODE_H

#include "format.h"

struct trace_file {
    const unsigned char *bytes;
    size_t length;
    struct trace_header header;
    const struct trace_frame **frames; /* the whole ones, in the order of the file */
    size_t frame_count;
    uint32_t threads;
    uint32_t lanes; /* the largest number of one */
    uint64_t calls;
    uint64_t missed;
    size_t cut_at;        /* the file ends inside a frame that starts here; 0: it does not */
    struct trace_end end; /* of the frame END; threads 0: there is none */
};

/* Exit statuses, as of all tools (docs/observability/README.md): hakmem failed; the file cannot be
 * used. */
#define STATUS_FAILED 125
#define STATUS_CANNOT 126

/* Opens and checks it. NULL, or one sentence that says what is wrong, after the name. */
const char *trace_open(struct trace_file *file, const char *name);
/* Puts question marks for what a terminal obeys, and for what ends a string of JSON. */
void trace_make_plain(char *text);
void trace_close(struct trace_file *file);

static inline const unsigned char *frame_payload(const struct trace_frame *frame)
{
    return (const unsigned char *)(frame + 1);
}

/* What one frame is unpacked into. */
struct unpacked {
    uint8_t columns[TRACE_COLUMNS][TRACE_EVENTS_MAX * 12];
    uint64_t shapes[TRACE_EVENTS_MAX];
    uint64_t last_size[TRACE_EVENTS_MAX];
    uint64_t guesses[TRACE_GUESSES];
    void *unpacker; /* zstd's context */
};

/* Unpacks a frame of events. False: its content makes no sense. */
bool frame_unpack(struct unpacked *unpacked, const struct trace_frame *frame,
                  struct trace_event *events);

/* From the heap, zeroed; NULL: no memory. */
struct unpacked *unpacked_new(void);
void unpacked_free(struct unpacked *unpacked);

#endif
