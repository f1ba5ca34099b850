/* SPDX-License-Identifier: MIT */
/* test_stop_world.c: a collector stops all threads by a signal, at any point and also inside the
 * allocator, and allocates and frees before it lets them go on. It must never wait for a lock of a
 * stopped thread. Afterwards memory is whole, and no more than before.
 *
 * Sanitizers deliver no signal inside the allocator.
 * ctest: not-again no-tsan no-asan */
#include "threads.h"

#include <hakmem/heap.h>

#include <semaphore.h>

enum { THREADS_MAX = 16, KEPT = 300, SLOTS = 256, HANG_SECONDS = 280 };

static struct {
    sem_t stopped;
    uint32_t round; /* of stops; a stopped thread waits until it changes */
    uint32_t forks; /* of mutator 0 */
    bool ends;
    struct parcel *slots[SLOTS]; /* parcels on their way from one thread to another */
    hak_heap *heap;
} shared;

/* --- being stopped --- */

static void on_stop(int number)
{
    int saved = errno;
    uint32_t round = __atomic_load_n(&shared.round, __ATOMIC_ACQUIRE);
    sigset_t but_go;
    sigfillset(&but_go);
    sigdelset(&but_go, SIGUSR2);
    sem_post(&shared.stopped);
    while (__atomic_load_n(&shared.round, __ATOMIC_ACQUIRE) == round) {
        sigsuspend(&but_go);
    }
    errno = saved;
}

static void on_go(int number)
{
}

static void catch (int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    REQUIRE(sigaction(number, &action, NULL) == 0);
}

static void signal_all(const pthread_t *threads, size_t count, int number)
{
    for (size_t i = 0; i < count; i++) {
        REQUIRE(pthread_kill(threads[i], number) == 0);
    }
}

static void stop_all(const pthread_t *threads, size_t count)
{
    signal_all(threads, count, SIGUSR1);
    for (size_t i = 0; i < count; i++) {
        while (sem_wait(&shared.stopped) != 0) {
        }
    }
}

static void go_all(const pthread_t *threads, size_t count)
{
    __atomic_add_fetch(&shared.round, 1, __ATOMIC_RELEASE);
    signal_all(threads, count, SIGUSR2);
}

/* --- what all threads do --- */

static struct parcel *any_parcel(uint64_t *random)
{
    size_t size = random_below(random, 5000), kind = random_below(random, 1024);
    if (kind == 0) {
        size = 2 * MIB + random_below(random, 2 * MIB);
    } else if (kind < 16) {
        size = kind < 8 ? 64 * KIB + random_below(random, 600 * KIB) : 40 * KIB;
    }
    return parcel_create(size, *random);
}

/* Leaves a parcel for others, and frees what they have left. */
static void parcel_pass(struct parcel *parcel, uint64_t *random)
{
    parcel_free(
        __atomic_exchange_n(&shared.slots[random_below(random, SLOTS)], parcel, __ATOMIC_ACQ_REL));
}

static void fork_once(void)
{
    pid_t child = fork();
    if (child == 0) {
        hak_free(hak_malloc(100));
        _exit(0);
    }
    REQUIRE(child > 0);
    while (waitpid(child, NULL, 0) < 0) {
        REQUIRE(errno == EINTR);
    }
}

static void *mutate(void *argument)
{
    uint64_t random = 1 + (uintptr_t)argument;
    struct parcel *kept[KEPT] = {NULL};
    for (size_t i = 0; !__atomic_load_n(&shared.ends, __ATOMIC_RELAXED); i++) {
        struct parcel **place = &kept[random_below(&random, KEPT)];
        if (*place != NULL && random_below(&random, 8) == 0) {
            *place = parcel_resize(*place, random_below(&random, 90000));
        } else if (random_below(&random, 8) == 0) {
            parcel_pass(*place, &random);
            *place = NULL;
        } else {
            parcel_free(*place);
            *place = any_parcel(&random);
        }
        if (i % 16 == 0) {
            hak_heap_free(shared.heap, hak_heap_malloc(shared.heap, 1 + i % 3000));
        }
        if (i % 2048 == 2047 && __atomic_load_n(&shared.forks, __ATOMIC_RELAXED) != 0 &&
            argument == NULL) {
            __atomic_sub_fetch(&shared.forks, 1, __ATOMIC_RELAXED);
            fork_once();
        }
    }
    for (size_t i = 0; i < KEPT; i++) {
        parcel_free(kept[i]);
    }
    return NULL;
}

