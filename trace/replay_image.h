/* SPDX-License-Identifier: MIT */
/* replay_image.h: a trace as a list of operations for each thread, in a file that replaying
 * processes map: it is made once, and costs them no memory of their own.
 *
 * A block is a slot. A slot of a thread holds a block that this thread allocates and frees, and is
 * used again. A shared slot holds one block that goes from one thread to another, once: who takes
 * it waits until it is there. Nothing else orders the threads, but:
 *
 *   SPAWN  starts a thread, where the trace saw its first call after a call of this one
 *   JOIN   before a SPAWN: waits for threads that had ended by then in the trace
 *   PEAK   where the trace had the most live bytes: all threads meet, and memory is measured
 *
 * All of these follow the order of the trace, so no two threads wait for each other. */
#ifndef TRACE_REPLAY_IMAGE_H
#define TRACE_REPLAY_IMAGE_H

#include "walk.h"

/* Beyond the kinds of trace_kind; births and ends keep theirs. */
enum op_kind {
    OP_SPAWN = KIND_COUNT, /* in: thread */
    OP_JOIN,               /* in: thread */
    OP_PEAK,
    OP_TOUCH, /* after a large birth or resize: size is what the program touched */
};

struct op {
    uint64_t shape; /* trace_shape(size, kind, align_log2) */
    uint32_t in;    /* slot of the block that ends or is resized */
    uint32_t out;   /* slot of the block that is born or was resized */
};
#define OP_NO_SLOT UINT32_MAX
#define OP_SHARED (UINT32_C(1) << 31) /* the slot is a shared one */

struct op_list {
    uint64_t offset; /* of its ops in the image, bytes */
    uint64_t count;
    uint64_t slots; /* of the thread */
};

struct replay_image {
    uint64_t bytes;
    uint64_t threads; /* number 0 runs in the main thread */
    uint64_t shared_slots;
    uint64_t peak_threads; /* that were started before the peak, all of them arrive there */
    uint64_t calls;        /* that the operations do */
    uint64_t skipped;      /* failed, or about blocks from before the trace */
    uint64_t peak_bytes;   /* live, as recorded */
    struct walk_repairs repairs;
    struct op_list lists[];
};

/* Opens the trace `name` and makes its image in the file `target`, or in one without a name (NULL).
 * Returns its descriptor, or minus the exit status after a sentence on standard error. */
int image_make(struct trace_file *file, const char *name, const char *target,
               struct replay_image *head);

#endif
