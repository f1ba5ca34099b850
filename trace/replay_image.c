/* SPDX-License-Identifier: MIT */
/* replay_image.c: see replay_image.h. Two walks: the first finds the peak and the last step of each
 * thread, the second writes the operations. */
#define _GNU_SOURCE
#include "replay_image.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commands.h"
#include "remarks.h"

struct list {
    struct op *ops;
    size_t count, room;
    uint32_t slots;
    uint32_t *free_slots;
    size_t free_count, free_room;
    uint64_t steps_left;
    uint32_t number; /* in the image, from 0 on in the order of first steps */
    bool started;
};

struct maker {
    struct list *lists; /* of the trace's threads */
    uint32_t threads;   /* started */
    uint32_t *order;    /* their indices by number */
    uint32_t *ended;    /* not joined yet */
    uint32_t ended_count;
    uint32_t shared_slots;
    uint32_t last; /* thread of the last step */
    uint64_t calls, skipped, peak_threads;
    struct walk_repairs repairs;
};

static void *grow(void *memory, size_t *room, size_t needed, size_t size)
{
    if (needed > *room) {
        *room = *room < 256 ? 256 : 2 * *room;
        memory = need_memory(realloc(memory, *room * size));
    }
    return memory;
}

/* --- slots and operations --- */

static uint64_t op_add(struct list *list, unsigned kind, unsigned align_log2, uint64_t size,
                       uint32_t in, uint32_t out)
{
    list->ops = grow(list->ops, &list->room, list->count + 1, sizeof *list->ops);
    list->ops[list->count] =
        (struct op){.shape = trace_shape(size, kind, align_log2), .in = in, .out = out};
    return list->count++;
}

static uint32_t slot_take(struct list *list)
{
    return list->free_count != 0 ? list->free_slots[--list->free_count] : list->slots++;
}

static void slot_give(struct list *list, uint32_t slot)
{
    list->free_slots =
        grow(list->free_slots, &list->free_room, list->free_count + 1, sizeof(uint32_t));
    list->free_slots[list->free_count++] = slot;
}

/* The slot from which `thread` takes a block. From another thread: that one's operation is changed
 * to put it into a shared slot. */
static uint32_t slot_leave(struct maker *maker, const struct block *block, uint32_t writer,
                           uint32_t thread)
{
    struct list *list = &maker->lists[writer];
    uint32_t slot = (uint32_t)block->user;
    if (writer != thread) {
        slot_give(list, slot);
        slot = OP_SHARED | maker->shared_slots++;
        list->ops[block->user_op].out = slot;
    } else {
        slot_give(list, slot);
    }
    return slot;
}

/* Keeps room for what the program will have touched, which the trace says later. */
static void touch_add(struct list *list, uint64_t size)
{
    if (size >= TRACE_LARGE_MIN) {
        op_add(list, OP_TOUCH, 0, size, OP_NO_SLOT, OP_NO_SLOT);
    }
}

static void add_step(struct maker *maker, const struct step *step, uint32_t writer)
{
    uint32_t thread = step->thread - 1, in;
    struct list *list = &maker->lists[thread];
    struct block *block = step->block;
    maker->calls++;
    switch (step->type) {
    case STEP_BIRTH:
        block->user = slot_take(list);
        block->user_op = op_add(list, step->kind == KIND_REALLOC ? KIND_MALLOC : step->kind,
                                step->align_log2, step->size, OP_NO_SLOT, (uint32_t)block->user);
        touch_add(list, step->size);
        break;
    case STEP_RESIZE:
        in = slot_leave(maker, block, writer, thread);
        block->user = slot_take(list);
        block->user_op = op_add(list, KIND_REALLOC, 0, step->size, in, (uint32_t)block->user);
        touch_add(list, step->size);
        break;
    case STEP_END:
        in = slot_leave(maker, block, writer, thread);
        op_add(list, step->kind == KIND_REALLOC ? KIND_FREE : step->kind, 0, 0, in, OP_NO_SLOT);
        break;
    case STEP_NULL:
        op_add(list, step->kind, 0, 0, OP_NO_SLOT, OP_NO_SLOT);
        break;
    case STEP_TOUCHED:
        maker->calls--;
        if (block->size >= TRACE_LARGE_MIN) {
            struct op *touch = &maker->lists[writer].ops[block->user_op + 1];
            uint64_t bytes = step->size < block->size ? step->size : block->size;
            touch->shape = trace_shape(bytes, OP_TOUCH, 0);
        }
        break;
    case STEP_LOST:
        op_add(list, KIND_FREE, 0, 0, slot_leave(maker, block, writer, thread), OP_NO_SLOT);
        break;
    case STEP_FAILED:
    case STEP_FOREIGN:
        maker->calls--;
        maker->skipped++;
        break;
    }
}

/* --- threads --- */

static void start_thread(struct maker *maker, uint32_t thread)
{
    struct list *list = &maker->lists[thread], *parent = &maker->lists[maker->last];
    uint32_t kept = 0;
    list->started = true;
    list->number = maker->threads;
    maker->order[maker->threads++] = thread;
    if (list->number == 0) {
        return; /* the main thread */
    }
    for (uint32_t i = 0; i < maker->ended_count; i++) {
        if (maker->ended[i] != maker->last) {
            op_add(parent, OP_JOIN, 0, 0, maker->lists[maker->ended[i]].number, OP_NO_SLOT);
        } else { /* it starts the new one: somebody else joins it */
            maker->ended[kept++] = maker->ended[i];
        }
    }
    maker->ended_count = kept;
    op_add(parent, OP_SPAWN, 0, 0, list->number, OP_NO_SLOT);
}

