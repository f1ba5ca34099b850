/* SPDX-License-Identifier: MIT */
/* timeline.c: see commands.h. The moments are equal parts of the time; of the calls in a trace that
 * is too short, or too old to tell the time. */
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remarks.h"
#include "sites.h"
#include "walk.h"

/* Twice as many: tables of four times the size. Half: short events are lost between two moments. */
#define TIMELINE_MOMENTS 64u
/* A trace that is shorter is divided by calls: the clock could not tell its moments apart.
 * Milliseconds. */
#define TIMED_MIN (10 * TIMELINE_MOMENTS)
/* A block that ends within so many calls is temporary. */
#define TEMPORARY_CALLS 8u

struct cell {
    uint64_t bytes, count;
};

/* Of one site and one moment of birth: by the moments at which blocks ended; the last: never. */
struct births {
    struct cell ended[TIMELINE_MOMENTS + 1];
};

/* Of one call site, or of one thread that allocated. */
struct site_times {
    struct births *born[TIMELINE_MOMENTS]; /* NULL: none */
    uint64_t temporary_count, temporary_bytes;
};

struct group {
    struct site_times *times;
    size_t room;
};

struct moment {
    uint64_t live_bytes, most_bytes, resident;
    uint32_t ms;
};

struct timeline {
    const struct trace_file *file;
    uint32_t length_ms; /* 0: divided by calls */
    struct moment moments[TIMELINE_MOMENTS];
    struct site_table sites;
    struct group by_site, by_thread; /* by the sites' numbers; by the threads', from 1 on */
};

static unsigned moment_of(const struct timeline *timeline, uint64_t call, uint32_t ms)
{
    uint64_t part = timeline->length_ms != 0
                        ? (uint64_t)ms * TIMELINE_MOMENTS / (timeline->length_ms + UINT64_C(1))
                        : call * TIMELINE_MOMENTS / (timeline->file->calls + 1);
    return part < TIMELINE_MOMENTS ? (unsigned)part : TIMELINE_MOMENTS - 1;
}

static void group_grow(struct group *group)
{
    size_t room = group->room == 0 ? 64 : 2 * group->room;
    group->times = need_memory(realloc(group->times, room * sizeof *group->times));
    for (size_t i = group->room; i < room; i++) {
        group->times[i] = (struct site_times){0};
    }
    group->room = room;
}

/* Blocks that were born at the moment and end at the other; TIMELINE_MOMENTS: never. */
static struct cell *cell_of(struct group *group, size_t number, unsigned born, unsigned ended)
{
    while (number >= group->room) {
        group_grow(group);
    }
    struct births **births = &group->times[number].born[born];
    if (*births == NULL) {
        *births = need_memory(calloc(1, sizeof **births));
    }
    return &(*births)->ended[ended];
}

/* A block keeps the number of its site in `user`, and the moment since which it has its size in
 * `user_op`. */
static void count(struct timeline *timeline, const struct block *block, unsigned ended,
                  uint64_t size, int blocks)
{
    unsigned born = (unsigned)block->user_op;
    struct cell *both[] = {cell_of(&timeline->by_site, block->user, born, ended),
                           cell_of(&timeline->by_thread, block->birth_thread, born, ended)};
    for (size_t i = 0; i < 2; i++) {
        both[i]->bytes += blocks < 0 ? -size : size;
        both[i]->count += (uint64_t)blocks;
    }
}

static void note_birth(struct timeline *timeline, struct block *block, unsigned now)
{
    block->user_op = now;
    count(timeline, block, TIMELINE_MOMENTS, block->size, 1);
}

static void note_end(struct timeline *timeline, const struct block *block, uint64_t size,
                     unsigned now)
{
    count(timeline, block, TIMELINE_MOMENTS, size, -1);
    count(timeline, block, now, size, 1);
}

static void note_temporary(struct timeline *timeline, const struct block *block, uint64_t calls)
{
    if (calls - block->birth_call <= TEMPORARY_CALLS) {
        struct site_times *both[] = {&timeline->by_site.times[block->user],
                                     &timeline->by_thread.times[block->birth_thread]};
        for (size_t i = 0; i < 2; i++) {
            both[i]->temporary_count++;
            both[i]->temporary_bytes += block->size;
        }
    }
}

static void note_step(struct timeline *timeline, const struct step *step, const struct walk *walk)
{
    struct block *block = step->block;
    unsigned now = moment_of(timeline, walk->calls, walk->ms);
    struct site_row *row;
    switch (step->type) {
    case STEP_BIRTH:
        row = site_find(&timeline->sites, trace_site(step->shape));
        row->births++;
        block->user = row->number;
        note_birth(timeline, block, now);
        break;
    case STEP_RESIZE:
        note_end(timeline, block, step->old_size, now);
        note_birth(timeline, block, now);
        break;
    case STEP_END:
        note_temporary(timeline, block, walk->calls);
        note_end(timeline, block, block->size, now);
        break;
    case STEP_LOST:
        note_end(timeline, block, block->size, now);
        break;
    default:
        break;
    }
}

