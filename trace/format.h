/* SPDX-License-Identifier: MIT */
/* format.h: the trace file, which the recorder writes and the reading tools read.
 *
 * A trace is one header and then frames. Each frame is written by one write(2) to a file opened
 * with O_APPEND, so frames of several threads never mix. A frame needs nothing of earlier frames,
 * so a file that ends anywhere is readable up to its last whole frame. All numbers are
 * little-endian. "varint": 7 bits a byte, low ones first, the top bit says that more follow.
 *
 *   +--------------------+---------------------+---------------------+----
 *   | trace_header       | trace_frame payload | trace_frame payload | ...
 *   +--------------------+---------------------+---------------------+----
 *
 * Frame EVENTS: up to TRACE_EVENTS_MAX events of one lane in the order of time. A lane belongs to
 * one thread at a time; when that has ended, another one may take it, which an event THREAD says.
 * The payload has TRACE_COLUMNS columns, each packed on its own (zstd, or stored as it is where
 * packing does not make it smaller):
 *
 *   SHAPES     the different (site, kind, alignment) of the frame: site as a varint of its signed
 *              distance to the one before, then a byte kind, a byte log2 of the alignment
 *   SHAPE      for each event: index of its shape, varint
 *   SIZE       for each event with a size: 0, the size of the last event of this shape; else
 *              size + 1, varint
 *   PLACE      for each event: how many events ago (in the frame) the same address came last;
 *              0: not in this frame, the address stands in ADDRESS
 *   ADDRESS    address as a varint of its signed distance to a guess: the last address of this
 *              column with the same hash of its size (trace_guess)
 *   STAMP      for each event from number `unstamped` on: distance to the stamp before, varint
 *
 * The order of threads. An event of a block's birth has a stamp taken after the allocator
 * returned, an event of a block's end one taken before the allocator was called. So if two threads
 * get the same address one after the other, the stamp of the end is smaller than the stamp of the
 * next birth, and sorting by stamps gives an order in which every address is born and ends in
 * turn. trace/README.md has the argument. Events without a stamp come before all others: they
 * were made while the process had one thread.
 *
 * Frame MODULES: lines "START-END ADDRESS PATH" (hexadecimal) of executable mappings. ADDRESS is
 * that of the start in the file's program headers. The lines hold for the frames that follow.
 * Among them are lines "build-id ID PATH" of these files, if they have one. Frame END: trace_end;
 * the process ended in order. */
#ifndef TRACE_FORMAT_H
#define TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC "HAKTRACE"
#define TRACE_VERSION 2
#define TRACE_FRAME_MAGIC 0x4d415246u /* "FRAM" */
#define TRACE_EVENTS_MAX 4096
#define TRACE_PAYLOAD_MAX (1u << 20)
#define TRACE_MODULES_MAX (256u << 10)

/* The residency of blocks from this size on is recorded; replay touches smaller ones wholly. */
#define TRACE_LARGE_MIN (128u << 10)

/* Larger requests fail everywhere. */
#define TRACE_SIZE_MAX (UINT64_C(1) << 47)

enum trace_frame_type { FRAME_EVENTS = 1, FRAME_MODULES = 2, FRAME_END = 3 };

enum trace_codec { CODEC_STORED = 0, CODEC_ZSTD = 1 };

/* Events. Births first, KIND_REALLOC last of them; KIND_REALLOC follows a KIND_REALLOC_FROM. */
enum trace_kind {
    KIND_MALLOC,
    KIND_CALLOC,
    KIND_REALLOC_NULL, /* realloc of NULL */
    KIND_ALIGNED_ALLOC,
    KIND_POSIX_MEMALIGN,
    KIND_MEMALIGN, /* valloc and pvalloc as well */
    KIND_NEW,
    KIND_NEW_ARRAY,
    KIND_NEW_ALIGNED,
    KIND_REALLOC, /* address 0: it failed, the block stays */
    KIND_FREE,
    KIND_FREE_SIZED,
    KIND_DELETE,
    KIND_DELETE_SIZED,
    KIND_REALLOC_FROM, /* the block that the next event of the thread resizes */
    KIND_TOUCHED,      /* so many bytes of the block are resident; it ends or is resized now */
    KIND_THREAD,       /* the events that follow are of the thread of that number */
    KIND_COUNT
};

static inline bool trace_is_birth(unsigned kind)
{
    return kind <= KIND_REALLOC;
}

/* Births have the size asked for, TOUCHED a number of bytes, THREAD the number. */
static inline bool trace_has_size(unsigned kind)
{
    return kind <= KIND_REALLOC || kind == KIND_TOUCHED || kind == KIND_THREAD;
}

