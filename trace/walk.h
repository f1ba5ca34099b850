/* SPDX-License-Identifier: MIT */
/* walk.h: goes through a trace in the order of time, all threads together, and says of each call
 * which block it is about. The summary and the replay are made from these steps.
 *
 * Invariant  a block is born and ends once, and no two live blocks have one address, whatever calls
 *            the trace lacks: the walk leaves out ends without a birth, and adds STEP_LOST. */
#ifndef TRACE_WALK_H
#define TRACE_WALK_H

#include "decode.h"

enum step_type {
    STEP_BIRTH,
    STEP_RESIZE, /* realloc of a block */
    STEP_END,
    STEP_FAILED,  /* no memory was given */
    STEP_NULL,    /* free(NULL) */
    STEP_FOREIGN, /* the end of a block that the trace does not know */
    STEP_TOUCHED, /* no call: block->touched is known now */
    STEP_LOST     /* no call: the block must have ended by now, but its end is not in the trace */
};

/* What the walk mends where calls are missing. A trace of a process that ended in order needs none
 * of it; that of a fork's child knows nothing of the blocks from before the fork. */
struct walk_repairs {
    uint64_t frees;    /* of unknown blocks: STEP_FOREIGN */
    uint64_t reallocs; /* of unknown blocks: STEP_BIRTH */
    uint64_t ends;     /* STEP_LOST */
};

struct block {
    uint64_t address;
    uint64_t size;
    uint64_t shape;       /* of its birth */
    uint64_t birth_call;  /* number of the call, from 1 on */
    uint64_t birth_bytes; /* given out before it */
    uint64_t touched;     /* at its last resize or its end */
    uint64_t user;        /* the caller's, as the next */
    uint64_t user_op;
    struct block *older; /* of the recycled ones */
    uint32_t birth_thread;
    uint32_t last_thread; /* that resized it, else birth_thread */
};

struct step {
    enum step_type type;
    unsigned kind;
    unsigned align_log2;
    uint32_t thread; /* from 1 on */
    uint32_t writer; /* thread that last allocated or resized the block before this step */
    uint64_t shape;
    uint64_t size;         /* asked for */
    uint64_t old_size;     /* of a resize */
    struct block *block;   /* valid until the next step if this one ends it */
    uint64_t reused_after; /* birth: calls since the address ended; 0: never used before */
};

struct walk {
    const struct trace_file *file;
    struct unpacked *unpacked;
    struct cursor *cursors; /* of each lane */
    uint32_t *heap;         /* lanes with events left, smallest stamp first */
    uint32_t heap_size;
    struct place *places; /* hash table: address -> block */
    size_t place_count, place_room;
    struct block *recycled;
    struct block *ended;  /* by the last step */
    uint64_t calls;       /* so far, this one included */
    uint64_t given_bytes; /* births and growths so far */
    uint64_t live_bytes, live_blocks;
    uint64_t peak_bytes, peak_blocks, peak_call;
    uint32_t ms; /* of the last step, since the recorder's start, about; 0: unknown */
    /* The same of a stamp: zero_ms + stamp_ms * stamp. stamp_ms 0: unknown */
    double zero_ms, stamp_ms;
    struct walk_repairs repairs;
    bool damaged; /* a frame's content makes no sense; the walk ended there */
};

/* Returns `memory`. NULL: ends the program, as all here do that find no memory. */
void *need_memory(void *memory);

void walk_begin(struct walk *walk, const struct trace_file *file);
/* False: that was the last step. */
bool walk_next(struct walk *walk, struct step *step);
/* False, after a sentence: the trace is damaged. */
bool walk_end(struct walk *walk);

#endif
