/* SPDX-License-Identifier: MIT */
/* test_many_threads.c: 2,000 threads alive at once, each of which has allocated and freed:
 * their caches together are bounded, not only each (400 caches of 2.5 MB were jemalloc's issue
 * 2757), and nothing stays when they have ended.
 *
 * ctest: not-again lock=threads no-tsan no-qemu no-secure
 */
#include "../report.h"
#include "threads.h"

/* What all idle threads together may hold: the bound of all thread caches, which is set to that of
 * a machine with 1 GiB of RAM; what else is in the slabs of these objects; and OS pages of a
 * thread, two of its stack and three of its struct. The slabs are 3 to 5 times what is cached; the
 * bound leaves room for more.
 */
#define BUDGET_NAME "HAKMEM_CACHE_BYTES_TOTAL"
#define BUDGET_VALUE "16m"
#define CACHES_MAX (16 * MIB)
#define SLABS_MAX(cached) (16 * MIB + 8 * (cached))
#define THREAD_COST (20 * KIB)
#define TABLES_MAX MIB

/* A tenth of the default decay, so that nobody waits for it long. */
#define DECAY_NAME "HAKMEM_PURGE_DELAY_MS"
#define DECAY_VALUE "100"

enum { PARCELS = 600, DECAY_MS = 100, OPERATIONS = 3000 };

static pthread_barrier_t all_have_freed;
static pthread_barrier_t all_may_end;
/* Threads that wait for an arena's lock move to another arena, and then hold remote frees as well
 * (test_idle_threads.c), and what is left of refills. How many do is the machine's. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* About 2.5 MB in 600 parcels of many classes, all freed again, then idle until told to end. */
static void *allocate_and_idle(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    struct parcel **parcels = support_map(PARCELS * sizeof *parcels);
    pthread_mutex_lock(&one_at_a_time);
    for (size_t i = 0; i < PARCELS; i++) {
        parcels[i] = parcel_create(16 + random_below(&random, i % 8 == 0 ? 24000 : 2700), random);
    }
    for (size_t i = 0; i < PARCELS; i++) {
        parcel_free(parcels[i]);
    }
    pthread_mutex_unlock(&one_at_a_time);
    munmap(parcels, PARCELS * sizeof *parcels);
    pthread_barrier_wait(&all_have_freed);
    pthread_barrier_wait(&all_may_end);
    return NULL;
}

/* At least three times the decay, in which this thread alone allocates and frees. */
static void some_operations(void)
{
    for (unsigned i = 0; i < OPERATIONS; i++) {
        parcel_free(parcel_create(16 + i * 37 % 3000, i));
        parcel_free(parcel_create(70000 + i % 10 * 10000, i));
        usleep(3 * DECAY_MS * 1000 / OPERATIONS);
    }
}

TEST(2000_threads)
{
    const size_t count = SUPPORT_SLOW ? 500 : 2000;
    pthread_t *threads = support_map(count * sizeof *threads);
    hak_trim(0);
    struct hak_stats before = stats_now();
    size_t rss_before = rss_bytes();
    assert_int_equal(pthread_barrier_init(&all_have_freed, NULL, (unsigned)count + 1), 0);
    assert_int_equal(pthread_barrier_init(&all_may_end, NULL, (unsigned)count + 1), 0);
    threads_start(threads, count, allocate_and_idle, 1);
    pthread_barrier_wait(&all_have_freed);
    some_operations();
    size_t idle = rss_bytes() - rss_before;
    struct hak_stats full = stats_now();
    size_t slabs = report_number("slab_bytes") + report_number("span_cached_bytes");
    REQUIRE_SIZE(full.arenas_count, <=, arenas_most());
    REQUIRE_SIZE(full.threads_count, >=, before.threads_count + count);
    REQUIRE_SIZE(full.threads_count, <=, before.threads_count + count + 1); /* main's */
    REQUIRE_SIZE(full.bytes_in_use, ==, before.bytes_in_use);
    pthread_barrier_wait(&all_may_end);
    JOIN_ALL(threads, count);
    munmap(threads, count * sizeof *threads);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(full.bytes_cached, <=, CACHES_MAX);
        REQUIRE_SIZE(slabs, <=, SLABS_MAX(full.bytes_cached));
        REQUIRE_SIZE(idle, <=, slabs + full.bytes_free_dirty + count * THREAD_COST + TABLES_MAX);
        hak_trim(0);
        /* threads' structs stay, parked, and glibc's cached stacks */
        REQUIRE_SIZE(rss_bytes(), <=, rss_before + 4 * MIB + count * 12 * KIB);
    }
    REQUIRE_SIZE(stats_now().bytes_in_use, ==, before.bytes_in_use);
}

int main(int argc, char **argv)
{
    const char *budget = getenv(BUDGET_NAME);
    if (budget == NULL || strcmp(budget, BUDGET_VALUE) != 0) { /* options are read at start only */
        REQUIRE(setenv(BUDGET_NAME, BUDGET_VALUE, 1) == 0);
        REQUIRE(setenv(DECAY_NAME, DECAY_VALUE, 1) == 0);
        execv("/proc/self/exe", argv);
        REQUIRE(false);
    }
    return tests_run(NULL, NULL);
}
