/* SPDX-License-Identifier: MIT */
/* test_migration.c: in each round every thread gives half of its objects to its neighbour, frees
 * some of what it got and allocates anew. After enough rounds an object was carried far from its
 * owner; RSS follows the live set.
 *
 * ctest: no-secure */
#include "threads.h"

enum { THREADS = 4, ROUNDS = SUPPORT_SLOW ? 10 : 40 };

static pthread_barrier_t barrier;
static struct parcel **tables[THREADS];
static size_t size_max, objects;

static void *migrate(void *argument)
{
    size_t self = (size_t)(uintptr_t)argument;
    uint64_t random = self + 1;
    struct parcel **mine = tables[self];
    struct parcel **next = tables[(self + 1) % THREADS];
    for (size_t i = 0; i < objects; i++) {
        mine[i] = parcel_create(random_below(&random, size_max), random);
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        for (size_t i = 0; i < objects / 2;
             i++) { /* my lower half against the neighbour's upper half */
            struct parcel *swapped = mine[i];
            mine[i] = next[objects / 2 + i];
            next[objects / 2 + i] = swapped;
        }
        pthread_barrier_wait(&barrier);
        for (size_t i = round % 3; i < objects; i += 3) {
            parcel_free(mine[i]);
            mine[i] = parcel_create(random_below(&random, size_max), random);
        }
    }
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < objects; i++) {
        parcel_free(mine[i]);
    }
    return NULL;
}

static void migration_run(size_t count, size_t largest)
{
    pthread_t threads[THREADS];
    objects = count;
    size_max = largest;
    hak_trim(0);
    struct hak_stats before = stats_now();
    size_t rss_before = rss_bytes(), peak = 0;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        tables[i] = support_map(objects * sizeof(struct parcel *));
    }
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = thread_start(migrate, (void *)(uintptr_t)i);
    }
    for (size_t i = 0; i < THREADS; i++) {
        while (pthread_tryjoin_np(threads[i], NULL) != 0) {
            usleep(5000);
            size_t rss = rss_bytes();
            peak = rss > peak ? rss : peak;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        munmap(tables[i], objects * sizeof(struct parcel *));
    }
    struct hak_stats after = stats_now();
    REQUIRE_SIZE(after.objects_in_use_count, ==, before.objects_in_use_count);
    REQUIRE_SIZE(after.bytes_in_use, ==, before.bytes_in_use);
    size_t live = THREADS * objects * largest / 2;
    print_message("to %zu bytes: live %zu KiB, peak %zu KiB\n", largest, live / KIB,
                  (peak - rss_before) / KIB);
    if (!SUPPORT_SANITIZED) { /* an eighth for size classes, the rest for slabs not full and caches
                               */
        REQUIRE_SIZE(peak, <=, rss_before + live + live / 2 + 16 * MIB);
        hak_trim(0);
        REQUIRE_SIZE(rss_bytes(), <=, rss_before + 4 * MIB);
    }
}

TEST(small_objects)
{
    migration_run(SUPPORT_SLOW ? 4000 : 20000, 1000);
}

TEST(mid_objects)
{
    migration_run(SUPPORT_SLOW ? 1000 : 4000, 20000);
}

TESTS(NULL)
