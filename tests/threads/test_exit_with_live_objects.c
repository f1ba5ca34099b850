/* SPDX-License-Identifier: MIT */
/* test_exit_with_live_objects.c: a thread ends while its objects live on; others use and free them
 * later, and the memory serves again. Heaps are joined anew, not multiplied.
 *
 * ctest: no-qemu
 */
#include "threads.h"

enum { OBJECTS = 3000 };

struct estate {
    struct parcel **parcels;
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

static struct estate estate_create(uint64_t seed)
{
    struct estate estate = {support_map(OBJECTS * sizeof(struct parcel *)), seed};
    return estate;
}

static void estate_destroy(struct estate *estate)
{
    munmap(estate->parcels, OBJECTS * sizeof(struct parcel *));
}

/* Many estates at once: dead owners on all heaps, freed in any order by many. */
TEST(many_estates)
{
    enum { ESTATES = 24 };
    struct estate estates[ESTATES];
    pthread_t threads[ESTATES];
    hak_free(hak_malloc(1)); /* this thread has its struct */
    hak_trim(0);
    struct hak_stats before = stats_now();
    size_t rss = rss_bytes();
    for (size_t round = 0; round < (SUPPORT_SLOW ? 2 : 10); round++) {
        for (size_t i = 0; i < ESTATES; i++) {
            estates[i] = estate_create(i + round);
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
        for (size_t i = 0; i < ESTATES; i++) {
            thread_join(threads[i]);
            estate_destroy(&estates[(i + 5) % ESTATES]);
        }
    }
    struct hak_stats after = stats_now();
    REQUIRE_SIZE(after.heaps_count, <=, heaps_most());
    REQUIRE_SIZE(after.threads_count, ==, before.threads_count);
    REQUIRE_SIZE(after.bytes_in_use, ==, before.bytes_in_use);
    if (!SUPPORT_SANITIZED) {
        hak_trim(0);
        REQUIRE_SIZE(rss_bytes(), <=, rss + 8 * MIB);
    }
}

TESTS(NULL)
