/* SPDX-License-Identifier: MIT */
/* test_oversubscribed.c: four threads a processor and at least 16, all sizes of all tiers, blocks
 * handed around through one table: preemption in the middle of everything. */
#include "threads.h"

enum { SLOTS = 512, THREADS_MAX = 64 };

static struct parcel *shared_slots[SLOTS];
static size_t steps_each;

static size_t stress_size(uint64_t *random)
{
    size_t roll = random_below(random, 1000);
    return random_size(random, roll < 800 ? 12 : roll < 980 ? 16 : roll < 998 ? 20 : 23);
}

static void *stress(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    struct parcel *own[64] = {NULL};
    for (size_t step = 0; step < steps_each; step++) {
        struct parcel **mine = &own[random_below(&random, COUNT_OF(own))];
        if (*mine == NULL) {
            *mine = parcel_create(stress_size(&random), random);
        } else if (random_below(&random, 4) == 0) {
            size_t size = stress_size(&random) + sizeof(struct parcel);
            struct parcel *grown = hak_realloc(*mine, size);
            REQUIRE(grown != NULL);
            size_t kept = grown->size < size ? grown->size : size;
            kept = (kept - sizeof *grown) & ~(size_t)7;
            REQUIRE(pattern_mismatch(grown->bytes, kept, grown->seed) == SIZE_MAX);
            grown->size = size;
            pattern_fill(grown->bytes, size - sizeof *grown, grown->seed);
            *mine = grown;
        } else { /* swap with the table; free what came out */
            struct parcel **slot = &shared_slots[random_below(&random, SLOTS)];
            struct parcel *got = __atomic_exchange_n(slot, *mine, __ATOMIC_ACQ_REL);
            *mine = NULL;
            if (got != NULL) {
                parcel_free(got);
            }
        }
        if (step % 1024 == 0) {
            sched_yield();
        }
    }
    for (size_t i = 0; i < COUNT_OF(own); i++) {
        if (own[i] != NULL) {
            parcel_free(own[i]);
        }
    }
    return NULL;
}

TEST(more_threads_than_processors)
{
    pthread_t threads[THREADS_MAX];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = processors < 4 ? 16 : (size_t)processors * 4;
    count = count > THREADS_MAX ? THREADS_MAX : count;
    steps_each = (SUPPORT_SLOW ? 80000 : 400000) / count;
    struct hak_stats before = stats_now();
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            threads[i] = thread_start(stress, (void *)(uintptr_t)(i + 1 + round * THREADS_MAX));
        }
        JOIN_ALL(threads, count);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (shared_slots[i] != NULL) {
            parcel_free(shared_slots[i]);
        }
    }
    struct hak_stats after = stats_now();
    REQUIRE_SIZE(after.objects_in_use_count, ==, before.objects_in_use_count);
    REQUIRE_SIZE(after.bytes_in_use, ==, before.bytes_in_use);
    REQUIRE_SIZE(after.heaps_count, <=, heaps_most());
}

TESTS(NULL)