/* A call of the program; what remains explains others. */
static inline bool trace_is_call(unsigned kind)
{
    return kind < KIND_REALLOC_FROM;
}

/* One event in memory. */
struct trace_event {
    uint64_t stamp; /* 0: none */
    uint64_t address;
    uint64_t size;
    uint64_t shape; /* site: 48 bits, kind: 8, log2 of the alignment: 8 */
};

#define TRACE_SITE_BITS 48

static inline uint64_t trace_shape(uint64_t site, unsigned kind, unsigned align_log2)
{
    return (site & ((UINT64_C(1) << TRACE_SITE_BITS) - 1)) | (uint64_t)kind << TRACE_SITE_BITS |
           (uint64_t)align_log2 << (TRACE_SITE_BITS + 8);
}

static inline uint64_t trace_site(uint64_t shape)
{
    return shape & ((UINT64_C(1) << TRACE_SITE_BITS) - 1);
}

static inline unsigned trace_kind(uint64_t shape)
{
    return (unsigned)(shape >> TRACE_SITE_BITS) & 0xff;
}

static inline unsigned trace_align_log2(uint64_t shape)
{
    return (unsigned)(shape >> (TRACE_SITE_BITS + 8));
}

struct trace_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t pid;
    uint64_t forked_from; /* pid; 0: the program was started by exec */
    uint64_t start_ns;    /* of 1970 */
    char program[16];
    uint32_t stopped_by; /* errno of the write by which recording ended early; 0: none */
    uint32_t zero;
};
_Static_assert(sizeof(struct trace_header) == 64, "no padding");

enum trace_column {
    COLUMN_SHAPES,
    COLUMN_SHAPE,
    COLUMN_SIZE,
    COLUMN_PLACE,
    COLUMN_ADDRESS,
    COLUMN_STAMP,
    TRACE_COLUMNS
};

struct trace_frame {
    uint32_t magic;
    uint8_t type;
    uint8_t codec;
    uint16_t zero;
    uint32_t payload_bytes;
    uint32_t lane;    /* from 1 on; frames of one lane are in the order of time */
    uint32_t thread;  /* of the first event, from 1 on, in the order of first calls */
    uint32_t threads; /* that the process has had so far */
    uint32_t events;
    uint32_t calls; /* of the events, those that are calls */
    uint32_t unstamped;
    uint32_t shapes;
    uint32_t missed;      /* calls that were not recorded, since the lane's frame before */
    uint32_t ms;          /* when it was written, since the recorder's start */
    uint64_t stamp;       /* when it was written; 0: no event had one yet */
    uint64_t first_stamp; /* of the event `unstamped` */
    uint64_t resident;    /* anonymous memory of the process but the recorder's, bytes */
    uint32_t column_bytes[TRACE_COLUMNS]; /* unpacked */
    uint32_t stored_bytes[TRACE_COLUMNS]; /* equal: the column is stored as it is */
    uint64_t checksum; /* trace_checksum of the frame with 0 here and the payload */
};
_Static_assert(sizeof(struct trace_frame) == 128, "no padding");

/* Payload of END. */
struct trace_end {
    uint64_t threads;
    uint64_t peak_resident; /* the largest `resident` */
};

/* Frames are padded with zeros, so that each header is aligned in a mapped file. */
#define TRACE_ALIGNMENT 8u
static inline uint64_t trace_padded(uint64_t bytes)
{
    return (bytes + TRACE_ALIGNMENT - 1) & ~(uint64_t)(TRACE_ALIGNMENT - 1);
}

/* Mixes 8 bytes at a time (the multiply and shift of MurmurHash64A). */
static inline uint64_t trace_checksum(uint64_t seed, const void *data, size_t bytes)
{
    const uint64_t multiplier = UINT64_C(0xc6a4a7935bd1e995);
    const unsigned char *at = data;
    uint64_t hash = seed ^ (bytes * multiplier), word;
    for (; bytes != 0; at += sizeof word) {
        size_t part = bytes < sizeof word ? bytes : sizeof word;
        word = 0;
        __builtin_memcpy(&word, at, part);
        bytes -= part;
        word *= multiplier;
        hash = (hash ^ word ^ word >> 47) * multiplier;
    }
    return hash ^ hash >> 47;
}

static inline uint64_t trace_zigzag(uint64_t difference)
{
    return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t trace_unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

/* Which guess of an address an event uses: births by size, since allocators place equal sizes side
 * by side; ends share one. */
#define TRACE_GUESSES 256
static inline unsigned trace_guess(unsigned kind, uint64_t size)
{
    if (!trace_is_birth(kind)) {
        return 0;
    }
    return 1 + (unsigned)(size < 2048 ? (size + 15) / 16 : 128 + (size >> 12) % 120);
}

#endif
