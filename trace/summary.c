/* SPDX-License-Identifier: MIT */
/* summary.c: what a trace says of a program: sizes, lifetimes, threads, reuse, sites. Two walks:
 * the first finds the peak, the second collects. */
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remarks.h"
#include "sites.h"

#define BUCKETS 49 /* powers of two up to TRACE_SIZE_MAX */
#define MOMENTS 48
#define SITES_SHOWN 12

struct size_row {
    uint64_t births, bytes, live;
};

struct summary {
    uint64_t kinds[KIND_COUNT];
    struct size_row sizes[BUCKETS];
    uint64_t life_calls[BUCKETS]; /* blocks that ended within 2^i calls */
    uint64_t life_bytes[BUCKETS];
    uint64_t reuse[BUCKETS];
    uint64_t births, resizes, failed, nulls, ended, never_used;
    uint64_t ended_elsewhere, resized_elsewhere, requested;
    uint64_t touched_of, touched; /* of large blocks: their sizes, what of them was resident */
    uint64_t moments[MOMENTS];    /* most live bytes in each part of the run */
    struct site_table sites;
};

static unsigned bucket_of(uint64_t value) /* the power of two that holds it */
{
    unsigned bucket = value <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(value - 1);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* --- collecting --- */

static struct site_row *site_slot(struct site_row *rows, size_t room, uint64_t site)
{
    size_t at = (site * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);
    while (rows[at].births != 0 && rows[at].site != site) {
        at = (at + 1) & (room - 1);
    }
    return &rows[at];
}

struct site_row *site_find(struct site_table *table, uint64_t site)
{
    struct site_row *row;
    if (2 * (table->count + 1) > table->room) {
        size_t room = table->room == 0 ? 1024 : 2 * table->room;
        struct site_row *rows = need_memory(calloc(room, sizeof *rows));
        for (size_t i = 0; i < table->room; i++) {
            if (table->rows[i].births != 0) {
                *site_slot(rows, room, table->rows[i].site) = table->rows[i];
            }
        }
        free(table->rows);
        table->rows = rows;
        table->room = room;
    }
    row = site_slot(table->rows, table->room, site);
    if (row->births == 0) {
        row->site = site;
        row->number = table->count++;
    }
    return row;
}

static void collect_birth(struct summary *summary, const struct step *step)
{
    struct size_row *row = &summary->sizes[bucket_of(step->size)];
    struct site_row *site = site_find(&summary->sites, trace_site(step->shape));
    summary->births++;
    summary->requested += step->size;
    row->births++;
    row->bytes += step->size;
    row->live++;
    if (step->reused_after != 0) {
        summary->reuse[bucket_of(step->reused_after)]++;
    } else {
        summary->never_used++;
    }
    site->births++;
    site->bytes += step->size;
    site->live_bytes += step->size;
}

static void collect_touched(struct summary *summary, const struct block *block)
{
    if (block->touched != UINT64_MAX) {
        summary->touched_of += block->size;
        summary->touched += block->touched;
    }
}

static void collect_resize(struct summary *summary, const struct step *step)
{
    summary->resizes++;
    summary->requested += step->size > step->old_size ? step->size - step->old_size : 0;
    summary->resized_elsewhere += step->thread != step->block->birth_thread;
    site_find(&summary->sites, trace_site(step->block->shape))->live_bytes +=
        step->size - step->old_size;
}

/* Nobody knows when it ended, so it has no lifetime. */
static void collect_lost(struct summary *summary, const struct block *block)
{
    site_find(&summary->sites, trace_site(block->shape))->live_bytes -= block->size;
}

static void collect_end(struct summary *summary, const struct step *step, const struct walk *walk)
{
    const struct block *block = step->block;
    summary->ended++;
    summary->ended_elsewhere += step->thread != block->birth_thread;
    summary->life_calls[bucket_of(walk->calls - block->birth_call)]++;
    summary->life_bytes[bucket_of(walk->given_bytes - block->birth_bytes)]++;
    collect_lost(summary, block);
}

static void note_peak_of_sites(struct site_table *table)
{
    for (size_t i = 0; i < table->room; i++) {
        table->rows[i].peak_bytes = table->rows[i].live_bytes;
    }
}

static void collect(struct summary *summary, const struct step *step, const struct walk *walk)
{
    summary->kinds[step->kind] += step->type != STEP_LOST;
    switch (step->type) {
    case STEP_BIRTH:
        collect_birth(summary, step);
        break;
    case STEP_RESIZE:
        collect_resize(summary, step);
        break;
    case STEP_END:
        collect_end(summary, step, walk);
        break;
    case STEP_FAILED:
        summary->failed++;
        break;
    case STEP_NULL:
        summary->nulls++;
        break;
    case STEP_FOREIGN:
        break;
    case STEP_TOUCHED:
        collect_touched(summary, step->block);
        break;
    case STEP_LOST:
        collect_lost(summary, step->block);
        break;
    }
}

/* --- text --- */

static const char *size_text(uint64_t bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit < 4; unit++) {
        value /= 1024;
    }
    snprintf(text, room, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

#define SIZE_TEXT(bytes) size_text(bytes, (char[24]){0}, 24)

static double percent(uint64_t part, uint64_t whole)
{
    return whole != 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void print_kinds(const struct summary *summary)
{
    static const char *const names[KIND_COUNT] = {
        "malloc",   "calloc",     "realloc(NULL)", "aligned_alloc", "posix_memalign",
        "memalign", "new",        "new[]",         "aligned new",   "realloc",
        "free",     "free_sized", "delete",        "sized delete",
    };
    printf("\nCalls:");
    for (unsigned i = 0; i < KIND_REALLOC_FROM; i++) {
        if (summary->kinds[i] != 0) {
            printf(" %s %" PRIu64 "%s", names[i], summary->kinds[i], ";");
        }
    }
    printf(" free of NULL: %" PRIu64 ", failed: %" PRIu64 "\n", summary->nulls, summary->failed);
}

static void print_sizes(const struct summary *summary)
{
    printf("\nSizes         blocks       %%       bytes given\n");
    for (unsigned i = 0; i < BUCKETS; i++) {
        const struct size_row *row = &summary->sizes[i];
        if (row->births != 0) {
            printf("<= %-8s %9" PRIu64 "  %6.2f  %16s\n", SIZE_TEXT(UINT64_C(1) << i), row->births,
                   percent(row->births, summary->births), SIZE_TEXT(row->bytes));
        }
    }
}

/* Buckets 4 at a time: a factor of 16. */
static void print_distances(const char *title, const char *unit, const uint64_t *buckets,
                            uint64_t whole)
{
    uint64_t part = 0, last = 0;
    printf("\n%s\n", title);
    for (unsigned i = 0; i < BUCKETS; i++) {
        part += buckets[i];
        if (i % 4 == 0 && part != last) {
            printf("  within %12" PRIu64 " %-6s %6.2f %%\n", UINT64_C(1) << i, unit,
                   percent(part, whole));
            last = part;
        }
    }
}

static void print_moments(const struct summary *summary, const struct walk *walk)
{
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    printf("\nLive bytes over time (%" PRIu64 " calls a step, full height %s)\n  ",
           walk->calls / MOMENTS + 1, SIZE_TEXT(walk->peak_bytes));
    for (unsigned i = 0; i < MOMENTS && walk->peak_bytes != 0; i++) {
        printf("%s", bars[(summary->moments[i] * 8 + walk->peak_bytes - 1) / walk->peak_bytes]);
    }
    printf("\n");
}

static int compare_sites(const void *one, const void *other)
{
    const struct site_row *a = one, *b = other;
    if (a->peak_bytes != b->peak_bytes) {
        return a->peak_bytes < b->peak_bytes ? 1 : -1;
    }
    return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : 0;
}

static void print_sites(struct summary *summary, const struct trace_file *file)
{
    struct site_table *table = &summary->sites;
    struct sites names;
    char shown[SITES_SHOWN][160] = {0};
    sites_read(&names, file);
    if (table->rows != NULL) {
        qsort(table->rows, table->room, sizeof *table->rows, compare_sites);
    }
    printf("\nCall sites        live at peak   live at end  bytes given     blocks\n");
    for (size_t i = 0; i < table->room && i < SITES_SHOWN && table->rows[i].births != 0; i++) {
        const struct site_row *row = &table->rows[i];
        char *name = shown[i];
        site_name(&names, row->site, name, sizeof shown[i]);
        printf("%30s  %12s %12s  %9" PRIu64 "  %s\n", SIZE_TEXT(row->peak_bytes),
               SIZE_TEXT(row->live_bytes), SIZE_TEXT(row->bytes), row->births, name);
    }
    sites_print_ids(&names, shown[0], SITES_SHOWN, sizeof shown[0]);
    sites_free(&names);
}

static void print_head(const struct trace_file *file, const struct walk *walk)
{
    printf("%s (process %" PRIu64 "%s): %" PRIu64 " calls of %" PRIu32 " thread%s, %s, %.2f bytes a"
           " call\n",
           file->header.program, file->header.pid,
           file->header.forked_from != 0 ? ", a fork's child" : "", walk->calls, file->threads,
           file->threads == 1 ? "" : "s", SIZE_TEXT(file->length),
           walk->calls != 0 ? (double)file->length / (double)walk->calls : 0.0);
    printf("Peak: %" PRIu64 " bytes in %" PRIu64 " blocks (%s) after %" PRIu64 " calls; at the end "
           "%" PRIu64 " bytes in %" PRIu64 " blocks\n",
           walk->peak_bytes, walk->peak_blocks, SIZE_TEXT(walk->peak_bytes), walk->peak_call,
           walk->live_bytes, walk->live_blocks);
    if (file->end.threads != 0) {
        printf("The process ended in order; its anonymous memory had %s at most (seen once in %u "
               "calls)\n",
               SIZE_TEXT(file->end.peak_resident), TRACE_EVENTS_MAX);
    }
    remarks_print_end(stdout, "", file);
    remarks_print_repairs(stdout, file, &walk->repairs);
}

static void print_summary(struct summary *summary, const struct trace_file *file,
                          const struct walk *walk)
{
    print_head(file, walk);
    print_kinds(summary);
    print_sizes(summary);
    print_distances("Lifetimes of ended blocks", "calls", summary->life_calls, summary->ended);
    print_distances("The same in bytes given out meanwhile", "bytes", summary->life_bytes,
                    summary->ended);
    printf("\nThreads: %.2f %% of the ended blocks were freed by another thread than the one that "
           "allocated them; resized by another thread: %" PRIu64 " of %" PRIu64 "\n",
           percent(summary->ended_elsewhere, summary->ended), summary->resized_elsewhere,
           summary->resizes);
    print_distances("Reuse: blocks at an address that was freed before", "calls", summary->reuse,
                    summary->births);
    if (summary->touched_of != 0) {
        printf("\nBlocks of %s and more: %.1f %% of their bytes were resident in the end\n",
               SIZE_TEXT(TRACE_LARGE_MIN), percent(summary->touched, summary->touched_of));
    }
    print_moments(summary, walk);
    print_sites(summary, file);
}

int summary_print(const struct trace_file *file)
{
    struct summary *summary = need_memory(calloc(1, sizeof *summary));
    struct walk first, walk;
    struct step step;
    walk_begin(&first, file);
    while (walk_next(&first, &step)) {
    }
    if (!walk_end(&first)) {
        return STATUS_CANNOT;
    }
    walk_begin(&walk, file);
    while (walk_next(&walk, &step)) {
        uint64_t *moment = &summary->moments[walk.calls * MOMENTS / (first.calls + 1)];
        collect(summary, &step, &walk);
        *moment = walk.live_bytes > *moment ? walk.live_bytes : *moment;
        if (walk.calls == first.peak_call &&
            (step.type == STEP_BIRTH || step.type == STEP_RESIZE)) {
            note_peak_of_sites(&summary->sites);
        }
    }
    if (!walk.damaged) {
        print_summary(summary, file, &walk);
    }
    return walk_end(&walk) ? 0 : STATUS_CANNOT; /* the process ends: the tables are not freed */
}
