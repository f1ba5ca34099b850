/* SPDX-License-Identifier: MIT */
/* test_steady.c: each call fails in turn in a process that has worked for a while, in every tier.
 * Each plan is a fork's child.
 * ctest: no-qemu */
#define FAULT_HIDES_VDSO true
#define FAULT_CLOCK_STANDS true /* so that ticks come by operations alone */

#include "scenario.h"

#include "region/huge_pages.h"

/* Times depend on nothing but what is done: what is free is purged at every tick. */
static void prepare_work(void)
{
    hak__knobs.purge_delay_ms = 0;
    hak__knobs.huge_threshold = UINT64_MAX;
    for (size_t i = 0; i < 600; i++) {
        REQUIRE(try_malloc(i, 16 + i * 61 % 5000));
    }
    for (size_t i = 0; i < 10; i++) {
        REQUIRE(try_malloc(600 + i, 100 * KIB + i * 190 * KIB));
        REQUIRE(try_malloc(610 + i, (3 + i) * MIB));
    }
    for (size_t i = 0; i < 620; i += i % 3 == 0 ? 1 : 2) {
        drop(i);
    }
    keep_all(); /* what is left is not the scenario's */
}

static void prepare_without_purges(void)
{
    prepare_work();
    hak__arena_reclaim(true); /* and there is little to begin with */
    hak__knobs.purge_delay_ms = UINT32_MAX;
}

/* Filled huge blocks are evidence, so that the next have huge pages. */
static void prepare_huge_pages(void)
{
    prepare_without_purges();
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(try_malloc(i, 16 * MIB));
        memset(held_blocks[i].block, 1, 16 * MIB);
        held_write(i);
    }
    drop_all();
    hak__arena_reclaim(true);
    hak__knobs.huge_threshold = 4 * MIB;
    hak__huge_page_us_max = UINT64_MAX;
}

/* All are too slow: one is asked for, and taken back. */
static void prepare_slow_huge_pages(void)
{
    prepare_huge_pages();
    hak__huge_page_us_max = 0;
}

static void play_small(void)
{
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < 700; i++) {
            try_malloc(i, i % 3 == 0 ? 16 + i % 1000 : 1000 + i * 37 % 9000);
        }
        for (size_t i = round; i < 700; i += 2) {
            drop(i);
        }
        for (size_t i = 0; i < 60; i++) {
            try_calloc(700 + i, 1 + i * 1091 % 65536);
        }
        drop_all();
    }
}

static void play_spans(void)
{
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < 14; i++) {
            try_malloc(i, 70 * KIB + i * 130 * KIB);
        }
        for (size_t i = 0; i < 14; i++) {
            try_realloc(i, (i % 2 == 0 ? 140 : 66) * KIB + i * 120 * KIB);
        }
        for (size_t i = 0; i < 14; i += 2) {
            drop(i);
        }
        for (size_t i = 0; i < 14; i++) {
            if (held_blocks[i].block == NULL) {
                try_calloc(i, 66 * KIB + i * 110 * KIB);
            }
        }
        drop_all();
    }
}

static void play_huge(void)
{
    for (size_t i = 0; i < 16; i++) {
        if (i % 3 == 2) {
            try_calloc(i, 2 * MIB + 1 + i * 700 * KIB);
        } else {
            try_malloc(i, 2 * MIB + 1 + i * 700 * KIB);
        }
    }
    for (size_t i = 0; i < 16; i += 2) {
        drop(i);
    }
    for (size_t i = 0; i < 16; i += 2) { /* cached ones, reshaped ones, new ones */
        if (i % 4 == 0) {
            try_calloc(i, 3 * MIB + i * 900 * KIB);
        } else {
            try_malloc(i, 3 * MIB + i * 500 * KIB);
        }
    }
    for (size_t i = 0; i < 16; i++) {
        try_realloc(i, i % 3 == 0 ? 40 * MIB + i * MIB : 4 * MIB + i * MIB / 3);
    }
    drop_all();
}

/* The registry grows. */
static void play_many_huge(void)
{
    for (size_t i = 0; i < 150; i++) {
        try_malloc(i, 2 * MIB + 1);
    }
    drop_all();
}

static void play_aligned(void)
{
    size_t index = 0;
    for (size_t alignment = 32; alignment <= 64 * MIB; alignment *= 2) {
        try_aligned(index++, alignment, 100);
        try_aligned(index++, alignment, 3 * KIB + 1);
        try_aligned(index++, alignment, 200 * KIB);
        try_aligned(index++, alignment, 2 * MIB + 4096);
    }
    for (size_t i = 0; i < index; i += 3) {
        drop(i);
    }
    for (size_t i = 0; i < index; i++) {
        try_realloc(i, i * 5000 + 1);
    }
    drop_all();
}

