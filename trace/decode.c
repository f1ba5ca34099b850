/* SPDX-License-Identifier: MIT */
/* decode.c: see decode.h; the counterpart of encode.c. */
#include "decode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if TRACE_ZSTD
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#endif

#define THREADS_MAX (1u << 24)
/* Of threads at the same time: the recorder has a buffer for each. */
#define LANES_MAX (1u << 16)

/* --- the file --- */

static const char not_a_trace[] = "is not a trace of hakmem";

static const char *unreadable(void)
{
    static char text[128];
    snprintf(text, sizeof text, "cannot be read: %s", strerror(errno));
    return text;
}

/* Maps the file, with zeros behind it up to the next page. */
static const char *map_file(struct trace_file *file, const char *name)
{
    struct stat status;
    void *bytes;
    int descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return unreadable();
    }
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(descriptor);
        return "is not a file";
    }
    file->length = (size_t)status.st_size;
    if (file->length < sizeof file->header) {
        close(descriptor);
        return file->length == 0 ? "is empty" : not_a_trace;
    }
    bytes = mmap(NULL, file->length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (bytes == MAP_FAILED) {
        return unreadable();
    }
    file->bytes = bytes;
    return NULL;
}

static bool is_sound(const struct trace_frame *frame)
{
    struct trace_frame copy = *frame;
    uint64_t stored = 0, checksum;
    copy.checksum = 0;
    checksum = trace_checksum(trace_checksum(0, &copy, sizeof copy), frame_payload(frame),
                              frame->payload_bytes);
    if (checksum != frame->checksum) {
        return false;
    }
    if (frame->type != FRAME_EVENTS) {
        return frame->type != FRAME_END || frame->payload_bytes == sizeof(struct trace_end);
    }
    for (unsigned i = 0; i < TRACE_COLUMNS; i++) {
        stored += frame->stored_bytes[i];
        if (frame->column_bytes[i] > TRACE_EVENTS_MAX * 12u ||
            frame->stored_bytes[i] > frame->column_bytes[i]) {
            return false;
        }
    }
    return trace_padded(stored) == frame->payload_bytes && frame->events <= TRACE_EVENTS_MAX &&
           frame->shapes <= frame->events && frame->unstamped <= frame->events &&
           frame->lane >= 1 && frame->lane <= LANES_MAX && frame->thread >= 1 &&
           frame->thread <= frame->threads && frame->threads <= THREADS_MAX;
}

static const char *add_frame(struct trace_file *file, const struct trace_frame *frame)
{
    if ((file->frame_count & (file->frame_count - 1)) == 0) { /* a power of two: it is full */
        size_t room = file->frame_count == 0 ? 1 : 2 * file->frame_count;
        void *frames = realloc(file->frames, room * sizeof(void *)); /* NOLINT(bugprone-sizeof*) */
        if (frames == NULL) {
            return "has too many frames for the memory of this machine";
        }
        file->frames = frames;
    }
    file->frames[file->frame_count++] = frame;
    if (frame->type == FRAME_EVENTS) {
        file->calls += frame->calls;
        file->missed += frame->missed;
        file->lanes = frame->lane > file->lanes ? frame->lane : file->lanes;
        file->threads = frame->threads > file->threads ? frame->threads : file->threads;
    } else if (frame->type == FRAME_END) {
        memcpy(&file->end, frame_payload(frame), sizeof file->end);
    }
    return NULL;
}

void trace_make_plain(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != 0; at++) {
        /* In UTF-8, 0x80 to 0x9f are c2 80 to c2 9f. A quotation mark would end a string of JSON.
         */
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) {
            *at++ = '?';
            *at = '?';
        } else if (*at < 0x20 || *at == 0x7f || *at == '"' || *at == '\\') {
            *at = '?';
        }
    }
}

const char *trace_open(struct trace_file *file, const char *name)
{
    const char *problem;
    *file = (struct trace_file){0};
    problem = map_file(file, name);
    if (problem != NULL) {
        return problem;
    }
    memcpy(&file->header, file->bytes, sizeof file->header);
    file->header.program[sizeof file->header.program - 1] = 0;
    trace_make_plain(file->header.program);
    if (memcmp(file->header.magic, TRACE_MAGIC, sizeof file->header.magic) != 0) {
        return not_a_trace;
    }
    if (file->header.version != TRACE_VERSION || file->header.header_bytes != sizeof file->header) {
        return "is a trace of another version of hakmem";
    }
    for (size_t at = sizeof file->header; at < file->length;) {
        const struct trace_frame *frame = (const void *)(file->bytes + at);
        size_t left = file->length - at;
        if (left < sizeof *frame) {
            file->cut_at = at;
            break;
        }
        if (frame->magic != TRACE_FRAME_MAGIC || frame->payload_bytes > TRACE_PAYLOAD_MAX ||
            frame->payload_bytes % TRACE_ALIGNMENT != 0) {
            return "is damaged: a frame does not begin where it should";
        }
        if (left < sizeof *frame + frame->payload_bytes) {
            file->cut_at = at;
            break;
        }
        if (!is_sound(frame)) {
            return "is damaged: a frame does not match its checksum";
        }
        problem = add_frame(file, frame);
        if (problem != NULL) {
            return problem;
        }
        at += sizeof *frame + frame->payload_bytes;
    }
    return NULL;
}

