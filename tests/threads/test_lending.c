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

/* Has an arena of its own, frees, and stays. */
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

static void run_destroy(struct run *run)
{
    for (size_t i = 0; i < PARCELS; i++) {
        parcel_free(run->parcels[i]);
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
    size_t before = stats_now().bytes_mapped;
    thread_join(thread_start(allocate, &second));
    size_t after = stats_now().bytes_mapped;
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

TESTS(NULL)
