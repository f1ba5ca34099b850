/* SPDX-License-Identifier: MIT */
/* test_summary.c: observe/summary and observe/resident: memory of known layouts is found in the
 * part where it belongs, and the parts are the RSS.
 *
 * ctest: lock=memory no-qemu
 */
#include "../report.h"
#include "../threads/threads.h"
#include "unit.h"

#include "observe/report.h"

static struct hak_summary summary_now(void)
{
    struct hak_summary summary;
    bool known = false;
    /* On a busy machine a thread that holds a lock may not run for long: then nobody answers. */
    for (uint32_t i = 0; i < 100 && !known; i++) {
        known = hak_summary_read(&summary, sizeof summary);
    }
    assert_true(known);
    assert_int_equal(summary.version, HAK_STATS_VERSION);
    assert_int_equal(summary.size, sizeof summary);
    assert_int_equal(summary.rss, summary.in_use + summary.rounding + summary.thread_caches +
                                      summary.free_in_slabs + summary.kept + summary.tables +
                                      summary.not_hakmem);
    return summary;
}

/* `after` is `before` and `bytes` more, to an eighth of a MiB or a 200th. */
static void require_grown(uint64_t before, uint64_t after, size_t bytes)
{
    size_t slack = MIB / 8 + bytes / 200;
    REQUIRE_SIZE(after + slack, >=, before + bytes);
    REQUIRE_SIZE(after, <=, before + bytes + slack);
}

static uint64_t blocks_of(const struct hak_summary *summary)
{
    return summary->in_use + summary->rounding;
}

/* Blocks of `size` bytes, `total` in all, of which the first half is written. */
TEST(half_of_it_never_touched)
{
    static const size_t sizes[] = {8320, 60 * KIB, 300 * KIB, 2 * MIB, 25 * MIB};
    static void *blocks[16 * KIB];
    const size_t total = 100 * MIB;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t count = total / sizes[i];
        struct hak_summary before = summary_now();
        ALLOCATE_ALL(blocks, count, sizes[i]);
        for (size_t j = 0; j < count / 2; j++) {
            memset(blocks[j], 1, sizes[i]);
        }
        struct hak_summary after = summary_now();
        /* A page of each border between objects was touched, or is linked. */
        size_t bound = sizes[i] < 64 * KIB ? total : 51 * MIB;
        REQUIRE_SIZE(blocks_of(&after) - blocks_of(&before), >=, 49 * MIB);
        REQUIRE_SIZE(blocks_of(&after) - blocks_of(&before), <=, bound);
        REQUIRE_SIZE(after.rss - before.rss, >=, 49 * MIB);
        REQUIRE_SIZE(hak__os_memory().peak_rss + MIB, >=, after.rss); /* read apart */
        require_grown(before.not_hakmem, after.not_hakmem, 0);
        FREE_ALL(blocks, count);
        hak_trim(0);
        after = summary_now();
        require_grown(blocks_of(&before), blocks_of(&after), 0);
        require_grown(0, after.kept, 0);
    }
}

/* Huge blocks and spans that were freed, and the slices of slabs, stay for a while. */
TEST_WITH_KNOBS(kept_for_reuse)
{
    hak__knobs.purge_delay_ms = UINT32_MAX;
    hak_trim(0);
    struct hak_summary before = summary_now();
    void *spans[20];
    for (size_t i = 0; i < COUNT_OF(spans); i++) {
        spans[i] = hak_malloc(MIB - 4 * KIB); /* its colour fits */
        memset(spans[i], 1, MIB - 4 * KIB);
    }
    void *block = hak_malloc(20 * MIB); /* the last: now the peak of memory in use is noted */
    memset(block, 1, 20 * MIB);
    struct hak_summary during = summary_now();
    require_grown(blocks_of(&before), blocks_of(&during), 40 * MIB);
    hak_free(block);
    FREE_ALL(spans, COUNT_OF(spans));
    struct hak_summary after = summary_now();
    require_grown(blocks_of(&before), blocks_of(&after), 0);
    if (!HAK_TINY_LIMITS) { /* with tiny limits less is kept */
        require_grown(before.kept, after.kept, 40 * MIB);
        REQUIRE_SIZE(after.rss, >=, during.rss - MIB);
    }
    hak_trim(0);
    require_grown(0, summary_now().kept, 0);
}