/* Resident memory stands in the frames, and the time. The stamps of several lanes must tell it. */
static void read_frames(struct timeline *timeline, bool is_timed)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < timeline->file->frame_count; i++) {
        const struct trace_frame *frame = timeline->file->frames[i];
        timeline->length_ms = frame->ms > timeline->length_ms ? frame->ms : timeline->length_ms;
    }
    timeline->length_ms = !is_timed || timeline->length_ms < TIMED_MIN ? 0 : timeline->length_ms;
    for (size_t i = 0; i < timeline->file->frame_count; i++) {
        const struct trace_frame *frame = timeline->file->frames[i];
        calls += frame->calls;
        if (frame->type == FRAME_EVENTS) {
            timeline->moments[moment_of(timeline, calls, frame->ms)].resident = frame->resident;
        }
    }
}

/* A moment without calls is like the one before. */
static void moment_follow(struct timeline *timeline, unsigned moment)
{
    struct moment *next = &timeline->moments[moment];
    next->live_bytes = next->most_bytes = next[-1].live_bytes;
    next->ms = next[-1].ms;
}

static void collect(struct timeline *timeline, struct walk *walk)
{
    struct step step;
    unsigned last = 0;
    while (walk_next(walk, &step)) {
        unsigned now = moment_of(timeline, walk->calls, walk->ms);
        for (; last < now; last++) {
            moment_follow(timeline, last + 1);
        }
        struct moment *moment = &timeline->moments[now];
        moment->live_bytes = walk->live_bytes;
        moment->most_bytes =
            moment->most_bytes > walk->live_bytes ? moment->most_bytes : walk->live_bytes;
        moment->ms = walk->ms;
        note_step(timeline, &step, walk);
    }
    for (; last + 1 < TIMELINE_MOMENTS; last++) {
        moment_follow(timeline, last + 1);
    }
}

/* `comma` goes before it. */
static void print_times(const struct site_times *times, const char *comma, const char *key,
                        uint64_t value)
{
    printf("%s{\"%s\": \"0x%" PRIx64 "\", \"temporary_count\": %" PRIu64
           ", \"temporary_bytes\": %" PRIu64 ", \"cells\": [",
           comma, key, value, times->temporary_count, times->temporary_bytes);
    comma = "";
    for (unsigned born = 0; born < TIMELINE_MOMENTS; born++) {
        for (unsigned ended = born; times->born[born] != NULL && ended <= TIMELINE_MOMENTS;
             ended++) {
            const struct cell *cell = &times->born[born]->ended[ended];
            if (cell->count != 0) {
                printf("%s[%u, %u, %" PRIu64 ", %" PRIu64 "]", comma, born, ended, cell->bytes,
                       cell->count);
                comma = ", ";
            }
        }
    }
    printf("]}");
}

/* What the trace lacks, as strings. */
static void print_remarks(const struct trace_file *file, const struct walk *walk)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream != NULL) {
        remarks_print_end(stream, "", file);
        remarks_print_repairs(stream, file, &walk->repairs);
    }
    need_memory(stream == NULL || fclose(stream) != 0 ? NULL : text);
    const char *comma = "";
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        printf("%s\"%s\"", comma, line);
        comma = ", ";
    }
    free(text);
}

static void print_document(const struct timeline *timeline, const struct walk *walk)
{
    const struct trace_file *file = timeline->file;
    struct sites names;
    printf("{\"program\": \"%s\", \"pid\": %" PRIu64 ", \"time\": %" PRIu64 ", \"calls\": %" PRIu64
           ", \"timed\": %d, \"peak_bytes\": %" PRIu64 ", \"moments\": [",
           file->header.program, file->header.pid, file->header.start_ns / 1000000000u, walk->calls,
           timeline->length_ms != 0, walk->peak_bytes);
    for (unsigned i = 0; i < TIMELINE_MOMENTS; i++) {
        const struct moment *moment = &timeline->moments[i];
        uint64_t end_ms = timeline->length_ms != 0
                              ? (uint64_t)timeline->length_ms * (i + 1) / TIMELINE_MOMENTS
                              : moment->ms;
        printf("%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", i != 0 ? ", " : "", end_ms,
               moment->live_bytes, moment->most_bytes, moment->resident);
    }
    printf("], \"remarks\": [");
    print_remarks(file, walk);
    printf("], \"mappings\": [");
    sites_read(&names, file);
    sites_print_mappings(&names);
    sites_free(&names);
    printf("], \"sites\": [");
    const char *comma = "";
    for (size_t i = 0; i < timeline->sites.room; i++) {
        const struct site_row *row = &timeline->sites.rows[i];
        if (row->births != 0) {
            print_times(&timeline->by_site.times[row->number], comma, "address", row->site);
            comma = ", ";
        }
    }
    printf("], \"threads\": [");
    for (size_t i = 1; i < timeline->by_thread.room && i <= file->threads; i++) {
        print_times(&timeline->by_thread.times[i], i > 1 ? ", " : "", "number", i);
    }
    printf("]}\n");
}

int timeline_print(const struct trace_file *file)
{
    static struct timeline timeline;
    struct walk walk;
    timeline.file = file;
    walk_begin(&walk, file);
    read_frames(&timeline, file->lanes == 1 || walk.stamp_ms > 0);
    collect(&timeline, &walk);
    if (!walk.damaged) {
        print_document(&timeline, &walk);
    }
    return walk_end(&walk) ? 0 : STATUS_CANNOT; /* the process ends: the tables are not freed */
}
