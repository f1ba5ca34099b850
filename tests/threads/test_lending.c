/* SPDX-License-Identifier: MIT */
/* test_lending.c: what one thread freed serves another before the process grows, also where it lies
 * in slabs that still hold something. Arenas that keep such memory to themselves grow by the whole
 * load each time that moves to another thread. */
#include "threads.h"

#include "hakmem/stats.h"

enum { PARCELS = SUPPORT_SLOW ? 4096 : 32768 };

struct run {
    size_t size;
    size_t shared_left; /* threads whose parcels are freed but for every eighth */
    void **parcels;
};

static void *allocate(void *argument)
{
    struct run *run = argument;
    for (size_t i = 0; i < PARCELS; i++) {
        run->parcels[i] = parcel_create(run->size, i);
    }
    return NULL;
}

/* Has a heap of its own, frees, and stays. */
static void *allocate_and_thin(void *argument)
{
    struct run *run = argument;
    allocate(run);
    for (size_t i = 0; i < PARCELS; i++) {
        if (i % 8 != 0) {
            parcel_free(run->parcels[i]);
            run->parcels[i] = NULL;
        }
    }
    __atomic_store_n(&run->shared_left, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&run->shared_left, __ATOMIC_ACQUIRE) != 2) {
        usleep(1000);
    }
    return NULL;
}

static size_t mapped_bytes(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats);
    return stats.bytes_mapped;
}

static void run_destroy(struct run *run)
{
    for (size_t i = 0; i < PARCELS; i++) {
        if (run->parcels[i] != NULL) {
            parcel_free(run->parcels[i]);
        }
    }
    munmap(run->parcels, PARCELS * sizeof *run->parcels);
}

static void load_moves(size_t size)
{
    struct run first = {.size = size}, second = {.size = size};
    first.parcels = support_map(PARCELS * sizeof *first.parcels);
    second.parcels = support_map(PARCELS * sizeof *second.parcels);
    pthread_t thinned = thread_start(allocate_and_thin, &first);
    while (__atomic_load_n(&first.shared_left, __ATOMIC_ACQUIRE) != 1) {
        usleep(1000);
    }
    size_t before = mapped_bytes();
    thread_join(thread_start(allocate, &second));
    size_t after = mapped_bytes();
    print_message("%zu bytes: %zu KiB, and %zu more after as many again\n", size, before / KIB,
                  (after - before) / KIB);
    /* an eighth is in use still; what is in the bins of the first is not lent */
    REQUIRE_SIZE(after - before, <=, PARCELS * size / 4 + 4 * MIB);
    __atomic_store_n(&first.shared_left, 2, __ATOMIC_RELEASE);
    thread_join(thinned);
    run_destroy(&first);
    run_destroy(&second);
    hak_trim(0);
}

TEST(load_moves)
{
    load_moves(2000);
    load_moves(5000);
}

/* Slabs of a few objects, freed by others at the very moment in which they are lent: threads that
 * exchange parcels, while memory goes back all the time and so every new slab is growth. */
struct exchange {
    struct queue *queue;
    int shared_stop;
};

static void *exchange_parcels(void *argument)
{
    struct exchange *exchange = argument;
    static uint64_t shared_number;
    uint64_t random = 1 + __atomic_fetch_add(&shared_number, 1, __ATOMIC_RELAXED);
    void *batch[16];
    while (!__atomic_load_n(&exchange->shared_stop, __ATOMIC_RELAXED)) {
        for (size_t i = 0; i < COUNT_OF(batch); i++) {
            batch[i] = parcel_create(1100 + random_below(&random, 900), random);
        }
        queue_put(exchange->queue, batch, COUNT_OF(batch));
        size_t taken = queue_take(exchange->queue, batch, COUNT_OF(batch), 0);
        for (size_t i = 0; i < taken; i++) {
            parcel_free(batch[i]);
        }
    }
    queue_close(exchange->queue);
    return NULL;
}

TEST(exchange)
{
    enum { THREADS = 6, QUEUE_PARCELS = 1024, TRIMS = SUPPORT_SLOW ? 500 : 5000 };
    struct exchange exchange = {.queue = queue_create(QUEUE_PARCELS, THREADS)};
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = thread_start(exchange_parcels, &exchange);
    }
    for (size_t i = 0; i < TRIMS; i++) {
        hak_trim(0);
        usleep(20);
    }
    __atomic_store_n(&exchange.shared_stop, 1, __ATOMIC_RELAXED);
    JOIN_ALL(threads, THREADS);
    void *left[16];
    for (size_t taken; (taken = queue_take(exchange.queue, left, COUNT_OF(left), 0)) != 0;) {
        for (size_t i = 0; i < taken; i++) {
            parcel_free(left[i]);
        }
    }
    queue_destroy(exchange.queue);
}

TESTS(NULL)