/* Each second object of full slabs is free: half of them in slabs, after the bin was flushed. */
TEST(free_in_slabs)
{
    enum { SIZE = 512, COUNT = 40 * 1024 };
    static void *blocks[COUNT];
    struct hak_summary before = summary_now();
    ALLOCATE_WRITTEN(blocks, COUNT, SIZE);
    struct hak_summary full = summary_now();
    require_grown(blocks_of(&before), blocks_of(&full), (size_t)SIZE * COUNT);
    for (size_t i = 0; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    struct hak_summary half = summary_now();
    size_t moved = (size_t)SIZE * COUNT / 2;
    require_grown(blocks_of(&before), blocks_of(&half), moved);
    require_grown(before.thread_caches + before.free_in_slabs,
                  half.thread_caches + half.free_in_slabs, moved);
    hak_trim(0); /* flushes the bins */
    struct hak_summary flushed = summary_now();
    require_grown(before.free_in_slabs, flushed.free_in_slabs, moved);
    REQUIRE_SIZE(flushed.thread_caches, <, MIB / 8);
    REQUIRE_SIZE(flushed.fragmentation_permille, >, 400);
    static struct collected report;
    collect_report(&report, HAK_REPORT_SUMMARY);
    assert_non_null(strstr(report.text, "; fragmentation: "));
    const char *why = strstr(report.text, "\nhuge pages: none; "); /* see start */
    assert_non_null(why);
    assert_true(strstr(why, "_THP_DISABLE") != NULL || strstr(why, "_hugepage") != NULL);
    for (size_t i = 1; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    hak_trim(0);
}

/* Another mapping in the window's way: the frontier skips it, and the tables have a hole there. */
TEST(a_hole_in_the_tables)
{
    enum { COUNT = 300 };
    static void *blocks[COUNT];
    const size_t hole = 400 * SUPERSLAB_SIZE;
    hak_trim(0);
    struct hak_summary before = summary_now();
    size_t next = bits_align_up(hak__superslab_first.frontier, SUPERSLAB_SLICES);
    void *foreign = unit_occupy((uintptr_t)window_slice_address(next + 2 * SUPERSLAB_SLICES), hole);
    size_t skipped = hak__superslabs.count;
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(2 * MIB);
        memset(blocks[i], 1, 16 * KIB);
    }
    REQUIRE_SIZE(hak__superslabs.count, >=, skipped);
    REQUIRE_SIZE(hak__superslab_first.frontier, >, next + hole / SLICE_SIZE);
    struct hak_summary after = summary_now();
    require_grown(blocks_of(&before), blocks_of(&after), COUNT * 16 * KIB);
    require_grown(before.not_hakmem, after.not_hakmem, 0);
    FREE_ALL(blocks, COUNT);
    hak_trim(0);
    munmap(foreign, hole);
    after = summary_now();
    require_grown(blocks_of(&before), blocks_of(&after), 0);
}

static uint32_t stop;

static void *churn(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
        char *block = hak_malloc(random_size(&random, 23));
        REQUIRE(block != NULL);
        block[0] = 1;
        hak_free(block);
        if (random_below(&random, 100) == 0) {
            hak_trim(0);
        }
    }
    return NULL;
}

/* Beside threads that map and unmap, the parts are still known, and are the RSS. */
TEST(beside_busy_threads)
{
    pthread_t threads[3];
    threads_start(threads, COUNT_OF(threads), churn, 1);
    for (size_t i = 0; i < (SUPPORT_SLOW ? 20 : 300); i++) {
        summary_now();
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    JOIN_ALL(threads, COUNT_OF(threads));
}

static int start(void **state)
{
    support_small_pages();
    return unit_start(state);
}

TESTS(start)