static void play_realloc(void)
{
    for (size_t i = 0; i < 4; i++) {
        for (size_t size = 16 + i; size < 48 * MIB; size += size / 2 + 7 * i) {
            try_realloc(i, size);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        for (size_t size = held_blocks[i].size; size > 100; size /= 3) {
            try_realloc(i, size); /* a smaller one is always had: try_realloc requires it */
        }
        drop(i);
    }
}

/* Dense ones, so that the next may have huge pages. */
static void play_huge_pages(void)
{
    for (size_t i = 0; i < 12; i++) {
        if (try_malloc(i, 5 * MIB + i)) {
            memset(held_blocks[i].block + 100, 1, i < 2 ? 4 * MIB : 0);
            held_write(i);
        }
        if (i == 6) {
            try_realloc(i, 12 * MIB);
        }
        try_malloc(20 + i, 600 * KIB);
        if (held_blocks[20 + i].block != NULL) {
            memset(held_blocks[20 + i].block, 1, 600 * KIB);
            held_write(20 + i);
        }
    }
    drop_all();
}

static void discard_report(void *argument, const char *text, size_t size)
{
    size_t *length = argument;
    *length += size;
}

static void play_trim_and_reports(void)
{
    struct hak_stats stats;
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 200; i++) {
            try_malloc(i, i % 40 == 0 ? 3 * MIB + i * KIB : i % 10 == 0 ? 300 * KIB : 9 * i + 1);
        }
        for (size_t i = 0; i < 200; i += 1 + round) {
            drop(i);
        }
        errno = ERRNO_UNTOUCHED;
        hak_trim(round == 1 ? MIB : 0);
        if (round == 2) {
            hak__arena_reclaim(true); /* what an allocation does that finds no memory */
        }
        hak_stats_get(&stats);
        REQUIRE(stats.bytes_in_use <= stats.bytes_mapped);
        size_t length = 0;
        hak_report(round == 0 ? HAK_REPORT_JSON : HAK_REPORT_TEXT, discard_report, &length);
        REQUIRE(errno == ERRNO_UNTOUCHED && length > 1000);
        drop_all();
    }
}

static const struct scenario scenarios[] = {
    {"small objects", prepare_work, play_small, false},
    {"spans", prepare_work, play_spans, false},
    {"huge blocks", prepare_work, play_huge, false},
    {"huge blocks, nothing purged", prepare_without_purges, play_huge, false},
    {"many huge blocks", prepare_without_purges, play_many_huge, false},
    {"huge pages", prepare_huge_pages, play_huge_pages, false},
    {"slow huge pages", prepare_slow_huge_pages, play_huge_pages, true},
    {"aligned", prepare_without_purges, play_aligned, false},
    {"realloc", prepare_without_purges, play_realloc, false},
    {"trim and reports", prepare_without_purges, play_trim_and_reports, false},
};

TEST(every_call_fails)
{
    scenario_require_all(scenarios, COUNT_OF(scenarios));
}

static void huge_are_counted(void *argument)
{
    prepare_work();
    fault_arm((struct fault_plan){0}, 0);
    play_huge();
    fault_disarm();
    REQUIRE_SIZE((size_t)fault_counts[FAULT_SYSINFO], ==, 0);
}

/* Each asked the kernel for the size of the memory. */
TEST(huge_do_not_ask_for_the_memory)
{
    REQUIRE_LIFE(huge_are_counted, NULL, NULL);
}

static void look_is_counted(void *argument)
{
    int ends[2];
    for (size_t i = 0; i < 100; i++) {
        REQUIRE(pipe(ends) == 0);
    }
    fault_arm((struct fault_plan){0}, 0);
    REQUIRE(!hak__os_has_userfaultfd());
    fault_disarm();
    REQUIRE_SIZE((size_t)fault_counts[FAULT_FSTAT], >=, 200);
    REQUIRE_SIZE((size_t)fault_counts[FAULT_READLINK], ==, 0);
}

/* Each pass looks at the process's files, while a malloc waits: no name is read of those that are
 * no userfaultfd for sure (tests/override/test_userfaultfd.c has one). */
TEST(files_with_a_type_are_not_named)
{
    REQUIRE_LIFE(look_is_counted, NULL, NULL);
}

int main(void)
{
    support_small_pages(); /* how often a call comes depends on how long the work takes */
    return tests_run(NULL, NULL);
}