/* --- the collector --- */

static void *short_life(void *argument)
{
    hak_free(hak_malloc(1000));
    return NULL;
}

/* Beside stopped threads. With `forks` one of them may be stopped in fork: what waits for a fork to
 * end is left out. */
static void collect(uint64_t *random, size_t round, bool forks)
{
    struct parcel *own[60];
    for (size_t i = 0; i < 60; i++) {
        own[i] = parcel_create(i * 200, i);
    }
    for (size_t i = 0; i < 20; i++) {
        parcel_pass(any_parcel(random), random); /* frees blocks of stopped threads */
    }
    own[0] = parcel_resize(own[0], 3000);
    for (size_t i = 0; i < 60; i++) {
        parcel_free(own[i]);
    }
    if (round % 8 == 0) {
        parcel_free(parcel_create(400000, 1));
        parcel_free(parcel_create(3 * MIB, 1));
    }
    if (round % 16 == 0) {
        (void)hak_trim(0);
    }
    if (round % 16 == 8 && !forks) {
        (void)stats_now();
        hak_heap_free(shared.heap, hak_heap_malloc(shared.heap, 100));
        thread_join(thread_start(short_life, NULL));
    }
}

/* Nothing is in use but what `before` had, and what was put off is done. */
static void check_settled(const struct hak_stats *before, size_t resident_before)
{
    struct hak_stats after;
    for (size_t i = 0; i < SLOTS; i++) {
        parcel_free(__atomic_exchange_n(&shared.slots[i], NULL, __ATOMIC_ACQ_REL));
    }
    (void)hak_trim(0);
    (void)hak_trim(0);
    hak_stats_get(&after);
    REQUIRE_SIZE(after.objects_in_use_count, <=, before->objects_in_use_count);
    REQUIRE_SIZE(after.huge_count, ==, before->huge_count);
    REQUIRE_SIZE(after.bytes_in_use, <=, before->bytes_in_use);
    REQUIRE_SIZE(after.threads_count, <=, before->threads_count);
    if (!SUPPORT_EMULATED) { /* an emulator's own memory counts, too */
        REQUIRE_SIZE(rss_bytes(), <=, resident_before + 24 * MIB);
    }
}

static void run_part(size_t count, size_t stops, bool forks)
{
    pthread_t threads[THREADS_MAX];
    struct hak_stats before;
    uint64_t random = count;
    hak_free(hak_malloc(1));
    (void)hak_trim(0);
    hak_stats_get(&before);
    size_t resident_before = rss_bytes();
    shared.heap = hak_heap_create(NULL);
    REQUIRE(shared.heap != NULL);
    shared.ends = false;
    shared.forks = forks ? 20 : 0;
    threads_start(threads, count, mutate, 0);
    for (size_t round = 0; round < stops; round++) {
        stop_all(threads, count);
        collect(&random, round, forks);
        go_all(threads, count);
        usleep((useconds_t)random_below(&random, 300));
    }
    __atomic_store_n(&shared.ends, true, __ATOMIC_RELAXED);
    JOIN_ALL(threads, count);
    hak_heap_destroy(shared.heap);
    check_settled(&before, resident_before);
}

int main(void)
{
    const size_t stops = SUPPORT_SLOW ? 100 : 400;
    alarm(HANG_SECONDS);
    REQUIRE(sem_init(&shared.stopped, 0, 0) == 0);
    catch (SIGUSR1, on_stop);
    catch (SIGUSR2, on_go);
    run_part(4, stops, false);
    run_part(16, stops, false);
    run_part(2, stops, false);
    run_part(3, stops, true);
    return 0;
}
