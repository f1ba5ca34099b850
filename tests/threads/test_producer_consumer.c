/* SPDX-License-Identifier: MIT */
/* test_producer_consumer.c: some threads only allocate, others only free. The memory must go back
 * to those who allocate: a consumer that never allocates and a producer that never frees once grew
 * an allocator from 437 MiB to 1.8 GiB (docs: mimalloc issue 1364). RSS stays within 1.2 times the
 * live set and a few MiB for the caches. */
#include "threads.h"

enum { BATCH = 64 };

struct run {
    struct queue *queue;
    size_t parcels_each;
    size_t keep; /* parcels the consumers leave in the queue: the live set */
    size_t smallest, largest;
    size_t shared_rss_max;
    size_t shared_freed;
    size_t shared_number;
};

static void *produce(void *argument)
{
    struct run *run = argument;
    uint64_t random = 1 + __atomic_fetch_add(&run->shared_number, 1, __ATOMIC_RELAXED);
    for (size_t made = 0; made < run->parcels_each; made += BATCH) {
        void *batch[BATCH];
        for (size_t i = 0; i < BATCH; i++) {
            size_t size = run->smallest + random_below(&random, run->largest - run->smallest + 1);
            batch[i] = parcel_create(size, random);
        }
        queue_put(run->queue, batch, BATCH);
    }
    queue_close(run->queue);
    return NULL;
}

static void *consume(void *argument)
{
    struct run *run = argument;
    void *batch[BATCH];
    size_t taken;
    for (size_t rounds = 0; (taken = queue_take(run->queue, batch, BATCH, run->keep)) != 0;
         rounds++) {
        for (size_t i = 0; i < taken; i++) {
            parcel_free(batch[i]);
        }
        __atomic_fetch_add(&run->shared_freed, taken, __ATOMIC_RELAXED);
        if (rounds % 512 == 0) {
            size_t rss =
                rss_bytes(); /* two consumers may lose one another's peak: there are many samples */
            if (rss > __atomic_load_n(&run->shared_rss_max, __ATOMIC_RELAXED)) {
                __atomic_store_n(&run->shared_rss_max, rss, __ATOMIC_RELAXED);
            }
        }
    }
    return NULL;
}

/* Total traffic is many times the live set, so that a leak of a tenth of it would show. */
static void pipeline_run(size_t producers, size_t consumers, size_t smallest, size_t largest)
{
    enum { THREADS_MAX = 16 };
    pthread_t threads[THREADS_MAX];
    size_t mean = (smallest + largest) / 2;
    size_t live = SUPPORT_SLOW ? 8 * MIB : 32 * MIB;
    struct run run = {0};
    hak_trim(0);
    size_t before = rss_bytes();
    run.keep = live / mean;
    run.smallest = smallest;
    run.largest = largest;
    run.parcels_each = (run.keep * 12 / producers + BATCH) / BATCH * BATCH;
    run.queue = queue_create(run.keep + BATCH * producers, producers);
    for (size_t i = 0; i < producers + consumers; i++) {
        threads[i] = thread_start(i < producers ? produce : consume, &run);
    }
    JOIN_ALL(threads, producers + consumers);
    queue_destroy(run.queue);
    REQUIRE_SIZE(run.shared_freed, ==, producers * run.parcels_each);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(run.shared_rss_max, >=, live / 2);
        REQUIRE_SIZE(run.shared_rss_max, <=,
                     before + live + live / 5 + (4 + 2 * (producers + consumers)) * MIB);
        hak_trim(0);
        REQUIRE_SIZE(rss_bytes(), <=, before + 4 * MIB);
    }
}

TEST(pipelines)
{
    pipeline_run(1, 1, 500, 1000);
    pipeline_run(1, 1, 4000, 8000);
    pipeline_run(4, 1, 500, 3000);
    pipeline_run(1, 4, 500, 3000);
    pipeline_run(4, 4, 300, 20000);
}

TESTS(NULL)
