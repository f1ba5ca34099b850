/* SPDX-License-Identifier: MIT */
/* test_stats.c: versions of the library and the struct, counters that only grow, peaks.
 * test_report.c tests the reports, model/test_statistics.c that the figures are exact. */
#include "../threads/threads.h"

#include <sys/auxv.h>

/* A struct of an older version, which was shorter, is filled as far as it goes. */
TEST(older_structs)
{
    struct hak_stats stats, old;
    struct hak_summary summary;
    const size_t half = offsetof(struct hak_stats, objects_in_use_count);
    stats = stats_now();
    assert_int_equal(stats.version, HAK_STATS_VERSION);
    assert_int_equal(stats.size, sizeof stats);
    memset(&old, 0x5a, sizeof old);
    hak_stats_read(&old, half);
    assert_int_equal(old.size, half);
    assert_int_equal(old.bytes_in_use, stats.bytes_in_use);
    for (size_t i = half; i < sizeof old; i++) {
        assert_int_equal(((unsigned char *)&old)[i], 0x5a);
    }
    memset(&summary, 0x5a, sizeof summary);
    hak_summary_read(&summary, 2 * sizeof(uint32_t));
    assert_int_equal(summary.size, 2 * sizeof(uint32_t));
    assert_int_equal(((unsigned char *)&summary)[8], 0x5a);
    struct { /* of a later version */
        struct hak_stats known;
        uint64_t later;
    } newer = {.later = 7};
    hak_stats_read(&newer.known, sizeof newer);
    assert_int_equal(newer.known.size, sizeof newer.known);
    assert_int_equal(newer.later, 7);
}

static uint32_t growth_stop;

static void *growth_work(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    static void *shared_blocks[64];
    while (__atomic_load_n(&growth_stop, __ATOMIC_RELAXED) == 0) {
        void **slot = &shared_blocks[random_below(&random, COUNT_OF(shared_blocks))];
        hak_free(__atomic_exchange_n(slot, hak_malloc(random_size(&random, 18)), __ATOMIC_SEQ_CST));
        if (random_below(&random, 200) == 0) {
            struct hak_stats stats = stats_now(); /* drains arenas */
            REQUIRE(stats.version == HAK_STATS_VERSION);
        }
    }
    return NULL;
}

/* Also beside other readers, and threads that begin and end. */
TEST(counters_only_grow)
{
    static const char *const names[] = {"counters.malloc_slow",    "counters.refill_carve",
                                        "counters.remote_batches", "counters.remote_notified",
                                        "counters.slab_to_region", "counters.slab_from_region",
                                        "counters.span_allocated", "os_calls.futex"};
    uint64_t before[COUNT_OF(names)] = {0}, now;
    pthread_t threads[3];
    for (size_t round = 0; round < (SUPPORT_SANITIZED ? 1 : SUPPORT_SLOW ? 3 : 10); round++) {
        __atomic_store_n(&growth_stop, 0, __ATOMIC_RELAXED);
        threads_start(threads, COUNT_OF(threads), growth_work, 1);
        for (size_t i = 0; i < 20; i++) {
            for (size_t j = 0; j < COUNT_OF(names); j++) {
                assert_true(hak_stats_value(names[j], &now));
                assert_true(now >= before[j]);
                before[j] = now;
            }
        }
        __atomic_store_n(&growth_stop, 1, __ATOMIC_RELAXED);
        JOIN_ALL(threads, COUNT_OF(threads));
    }
}

/* Between two moments of the same clock, however slowly this test runs. */
TEST(time_of_the_peak)
{
    uint64_t ago_ms, before_ms = now_ms(CLOCK_MONOTONIC_COARSE);
    hak_free(hak_malloc(100 * MIB));
    uint64_t after_ms = now_ms(CLOCK_MONOTONIC_COARSE);
    usleep(20000);
    uint64_t asked_ms = now_ms(CLOCK_MONOTONIC_COARSE);
    if (!hak_stats_value("totals.peak_taken_ago_ms", &ago_ms)) {
        assert_int_equal(getauxval(AT_SYSINFO_EHDR), 0);
        return;
    }
    assert_true(ago_ms >= asked_ms - after_ms);
    assert_true(ago_ms <= now_ms(CLOCK_MONOTONIC_COARSE) - before_ms);
}

TEST(peaks)
{
    hak_trim(0);
    hak_stats_reset_peaks();
    struct hak_stats start = stats_now();
    assert_int_equal(start.peak_bytes_mapped, start.bytes_mapped + start.bytes_metadata);
    void *block = hak_malloc(50 * MIB);
    assert_non_null(block);
    hak_free(block);
    hak_trim(0);
    struct hak_stats after = stats_now();
    assert_true(after.peak_bytes_mapped >= start.bytes_mapped + 50 * MIB);
    assert_true(after.peak_bytes_taken >= start.bytes_in_use + 50 * MIB);
    assert_true(after.peak_bytes_taken < start.peak_bytes_taken + 60 * MIB);
    /* A request that fails is no peak. */
    assert_null(hak_malloc(hide_size((size_t)1 << 50)));
    assert_true(stats_now().peak_bytes_mapped < after.peak_bytes_mapped + 10 * MIB);
    hak_stats_reset_peaks();
    assert_true(stats_now().peak_bytes_mapped < start.bytes_mapped + 10 * MIB);
    assert_true(stats_now().peak_bytes_taken < start.peak_bytes_taken + 10 * MIB);
    void *blocks[100]; /* slabs and spans are part of it, too */
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_malloc(100 * KIB * (1 + i % 3));
        assert_non_null(blocks[i]);
    }
    assert_true(stats_now().peak_bytes_taken >= stats_now().bytes_in_use);
    FREE_ALL(blocks, COUNT_OF(blocks));
}

TEST(version_is_the_headers)
{
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", HAK_VERSION_MAJOR, HAK_VERSION_MINOR,
             HAK_VERSION_PATCH);
    assert_string_equal(hak_version(), expected);
    assert_ptr_equal(hak_version(), hak_version());
}

TESTS(NULL)
