/* SPDX-License-Identifier: MIT */
/* walk.c: see walk.h. A binary heap merges the lanes by their stamps; a hash table knows which
 * block is at an address. */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>

/* The events of one lane. */
struct cursor {
    const struct trace_frame **frames;
    uint32_t frame_count, frame;
    struct trace_event *events; /* NULL: the frame is not unpacked yet */
    uint32_t event, event_count;
    uint32_t thread;
    uint32_t from_ms, to_ms; /* when the frame before and this one were written */
    struct block *pending;   /* the block that the next event resizes */
};

/* An address that is or was in use. */
struct place {
    uint64_t address;    /* 0: empty */
    struct block *block; /* NULL: it is free */
    uint64_t end_call;
};

/* --- memory --- */

void *need_memory(void *memory)
{
    if (memory == NULL) {
        static const char text[] = "hakmem: not enough memory for this trace\n";
        (void)!fwrite(text, 1, sizeof text - 1, stderr);
        exit(125);
    }
    return memory;
}

static uint64_t place_hash(uint64_t address)
{
    return (address >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 24;
}

static struct place *place_slot(struct place *places, size_t room, uint64_t address)
{
    size_t at = place_hash(address) & (room - 1);
    while (places[at].address != 0 && places[at].address != address) {
        at = (at + 1) & (room - 1);
    }
    return &places[at];
}

/* The place of an address, made if it is new. */
static struct place *place_find(struct walk *walk, uint64_t address)
{
    struct place *place;
    if (2 * (walk->place_count + 1) > walk->place_room) {
        size_t room = walk->place_room == 0 ? 1024 : 2 * walk->place_room;
        struct place *places = need_memory(calloc(room, sizeof *places));
        for (size_t i = 0; i < walk->place_room; i++) {
            if (walk->places[i].address != 0) {
                *place_slot(places, room, walk->places[i].address) = walk->places[i];
            }
        }
        free(walk->places);
        walk->places = places;
        walk->place_room = room;
    }
    place = place_slot(walk->places, walk->place_room, address);
    if (place->address == 0) {
        place->address = address;
        walk->place_count++;
    }
    return place;
}

static struct block *block_new(struct walk *walk)
{
    struct block *block = walk->recycled;
    if (block != NULL) {
        walk->recycled = block->older;
    } else {
        block = need_memory(malloc(sizeof *block));
    }
    *block = (struct block){0};
    return block;
}

static void block_recycle(struct walk *walk, struct block *block)
{
    block->older = walk->recycled;
    walk->recycled = block;
}

/* --- the merge --- */

static bool is_end(const struct trace_event *event)
{
    return !trace_is_birth(trace_kind(event->shape));
}

static const struct trace_event *cursor_event(const struct cursor *cursor)
{
    return &cursor->events[cursor->event];
}

/* Equal stamps: heap_choose looks closer. */
static bool is_before(const struct walk *walk, uint32_t one, uint32_t other)
{
    const struct trace_event *a = cursor_event(&walk->cursors[one]);
    const struct trace_event *b = cursor_event(&walk->cursors[other]);
    if (a->stamp != b->stamp) {
        return a->stamp < b->stamp;
    }
    return is_end(a) != is_end(b) ? is_end(a) : one < other;
}

static void heap_sink(struct walk *walk, uint32_t at)
{
    uint32_t *heap = walk->heap, child, moved = heap[at];
    for (; (child = 2 * at + 1) < walk->heap_size; at = child) {
        if (child + 1 < walk->heap_size && is_before(walk, heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_before(walk, heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Unpacks the next frame that has events. False: there is none. */
static bool cursor_fill(struct walk *walk, struct cursor *cursor)
{
    while (cursor->frame < cursor->frame_count) {
        const struct trace_frame *frame = cursor->frames[cursor->frame++];
        if (cursor->events == NULL) {
            cursor->events = need_memory(malloc(TRACE_EVENTS_MAX * sizeof *cursor->events));
        }
        cursor->event = 0;
        cursor->event_count = frame->events;
        cursor->thread = frame->thread;
        cursor->from_ms = cursor->to_ms;
        cursor->to_ms = frame->ms > cursor->from_ms ? frame->ms : cursor->from_ms;
        if (!frame_unpack(walk->unpacked, frame, cursor->events)) {
            walk->damaged = true;
            break;
        }
        if (cursor->event_count != 0) {
            return true;
        }
    }
    free(cursor->events);
    cursor->events = NULL;
    return false;
}

static void sort_frames(struct walk *walk, const struct trace_file *file)
{
    for (size_t i = 0; i < file->frame_count; i++) {
        if (file->frames[i]->type == FRAME_EVENTS) {
            walk->cursors[file->frames[i]->lane - 1].frame_count++;
        }
    }
    for (uint32_t i = 0; i < file->lanes; i++) {
        struct cursor *cursor = &walk->cursors[i];
        cursor->frames = need_memory(malloc((cursor->frame_count + 1) * sizeof(void *)));
        cursor->frame_count = 0;
    }
    for (size_t i = 0; i < file->frame_count; i++) {
        if (file->frames[i]->type == FRAME_EVENTS) {
            struct cursor *cursor = &walk->cursors[file->frames[i]->lane - 1];
            cursor->frames[cursor->frame_count++] = file->frames[i];
        }
    }
}

/* The clock's speed, by the first and the last frame that say when they were written. */
static void calibrate(struct walk *walk)
{
    const struct trace_frame *first = NULL, *last = NULL;
    for (size_t i = 0; i < walk->file->frame_count; i++) {
        const struct trace_frame *frame = walk->file->frames[i];
        if (frame->type == FRAME_EVENTS && frame->stamp != 0) {
            first = first != NULL ? first : frame;
            last = frame;
        }
    }
    if (last != NULL && last->ms > first->ms && last->stamp > first->stamp) {
        walk->stamp_ms = (last->ms - first->ms) / (double)(last->stamp - first->stamp);
        walk->zero_ms = first->ms - walk->stamp_ms * (double)first->stamp;
    }
}

void walk_begin(struct walk *walk, const struct trace_file *file)
{
    size_t lanes = (size_t)file->lanes + 1; /* calloc(0) may give NULL */
    *walk = (struct walk){.file = file};
    walk->unpacked = need_memory(unpacked_new());
    walk->cursors = need_memory(calloc(lanes, sizeof *walk->cursors));
    walk->heap = need_memory(calloc(lanes, sizeof *walk->heap));
    sort_frames(walk, file);
    calibrate(walk);
    for (uint32_t i = 0; i < file->lanes; i++) {
        if (cursor_fill(walk, &walk->cursors[i])) {
            walk->heap[walk->heap_size++] = i;
        }
    }
    for (uint32_t i = walk->heap_size / 2; i-- > 0;) {
        heap_sink(walk, i);
    }
}

/* --- steps --- */

static void block_ends(struct walk *walk, struct block *block)
{
    walk->live_bytes -= block->size;
    walk->live_blocks--;
    walk->ended = block;
}

static void note_peak(struct walk *walk)
{
    if (walk->live_bytes > walk->peak_bytes) {
        walk->peak_bytes = walk->live_bytes;
        walk->peak_blocks = walk->live_blocks;
        walk->peak_call = walk->calls;
    }
}

static void step_birth(struct walk *walk, struct step *step, const struct trace_event *event)
{
    struct place *place = place_find(walk, event->address);
    struct block *block = block_new(walk);
    block->address = event->address;
    block->size = event->size;
    block->shape = event->shape;
    block->birth_call = walk->calls;
    block->birth_bytes = walk->given_bytes;
    block->birth_thread = block->last_thread = step->thread;
    block->touched = UINT64_MAX;
    step->type = STEP_BIRTH;
    step->block = place->block = block;
    step->reused_after = place->end_call != 0 ? walk->calls - place->end_call : 0;
    walk->given_bytes += event->size;
    walk->live_bytes += event->size;
    walk->live_blocks++;
    note_peak(walk);
}

static struct block *take_block(struct walk *walk, uint64_t address)
{
    struct place *place = place_find(walk, address);
    struct block *block = place->block;
    place->block = NULL;
    place->end_call = walk->calls;
    return block;
}

static void step_end(struct walk *walk, struct step *step, struct block *block)
{
    step->type = block != NULL ? STEP_END : STEP_FOREIGN;
    step->block = block;
    if (block != NULL) {
        block_ends(walk, block);
    } else {
        walk->repairs.frees++;
    }
}

static void step_resize(struct walk *walk, struct step *step, const struct trace_event *event,
                        struct cursor *cursor)
{
    struct block *block = cursor->pending;
    cursor->pending = NULL;
    if (event->address == 0 && event->size == 0) {
        step_end(walk, step, block);
        return;
    }
    if (event->address == 0) {
        step->type = STEP_FAILED;
        if (block != NULL) {
            place_find(walk, block->address)->block = block;
        }
        return;
    }
    if (block == NULL) { /* it begins here for the trace */
        walk->repairs.reallocs++;
        step_birth(walk, step, event);
        return;
    }
    place_find(walk, event->address)->block = block;
    step->type = STEP_RESIZE;
    step->block = block;
    step->old_size = block->size;
    walk->given_bytes += event->size > block->size ? event->size - block->size : 0;
    walk->live_bytes += event->size - block->size;
    block->address = event->address;
    block->size = event->size;
    block->touched = UINT64_MAX;
    note_peak(walk);
}

/* The block that the event's address, or the block that the thread had begun to resize,
 * contradicts: it has ended, by a call that is not in the trace. NULL: there is none. */
static struct block *find_lost(struct walk *walk, const struct trace_event *event,
                               const struct cursor *cursor)
{
    unsigned kind = trace_kind(event->shape);
    uint64_t address = event->address;
    if (kind != KIND_REALLOC && cursor->pending != NULL) {
        return cursor->pending;
    }
    if (kind == KIND_REALLOC && address == 0 && event->size != 0 && cursor->pending != NULL) {
        address = cursor->pending->address; /* it failed: the block stays where it was */
    }
    return trace_is_birth(kind) && address != 0 ? place_find(walk, address)->block : NULL;
}

static void step_lost(struct walk *walk, struct step *step, struct block *block,
                      struct cursor *cursor)
{
    walk->repairs.ends++;
    if (block == cursor->pending) {
        cursor->pending = NULL;
    } else {
        take_block(walk, block->address);
    }
    step->type = STEP_LOST;
    step->kind = KIND_FREE;
    step->shape = 0;
    step->size = 0;
    step->block = block;
    step->writer = block->last_thread;
    block_ends(walk, block);
}

/* False: the event is only a part of a step. */
static bool take_step(struct walk *walk, struct step *step, const struct trace_event *event,
                      struct cursor *cursor)
{
    if (trace_is_call(step->kind)) {
        walk->calls++;
    }
    if (step->kind == KIND_REALLOC) {
        step_resize(walk, step, event, cursor);
    } else if (trace_is_birth(step->kind)) {
        if (event->address != 0) {
            step_birth(walk, step, event);
        } else {
            step->type = STEP_FAILED;
        }
    } else if (step->kind == KIND_REALLOC_FROM) {
        cursor->pending = take_block(walk, event->address);
        return false;
    } else if (step->kind == KIND_THREAD) {
        cursor->thread = (uint32_t)event->size;
        walk->damaged = event->size == 0 || event->size > walk->file->threads;
        return false;
    } else if (step->kind == KIND_TOUCHED) {
        step->type = STEP_TOUCHED;
        step->block = place_find(walk, event->address)->block;
        if (step->block != NULL) {
            step->block->touched = event->size;
        }
        return step->block != NULL;
    } else if (event->address == 0) {
        step->type = STEP_NULL;
    } else {
        step_end(walk, step, take_block(walk, event->address));
    }
    return true;
}

/* Whether the event can come next: its address is in use if it ends there, and not if it begins. */
static bool is_possible(struct walk *walk, const struct trace_event *event)
{
    bool used = event->address != 0 && place_find(walk, event->address)->block != NULL;
    return event->address == 0 || used == is_end(event);
}

/* The first lane below `at` in the heap whose next event has that stamp and can come next; the heap
 * size if there is none. */
static uint32_t heap_possible(struct walk *walk, uint32_t at, uint64_t stamp)
{
    uint32_t found = walk->heap_size;
    const struct trace_event *event;
    if (at >= walk->heap_size) {
        return found;
    }
    event = cursor_event(&walk->cursors[walk->heap[at]]);
    if (event->stamp == stamp && !is_possible(walk, event)) {
        found = heap_possible(walk, 2 * at + 1, stamp);
        return found < walk->heap_size ? found : heap_possible(walk, 2 * at + 2, stamp);
    }
    return event->stamp == stamp ? at : found;
}

/* The place in the heap of the lane whose turn it is: the top. Where clocks are slow, several lanes
 * have the same stamp; then the addresses tell which event comes first. */
static uint32_t heap_choose(struct walk *walk)
{
    uint64_t stamp = cursor_event(&walk->cursors[walk->heap[0]])->stamp;
    uint32_t chosen;
    for (uint32_t i = 1; i <= 2; i++) {
        if (i < walk->heap_size && cursor_event(&walk->cursors[walk->heap[i]])->stamp == stamp) {
            chosen = heap_possible(walk, 0, stamp);
            return chosen < walk->heap_size ? chosen : 0;
        }
    }
    return 0;
}

/* The time of the lane's next event. It lies between those at which the frame before and this one
 * were written. An event without a stamp comes before all with one; those of a frame are spread
 * evenly. */
static uint32_t cursor_ms(const struct walk *walk, const struct cursor *cursor)
{
    const struct trace_frame *frame = cursor->frames[cursor->frame - 1];
    uint64_t stamp = cursor_event(cursor)->stamp;
    uint64_t end = stamp == 0 && frame->unstamped < frame->events ? frame->first_stamp : stamp;
    double ms = walk->zero_ms + walk->stamp_ms * (double)end, from_ms = cursor->from_ms;
    ms = end == 0 || walk->stamp_ms <= 0 || ms > cursor->to_ms ? cursor->to_ms : ms;
    ms = ms > from_ms ? ms : from_ms;
    if (stamp == 0 || walk->stamp_ms <= 0) {
        uint32_t count = stamp == 0 && end != 0 ? frame->unstamped : frame->events;
        ms = from_ms + (ms - from_ms) * (cursor->event + 1) / (count != 0 ? count : 1);
    }
    return (uint32_t)ms;
}

bool walk_next(struct walk *walk, struct step *step)
{
    bool whole = false;
    if (walk->ended != NULL) {
        block_recycle(walk, walk->ended);
        walk->ended = NULL;
    }
    while (!whole && walk->heap_size != 0 && !walk->damaged) {
        uint32_t chosen = heap_choose(walk);
        struct cursor *cursor = &walk->cursors[walk->heap[chosen]];
        const struct trace_event event = *cursor_event(cursor);
        struct block *lost = find_lost(walk, &event, cursor);
        uint32_t now_ms = cursor_ms(walk, cursor);
        walk->ms = walk->ms > now_ms ? walk->ms : now_ms;
        *step = (struct step){
            .kind = trace_kind(event.shape),
            .align_log2 = trace_align_log2(event.shape),
            .thread = cursor->thread,
            .shape = event.shape,
            .size = event.size,
        };
        if (lost != NULL) { /* the event comes again */
            step_lost(walk, step, lost, cursor);
            return true;
        }
        whole = take_step(walk, step, &event, cursor);
        if (step->block != NULL) {
            step->writer = step->block->last_thread;
            step->block->last_thread = step->type == STEP_RESIZE ? step->thread : step->writer;
        }
        if (++cursor->event == cursor->event_count && !cursor_fill(walk, cursor)) {
            walk->heap[chosen] = walk->heap[--walk->heap_size];
        }
        if (chosen < walk->heap_size) {
            heap_sink(walk, chosen);
        }
    }
    return whole;
}

bool walk_end(struct walk *walk)
{
    if (walk->damaged) {
        fprintf(stderr, "hakmem: the trace is damaged: the content of a frame makes no sense\n");
    }
    for (size_t i = 0; i < walk->place_room; i++) {
        free(walk->places[i].block);
    }
    while (walk->recycled != NULL) {
        free(block_new(walk));
    }
    for (uint32_t i = 0; i < walk->file->lanes; i++) {
        free(walk->cursors[i].frames);
        free(walk->cursors[i].events);
        free(walk->cursors[i].pending);
    }
    unpacked_free(walk->unpacked);
    free(walk->cursors);
    free(walk->heap);
    free(walk->places);
    return !walk->damaged;
}