static void add_peak(struct maker *maker, uint32_t current)
{
    maker->peak_threads = maker->threads;
    for (uint32_t i = 0; i < maker->threads; i++) {
        struct list *list = &maker->lists[maker->order[i]];
        if (list->steps_left != 0 || maker->order[i] == current) {
            op_add(list, OP_PEAK, 0, 0, OP_NO_SLOT, OP_NO_SLOT);
        }
    }
}

/* Stores the number of the call at the peak. False: the trace is damaged. */
static bool count_steps(struct maker *maker, const struct trace_file *file, uint64_t *peak_call)
{
    struct walk walk;
    struct step step;
    walk_begin(&walk, file);
    while (walk_next(&walk, &step)) {
        maker->lists[step.thread - 1].steps_left++;
    }
    *peak_call = walk.peak_call;
    return walk_end(&walk);
}

static uint64_t add_steps(struct maker *maker, const struct trace_file *file, uint64_t peak_call)
{
    struct walk walk;
    struct step step;
    uint64_t peak_bytes;
    walk_begin(&walk, file);
    while (walk_next(&walk, &step)) {
        uint32_t thread = step.thread - 1;
        struct list *list = &maker->lists[thread];
        if (!list->started) {
            start_thread(maker, thread);
        }
        add_step(maker, &step, step.writer - 1);
        list->steps_left--;
        if (walk.calls == peak_call && (step.type == STEP_BIRTH || step.type == STEP_RESIZE)) {
            add_peak(maker, thread);
        }
        if (list->steps_left == 0 && list->number != 0) {
            maker->ended[maker->ended_count++] = thread;
        }
        maker->last = thread;
    }
    peak_bytes = walk.peak_bytes;
    maker->repairs = walk.repairs;
    walk_end(&walk);
    return peak_bytes;
}

/* --- the file --- */

static bool write_all(int descriptor, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes != 0) {
        ssize_t written = write(descriptor, at, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

static bool write_image(int descriptor, const struct maker *maker, uint64_t peak_bytes,
                        struct replay_image *head)
{
    size_t bytes = sizeof(struct replay_image) + maker->threads * sizeof(struct op_list);
    struct replay_image *image = need_memory(calloc(1, bytes));
    *image = (struct replay_image){
        .bytes = bytes,
        .threads = maker->threads,
        .shared_slots = maker->shared_slots,
        .peak_threads = maker->peak_threads,
        .calls = maker->calls,
        .skipped = maker->skipped,
        .peak_bytes = peak_bytes,
        .repairs = maker->repairs,
    };
    for (uint32_t i = 0; i < maker->threads; i++) {
        const struct list *list = &maker->lists[maker->order[i]];
        image->lists[i] = (struct op_list){image->bytes, list->count, list->slots};
        image->bytes += list->count * sizeof(struct op);
    }
    *head = *image;
    bool fine = write_all(descriptor, image, bytes);
    for (uint32_t i = 0; i < maker->threads && fine; i++) {
        const struct list *list = &maker->lists[maker->order[i]];
        fine = write_all(descriptor, list->ops, list->count * sizeof(struct op));
    }
    free(image);
    return fine;
}

int image_make(struct trace_file *file, const char *name, const char *target,
               struct replay_image *head)
{
    const char *problem = trace_open(file, name);
    if (problem != NULL) {
        remarks_say("%s %s", name, problem);
        return -STATUS_CANNOT;
    }
    size_t threads = (size_t)file->threads + 1;
    struct maker maker = {
        .lists = need_memory(calloc(threads, sizeof(struct list))),
        .order = need_memory(calloc(threads, sizeof(uint32_t))),
        .ended = need_memory(calloc(threads, sizeof(uint32_t))),
    };
    uint64_t peak_call;
    int descriptor = -STATUS_CANNOT;
    bool whole = count_steps(&maker, file, &peak_call);
    uint64_t peak_bytes = whole ? add_steps(&maker, file, peak_call) : 0;
    if (whole && maker.threads == 0) {
        remarks_say("replay: there are no calls in the trace");
    } else if (whole) {
        descriptor = target == NULL ? memfd_create("hakmem-replay", MFD_CLOEXEC)
                                    : open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (descriptor < 0 || !write_image(descriptor, &maker, peak_bytes, head)) {
            remarks_say("cannot write %s: %s", target != NULL ? target : "the operations",
                        strerror(errno));
            if (descriptor >= 0) {
                close(descriptor);
            }
            descriptor = -STATUS_FAILED;
        }
    }
    for (uint32_t i = 0; i < file->threads; i++) {
        free(maker.lists[i].ops);
        free(maker.lists[i].free_slots);
    }
    free(maker.lists);
    free(maker.order);
    free(maker.ended);
    return descriptor;
}

int image_write(const char *name, const char *target)
{
    struct trace_file file;
    struct replay_image head;
    int output = image_make(&file, name, target, &head);
    if (output >= 0) {
        remarks_print_repairs(stderr, &file, &head.repairs);
        printf("{\"program\":\"%s\",\"threads\":%" PRIu64 ",\"calls\":%" PRIu64 "}\n",
               file.header.program, head.threads, head.calls);
    }
    trace_close(&file);
    return output >= 0 ? 0 : -output;
}
