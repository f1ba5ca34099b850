/* SPDX-License-Identifier: MIT */
/* test_stop_world.c: a collector stops all threads by a signal, at any point and also inside the
 * allocator, and allocates and frees before it lets them go on. It must never wait for a lock of a
 * stopped thread. Afterwards memory is whole, and no more than before.
 *
 * Usage: test_stop_world [stops of each part]. The parts differ in the number of threads.
 * ctest: not-again */
#include "threads.h"

#include <hakmem/heap.h>

#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

enum { THREADS_MAX = 16, KEPT = 300, SLOTS = 256, HANG_SECONDS = 280 };

static struct {
    sem_t stopped;
    uint32_t round; /* of stops; a stopped thread waits until it changes */
    uint32_t forks; /* of mutator 0 */
    bool ends;
    pid_t process;
    void *slots[SLOTS]; /* blocks on their way from one thread to another */
    hak_heap *heap;
} shared;

/* --- being stopped --- */

static void on_stop(int number)
{
    int saved = errno;
    /* A child has no signals that wait, but the thread sanitizer hands it those that it holds back.
     */
    if (SUPPORT_SANITIZED && getpid() != shared.process) {
        return;
    }
    uint32_t round = __atomic_load_n(&shared.round, __ATOMIC_ACQUIRE);
    sigset_t but_go;
    sigfillset(&but_go);
    sigdelset(&but_go, SIGUSR2);
    sem_post(&shared.stopped);
    while (__atomic_load_n(&shared.round, __ATOMIC_ACQUIRE) == round) {
        if (SUPPORT_SANITIZED) {
            usleep(100); /* the thread sanitizer delivers no second signal inside a handler */
        } else {
            sigsuspend(&but_go);
        }
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

/* The thread sanitizer loses a signal now and then on a busy machine, so there it is sent again. A
 * thread that had stopped already then stops once more, later. */
static void stop_all(const pthread_t *threads, size_t count, int number)
{
    while (sem_trywait(&shared.stopped) == 0) {
    }
    signal_all(threads, count, number);
    for (size_t stopped = 0; stopped < count;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += SUPPORT_SANITIZED ? 2 : HANG_SECONDS;
        if (sem_timedwait(&shared.stopped, &until) == 0) {
            stopped++;
        } else if (errno == ETIMEDOUT) {
            signal_all(threads, count, number);
        }
    }
}

static void go_all(const pthread_t *threads, size_t count)
{
    __atomic_add_fetch(&shared.round, 1, __ATOMIC_RELEASE);
    signal_all(threads, count, SIGUSR2);
}

/* --- what all threads do --- */

static size_t any_size(uint64_t *random)
{
    switch (random_below(random, 64)) {
    case 0:
        return 64 * KIB + random_below(random, 600 * KIB); /* a span */
    case 1:
        return random_below(random, 8) == 0 ? 2 * MIB + random_below(random, 2 * MIB) : 40 * KIB;
    default:
        return 1 + random_below(random, 5000);
    }
}

/* A block holds its size in its first 8 bytes and in its last byte. */
static void *block_mark(void *block, size_t size)
{
    REQUIRE(block != NULL);
    memcpy(block, &size, size < sizeof size ? size : sizeof size);
    if (size >= sizeof size) {
        ((unsigned char *)block)[size - 1] = (unsigned char)(size >= 9 ? size : 0);
    }
    return block;
}

static size_t block_check(void *block)
{
    size_t size;
    memcpy(&size, block, sizeof size);
    REQUIRE_SIZE(hak_usable_size(block), >=, size);
    REQUIRE(size < 9 || ((unsigned char *)block)[size - 1] == (unsigned char)size);
    return size;
}

static void *block_make(uint64_t *random)
{
    size_t size = 8 + any_size(random);
    switch (random_below(random, 4)) {
    case 0: {
        unsigned char *block = hak_calloc(1, size);
        REQUIRE(block != NULL && block[0] == 0 && block[size / 2] == 0 && block[size - 1] == 0);
        return block_mark(block, size);
    }
    case 1: {
        size_t alignment = (size_t)16 << random_below(random, 9);
        size = (size + alignment - 1) / alignment * alignment;
        void *block = hak_aligned_alloc(alignment, size);
        REQUIRE((uintptr_t)block % alignment == 0);
        return block_mark(block, size);
    }
    default:
        return block_mark(hak_malloc(size), size);
    }
}

static void *block_resize(void *block, uint64_t *random)
{
    size_t size = 8 + any_size(random), old = block_check(block);
    void *resized = hak_realloc(block, size);
    REQUIRE(resized != NULL);
    size_t kept;
    memcpy(&kept, resized, sizeof kept);
    REQUIRE_SIZE(kept, ==, old);
    return block_mark(resized, size);
}

static void block_free(void *block)
{
    if (block != NULL) {
        (void)block_check(block);
        hak_free(block);
    }
}

/* Leaves a block for others, and frees what they have left. */
static void block_pass(void *block, uint64_t *random)
{
    block_free(
        __atomic_exchange_n(&shared.slots[random_below(random, SLOTS)], block, __ATOMIC_ACQ_REL));
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
    void *kept[KEPT] = {NULL};
    for (size_t i = 0; !__atomic_load_n(&shared.ends, __ATOMIC_RELAXED); i++) {
        void **place = &kept[random_below(&random, KEPT)];
        if (*place != NULL && random_below(&random, 8) == 0) {
            *place = block_resize(*place, &random);
        } else if (random_below(&random, 8) == 0) {
            block_pass(*place, &random);
            *place = NULL;
        } else {
            block_free(*place);
            *place = block_make(&random);
        }
        if (SUPPORT_SANITIZED && i % 64 == 0) {
            usleep(1); /* the thread sanitizer delivers signals in such calls only */
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
        block_free(kept[i]);
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
    void *own[60];
    for (size_t i = 0; i < 60; i++) {
        own[i] = block_mark(hak_malloc(i * 200 + 8), i * 200 + 8);
    }
    for (size_t i = 0; i < 20; i++) {
        block_pass(block_make(random), random); /* frees blocks of stopped threads */
    }
    own[0] = block_resize(own[0], random);
    for (size_t i = 0; i < 60; i++) {
        block_free(own[i]);
    }
    if (round % 8 == 0) {
        block_free(block_mark(hak_malloc(400000), 400000));
        block_free(block_mark(hak_malloc(3 * MIB), 3 * MIB));
    }
    if (round % 16 == 0) {
        (void)hak_trim(0);
    }
    if (round % 16 == 8 && !forks) {
        struct hak_stats stats;
        hak_stats_get(&stats);
        hak_heap_free(shared.heap, hak_heap_malloc(shared.heap, 100));
        thread_join(thread_start(short_life, NULL));
    }
}

static size_t resident_kib(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%*s %lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE) / KIB;
}

/* Nothing is in use but what `before` had, and what was put off is done. */
static void check_settled(const struct hak_stats *before, size_t resident_before)
{
    struct hak_stats after;
    for (size_t i = 0; i < SLOTS; i++) {
        block_free(__atomic_exchange_n(&shared.slots[i], NULL, __ATOMIC_ACQ_REL));
    }
    (void)hak_trim(0);
    (void)hak_trim(0);
    hak_stats_get(&after);
    REQUIRE_SIZE(after.objects_in_use_count, <=, before->objects_in_use_count);
    REQUIRE_SIZE(after.whales_count, ==, before->whales_count);
    REQUIRE_SIZE(after.bytes_in_use, <=, before->bytes_in_use);
    REQUIRE_SIZE(after.threads_count, <=, before->threads_count);
    size_t resident = resident_kib();
    printf("resident: %zu KiB before, %zu after; %zu heaps\n", resident_before, resident,
           (size_t)after.heaps_count);
    if (!SUPPORT_SANITIZED && !SUPPORT_EMULATED) { /* an emulator's own memory counts, too */
        REQUIRE_SIZE(resident, <=, resident_before + 24 * KIB);
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
    size_t resident_before = resident_kib();
    shared.heap = hak_heap_create(NULL);
    REQUIRE(shared.heap != NULL);
    shared.ends = false;
    shared.forks = forks ? 20 : 0;
    for (size_t i = 0; i < count; i++) {
        threads[i] = thread_start(mutate, (void *)i);
    }
    for (size_t round = 0; round < stops; round++) {
        stop_all(threads, count, SIGUSR1);
        collect(&random, round, forks);
        go_all(threads, count);
        usleep((useconds_t)random_below(&random, 300));
    }
    __atomic_store_n(&shared.ends, true, __ATOMIC_RELAXED);
    JOIN_ALL(threads, count);
    hak_heap_destroy(shared.heap);
    printf("%zu stops of %zu threads%s\n", stops, count, forks ? ", one of which forks" : "");
    check_settled(&before, resident_before);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t stops = argc > 1            ? (size_t)atol(argv[1])
                   : SUPPORT_SANITIZED ? 50
                   : SUPPORT_SLOW      ? 100
                                       : 400;
    if (argc <= 1) {
        alarm(HANG_SECONDS);
    }
    REQUIRE(sem_init(&shared.stopped, 0, 0) == 0);
    shared.process = getpid();
    catch (SIGUSR1, on_stop);
    catch (SIGUSR2, on_go);
    run_part(4, stops, false);
    run_part(16, stops, false);
    run_part(2, stops, false);
    run_part(3, stops, true);
    return 0;
}