void trace_close(struct trace_file *file)
{
    free(file->frames);
    if (file->bytes != NULL) {
        munmap((void *)(uintptr_t)file->bytes, file->length);
    }
    *file = (struct trace_file){0};
}

/* --- one frame --- */

struct reader {
    const uint8_t *at, *end;
};

/* A varint; a column that ends too early is read as 0, and ends `*fine`. */
static uint64_t read_number(struct reader *reader, bool *fine)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (reader->at == reader->end) {
            break;
        }
        byte = *reader->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    *fine = false;
    return 0;
}

static bool unpack_column(struct unpacked *unpacked, const uint8_t *stored, uint32_t stored_bytes,
                          enum trace_column column, uint32_t bytes, unsigned codec)
{
    if (stored_bytes == bytes) {
        memcpy(unpacked->columns[column], stored, bytes);
        return true;
    }
#if TRACE_ZSTD
    if (codec == CODEC_ZSTD) {
        if (unpacked->unpacker == NULL) {
            unpacked->unpacker = ZSTD_createDCtx();
            ZSTD_DCtx_setParameter(unpacked->unpacker, ZSTD_d_format, ZSTD_f_zstd1_magicless);
        }
        return unpacked->unpacker != NULL &&
               ZSTD_decompressDCtx(unpacked->unpacker, unpacked->columns[column], bytes, stored,
                                   stored_bytes) == bytes;
    }
#endif
    (void)codec;
    return false;
}

static bool read_shapes(struct unpacked *unpacked, uint32_t count, struct reader *reader)
{
    bool fine = true;
    uint64_t site = 0;
    for (uint32_t i = 0; i < count && fine; i++) {
        uint64_t kind, align_log2;
        site += trace_unzigzag(read_number(reader, &fine));
        kind = read_number(reader, &fine);
        align_log2 = read_number(reader, &fine);
        fine = fine && kind < KIND_COUNT && align_log2 < 64;
        unpacked->shapes[i] = trace_shape(site, (unsigned)kind, (unsigned)align_log2);
        unpacked->last_size[i] = UINT64_MAX;
    }
    return fine;
}

static uint64_t read_size(struct unpacked *unpacked, uint64_t index, struct reader *reader,
                          bool *fine)
{
    uint64_t size = read_number(reader, fine);
    if (size != 0) {
        unpacked->last_size[index] = size - 1;
        *fine = *fine && size - 1 <= TRACE_SIZE_MAX;
    }
    *fine = *fine && unpacked->last_size[index] != UINT64_MAX;
    return unpacked->last_size[index];
}

static bool read_events(struct unpacked *unpacked, const struct trace_frame *frame,
                        struct reader *readers, struct trace_event *events)
{
    bool fine = true;
    uint64_t stamp = frame->first_stamp;
    for (uint32_t i = 0; i < frame->events && fine; i++) {
        struct trace_event *event = &events[i];
        uint64_t index = read_number(&readers[COLUMN_SHAPE], &fine), distance;
        if (index >= frame->shapes) {
            return false;
        }
        *event = (struct trace_event){.shape = unpacked->shapes[index]};
        if (trace_has_size(trace_kind(event->shape))) {
            event->size = read_size(unpacked, index, &readers[COLUMN_SIZE], &fine);
        }
        distance = read_number(&readers[COLUMN_PLACE], &fine);
        if (distance > i) {
            return false;
        }
        if (distance != 0) {
            event->address = events[i - distance].address;
        } else {
            unsigned guess = trace_guess(trace_kind(event->shape), event->size);
            event->address = unpacked->guesses[guess] +=
                trace_unzigzag(read_number(&readers[COLUMN_ADDRESS], &fine));
        }
        if (i >= frame->unstamped) {
            event->stamp = stamp += read_number(&readers[COLUMN_STAMP], &fine);
        }
    }
    return fine;
}

bool frame_unpack(struct unpacked *unpacked, const struct trace_frame *frame,
                  struct trace_event *events)
{
    struct reader readers[TRACE_COLUMNS];
    const uint8_t *stored = frame_payload(frame);
    for (enum trace_column column = 0; column < TRACE_COLUMNS; column++) {
        uint32_t bytes = frame->column_bytes[column];
        if (!unpack_column(unpacked, stored, frame->stored_bytes[column], column, bytes,
                           frame->codec)) {
            return false;
        }
        stored += frame->stored_bytes[column];
        readers[column].at = unpacked->columns[column];
        readers[column].end = unpacked->columns[column] + bytes;
    }
    memset(unpacked->guesses, 0, sizeof unpacked->guesses);
    return read_shapes(unpacked, frame->shapes, &readers[COLUMN_SHAPES]) &&
           read_events(unpacked, frame, readers, events);
}

struct unpacked *unpacked_new(void)
{
    return calloc(1, sizeof(struct unpacked));
}

void unpacked_free(struct unpacked *unpacked)
{
#if TRACE_ZSTD
    ZSTD_freeDCtx(unpacked->unpacker);
#endif
    free(unpacked);
}
