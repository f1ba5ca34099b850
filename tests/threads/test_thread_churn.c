/* SPDX-License-Identifier: MIT */
/* test_thread_churn.c: many short threads leave nothing behind. RSS after all equals RSS after the
 * first thousand within 2 MiB; arenas, mappings and file descriptors stay what they were. Objects
 * that outlive their thread are freed by others, and arenas are joined anew, not multiplied.
 *
 * ctest: not-again no-qemu
 */
#include "threads.h"

enum { TOGETHER = 4, WARM_UP = 1000, HUGE_SIZE = 3 * MIB };
enum { THREADS_TOTAL = SUPPORT_SANITIZED ? 2000 : HAK_LEVEL >= 2 ? 8000 : 20000 };

static size_t descriptors_count(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    REQUIRE(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* Some of everything: small, mid, span, huge block; freed in another order; the last one by the
 * next thread. */
static void *short_life(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    struct parcel *parcels[40];
    for (size_t i = 0; i < COUNT_OF(parcels); i++) {
        parcels[i] = parcel_create(random_size(&random, 12), random);
    }
    if (random_below(&random, 16) == 0) {
        parcel_free(parcel_create(random_size(&random, 18), 1));
    }
    if (random_below(&random, 128) == 0) {
        parcel_free(parcel_create(HUGE_SIZE, 1));
    }
    for (size_t i = COUNT_OF(parcels); i-- > 1;) {
        parcel_free(parcels[i * 7 % COUNT_OF(parcels)]);
    }
    return parcels[0];
}

/* Costs no arena and no struct for good. */
static void *only_free(void *block)
{
    hak_free(block);
    REQUIRE(hide(hak_malloc(hide_size(SIZE_MAX))) == NULL);
    return NULL;
}

static void churn(size_t count, uint64_t seed)
{
    for (size_t done = 0; done < count; done += TOGETHER) {
        pthread_t threads[TOGETHER];
        for (size_t i = 0; i < TOGETHER; i++) {
            threads[i] = i == 0 && done % 32 == 0
                             ? thread_start(only_free, hak_malloc(tier_sizes[done / 32 % 12]))
                             : thread_start(short_life, (void *)(uintptr_t)(seed + done + i));
        }
        for (size_t i = 0; i < TOGETHER; i++) {
            void *left;
            REQUIRE(pthread_join(threads[i], &left) == 0);
            parcel_free(left);
        }
    }
}

TEST(nothing_is_left)
{
    churn(WARM_UP, 1);
    struct hak_stats before = stats_now();
    size_t untrimmed = rss_bytes();
    hak_trim(0); /* what waits for its purge (a cached huge block) is no leak and would hide one */
    size_t rss = rss_bytes(), mappings = mappings_count(), descriptors = descriptors_count();
    churn(THREADS_TOTAL - WARM_UP, 1000000);
    struct hak_stats after = stats_now();
    size_t untrimmed_after = rss_bytes();
    hak_trim(0);
    REQUIRE_SIZE(after.arenas_count, <=, TOGETHER + 1);
    REQUIRE_SIZE(after.arenas_count, <=, arenas_most());
    REQUIRE_SIZE(after.arenas_parked_count, <=, TOGETHER);
    REQUIRE_SIZE(after.threads_count, ==, before.threads_count);
    REQUIRE_SIZE(after.objects_in_use_count, ==, before.objects_in_use_count);
    REQUIRE_SIZE(after.bytes_in_use, ==, before.bytes_in_use);
    REQUIRE_SIZE(after.bytes_metadata, <=, before.bytes_metadata + MIB);
    REQUIRE_SIZE(descriptors_count(), ==, descriptors);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(rss_bytes(), <=, rss + 2 * MIB);
        /* what is kept for the next is told: no more than all of them have at once */
        REQUIRE_SIZE(after.bytes_cached, <=, before.bytes_cached + TOGETHER * HUGE_SIZE);
        REQUIRE_SIZE(untrimmed_after + before.bytes_cached, <=,
                     untrimmed + after.bytes_cached + 4 * MIB);
        REQUIRE_SIZE(mappings_count(), <=, mappings + 10);
    }
}

/* --- objects that outlive their thread --- */

enum { OBJECTS = 3000 };

struct estate {
    struct parcel *parcels[OBJECTS];
    uint64_t seed;
};

static void *live_and_leave(void *argument)
{
    struct estate *estate = argument;
    uint64_t random = estate->seed;
    for (size_t i = 0; i < OBJECTS; i++) {
        size_t bits = i % 500 == 0 ? 18 : i % 50 == 0 ? 14 : 10;
        estate->parcels[i] = parcel_create(random_size(&random, (unsigned)bits), random);
    }
    return NULL;
}

static void *free_estate(void *argument)
{
    struct estate *estate = argument;
    for (size_t i = 0; i < OBJECTS; i++) {
        parcel_free(estate->parcels[i * 7 % OBJECTS]);
    }
    return NULL;
}

/* Many estates at once: dead owners on all arenas, freed in any order by many. */
TEST(many_estates)
{
    enum { ESTATES = 24 };
    static struct estate estates[ESTATES];
    pthread_t threads[ESTATES];
    hak_free(hak_malloc(1)); /* this thread has its struct */
    hak_trim(0);
    struct hak_stats before = stats_now();
    size_t rss = rss_bytes();
    for (size_t round = 0; round < (SUPPORT_SLOW ? 2 : 10); round++) {
        for (size_t i = 0; i < ESTATES; i++) {
            estates[i].seed = i + round;
            threads[i] = thread_start(live_and_leave, &estates[i]);
        }
        JOIN_ALL(threads, ESTATES);
        for (size_t i = 0; i < ESTATES * OBJECTS; i += 3) { /* by this one, which lives on */
            struct parcel **parcel = &estates[i / OBJECTS].parcels[i % OBJECTS];
            parcel_free(*parcel);
            *parcel = NULL;
        }
        for (size_t i = 0; i < ESTATES; i++) {
            threads[i] = thread_start(free_estate, &estates[(i + 5) % ESTATES]);
        }
        JOIN_ALL(threads, ESTATES);
    }
    struct hak_stats after = stats_now();
    REQUIRE_SIZE(after.arenas_count, <=, arenas_most());
    REQUIRE_SIZE(after.threads_count, ==, before.threads_count);
    REQUIRE_SIZE(after.bytes_in_use, ==, before.bytes_in_use);
    if (!SUPPORT_SANITIZED) {
        hak_trim(0);
        REQUIRE_SIZE(rss_bytes(), <=, rss + 8 * MIB);
    }
}

TESTS(NULL)
