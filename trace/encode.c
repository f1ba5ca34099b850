/* SPDX-License-Identifier: MIT */
/* encode.c: the columns of format.h, written; see there. */
#include "encode.h"

#include <string.h>

#if TRACE_ZSTD
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#define ENCODE_LEVEL 1
#endif

static void column_put(struct encoder *encoder, enum trace_column column, uint64_t value)
{
    uint8_t *at = encoder->columns[column] + encoder->column_bytes[column], *start = at;
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    encoder->column_bytes[column] += (uint32_t)(at - start);
}

static uint32_t table_slot(uint64_t key)
{
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) % ENCODE_TABLE_SIZE;
}

/* The index of `shape` in this frame. */
static uint32_t shape_index(struct encoder *encoder, uint64_t shape, uint32_t *count)
{
    uint32_t slot = table_slot(shape), index;
    for (; (index = encoder->shape_table[slot]) != 0; slot = (slot + 1) % ENCODE_TABLE_SIZE) {
        if (encoder->shapes[index - 1] == shape) {
            return index - 1;
        }
    }
    index = (*count)++;
    encoder->shape_table[slot] = (uint16_t)(index + 1);
    encoder->shapes[index] = shape;
    encoder->last_size[index] = UINT64_MAX;
    return index;
}

/* How many events ago the address came last, 0 if never; from now on this event is the last. */
static uint32_t place_distance(struct encoder *encoder, uint64_t address, uint32_t event)
{
    uint32_t slot = table_slot(address >> 3), distance;
    struct encode_place *place;
    for (; (place = &encoder->places[slot])->event != 0; slot = (slot + 1) % ENCODE_TABLE_SIZE) {
        if (place->address == address) {
            distance = event - place->event;
            place->event = event;
            return distance;
        }
    }
    *place = (struct encode_place){.address = address, .event = event};
    return 0;
}

static void put_shapes(struct encoder *encoder, uint32_t count)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t site = trace_site(encoder->shapes[i]);
        column_put(encoder, COLUMN_SHAPES, trace_zigzag(site - last));
        column_put(encoder, COLUMN_SHAPES, trace_kind(encoder->shapes[i]));
        column_put(encoder, COLUMN_SHAPES, trace_align_log2(encoder->shapes[i]));
        last = site;
    }
}

static void put_columns(struct encoder *encoder, const struct trace_event *events, uint32_t count,
                        struct trace_frame *frame)
{
    uint64_t stamp = 0;
    frame->unstamped = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct trace_event *event = &events[i];
        unsigned kind = trace_kind(event->shape);
        uint64_t size = event->size < TRACE_SIZE_MAX ? event->size : TRACE_SIZE_MAX;
        uint32_t index = shape_index(encoder, event->shape, &frame->shapes), distance;
        column_put(encoder, COLUMN_SHAPE, index);
        frame->calls += trace_is_call(kind);
        if (kind == KIND_THREAD) {
            encoder->last_thread = (uint32_t)event->size;
        }
        if (trace_has_size(kind)) {
            column_put(encoder, COLUMN_SIZE, size == encoder->last_size[index] ? 0 : size + 1);
            encoder->last_size[index] = size;
        }
        distance = place_distance(encoder, event->address, i + 1);
        column_put(encoder, COLUMN_PLACE, distance);
        if (distance == 0) {
            uint64_t *guess = &encoder->guesses[trace_guess(kind, size)];
            column_put(encoder, COLUMN_ADDRESS, trace_zigzag(event->address - *guess));
            *guess = event->address;
        }
        if (event->stamp != 0 || frame->unstamped != count) {
            if (frame->unstamped == count) {
                frame->unstamped = i;
                frame->first_stamp = stamp = event->stamp;
            }
            /* A clock that steps back costs the order of two events, not the file. */
            column_put(encoder, COLUMN_STAMP, event->stamp > stamp ? event->stamp - stamp : 0);
            stamp = event->stamp > stamp ? event->stamp : stamp;
        }
    }
    encoder->shape_count = frame->shapes;
    put_shapes(encoder, frame->shapes);
}

/* Packs a column to `target`; returns its bytes there. As many as before: it is stored. */
static uint32_t pack_column(struct encoder *encoder, uint8_t *target, enum trace_column column)
{
    const uint8_t *source = encoder->columns[column];
    uint32_t bytes = encoder->column_bytes[column];
#if TRACE_ZSTD
    if (encoder->packer == NULL) {
        encoder->packer = ZSTD_initStaticCCtx(encoder->workspace, sizeof encoder->workspace);
        ZSTD_CCtx_setParameter(encoder->packer, ZSTD_c_compressionLevel, ENCODE_LEVEL);
        ZSTD_CCtx_setParameter(encoder->packer, ZSTD_c_contentSizeFlag, 0);
        ZSTD_CCtx_setParameter(encoder->packer, ZSTD_c_format, ZSTD_f_zstd1_magicless);
    }
    if (encoder->packer != NULL && bytes > 16) {
        size_t packed = ZSTD_compress2(encoder->packer, target, ENCODE_COLUMN_MAX, source, bytes);
        if (!ZSTD_isError(packed) && packed < bytes) {
            return (uint32_t)packed;
        }
    }
#endif
    memcpy(target, source, bytes);
    return bytes;
}

/* Adds the header to a payload that lies behind its place in `output`. */
static size_t seal_frame(struct encoder *encoder, struct trace_frame *frame)
{
    uint8_t *end = encoder->output + sizeof *frame + frame->payload_bytes;
    memset(end, 0, TRACE_ALIGNMENT);
    frame->payload_bytes = (uint32_t)trace_padded(frame->payload_bytes);
    frame->magic = TRACE_FRAME_MAGIC;
    frame->codec = TRACE_ZSTD ? CODEC_ZSTD : CODEC_STORED;
    frame->checksum = 0;
    frame->checksum = trace_checksum(trace_checksum(0, frame, sizeof *frame),
                                     encoder->output + sizeof *frame, frame->payload_bytes);
    memcpy(encoder->output, frame, sizeof *frame);
    return sizeof *frame + frame->payload_bytes;
}

size_t encode_events(struct encoder *encoder, const struct trace_event *events, uint32_t count,
                     const struct trace_frame *given)
{
    struct trace_frame frame = {
        .type = FRAME_EVENTS,
        .lane = given->lane,
        .thread = given->thread,
        .threads = given->threads,
        .events = count,
        .missed = given->missed,
        .ms = given->ms,
        .stamp = given->stamp,
        .resident = given->resident,
    };
    uint8_t *start = encoder->output + sizeof frame, *at = start;
    encoder->last_thread = given->thread;
    memset(encoder->places, 0, sizeof encoder->places);
    memset(encoder->shape_table, 0, sizeof encoder->shape_table);
    memset(encoder->guesses, 0, sizeof encoder->guesses);
    memset(encoder->column_bytes, 0, sizeof encoder->column_bytes);
    put_columns(encoder, events, count, &frame);
    for (enum trace_column column = 0; column < TRACE_COLUMNS; column++) {
        frame.column_bytes[column] = encoder->column_bytes[column];
        frame.stored_bytes[column] = pack_column(encoder, at, column);
        at += frame.stored_bytes[column];
    }
    frame.payload_bytes = (uint32_t)(at - start);
    return seal_frame(encoder, &frame);
}

size_t encode_frame(struct encoder *encoder, enum trace_frame_type type, const void *payload,
                    uint32_t bytes)
{
    struct trace_frame frame = {.type = (uint8_t)type, .payload_bytes = bytes};
    memcpy(encoder->output + sizeof frame, payload, bytes);
    return seal_frame(encoder, &frame);
}
