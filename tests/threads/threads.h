/* SPDX-License-Identifier: MIT */
/* threads.h: what the thread tests share: starting threads, how many arenas they
 * get, a bounded queue, parcels. */
#ifndef TESTS_THREADS_THREADS_H
#define TESTS_THREADS_THREADS_H

#include "../support.h"

/* Small stacks: a test may have thousands of threads. Sanitizers need more. */
static inline pthread_t thread_start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, SUPPORT_SANITIZED ? MIB : 128 * KIB) == 0);
    int error = pthread_create(&thread, &attributes, body, argument);
    pthread_attr_destroy(&attributes);
    if (error != 0) {
        support_fail("pthread_create: %s\n", strerror(error));
    }
    return thread;
}

static inline void thread_join(pthread_t thread)
{
    REQUIRE(pthread_join(thread, NULL) == 0);
}

#define JOIN_ALL(threads, count)                                                                   \
    do {                                                                                           \
        for (size_t i_ = 0; i_ < (size_t)(count); i_++) {                                          \
            thread_join((threads)[i_]);                                                            \
        }                                                                                          \
    } while (0)

/* Starts `count` threads; the argument of each is its number from `first` on. */
static inline void threads_start(pthread_t *threads, size_t count, void *(*body)(void *),
                                 uintptr_t first)
{
    for (size_t i = 0; i < count; i++) {
        threads[i] = thread_start(body, (void *)(first + i));
    }
}

/* The same, and waits for their ends. */
static inline void threads_run(size_t count, void *(*body)(void *), uintptr_t first)
{
    pthread_t threads[64];
    REQUIRE_SIZE(count, <=, COUNT_OF(threads));
    threads_start(threads, count, body, first);
    JOIN_ALL(threads, count);
}

/* The most arenas a process has, however many threads and however often they wait: two for each
 * processor it may run on, at level 2 four. One more if the threads that hold the locks of all of
 * them seem to be stopped: on an overloaded machine they may be preempted for so long. */
static inline size_t arenas_most(void)
{
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    return 1 + (HAK_LEVEL >= 2 ? 4 : 2 * (size_t)CPU_COUNT(&set));
}

/* A bounded queue of pointers, any number of threads at both ends. pthread's lock takes no memory.
 */
enum { QUEUE_MAX = 1 << 17 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t capacity;
    size_t first;
    size_t count;
    size_t producers;
    void *items[QUEUE_MAX];
};

static inline struct queue *queue_create(size_t capacity, size_t producers)
{
    struct queue *queue = support_map(sizeof *queue);
    REQUIRE_SIZE(capacity, <=, QUEUE_MAX);
    REQUIRE(pthread_mutex_init(&queue->lock, NULL) == 0);
    REQUIRE(pthread_cond_init(&queue->changed, NULL) == 0);
    queue->capacity = capacity;
    queue->producers = producers;
    return queue;
}

static inline void queue_put(struct queue *queue, void **items, size_t count)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count + count > queue->capacity) {
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    for (size_t i = 0; i < count; i++) {
        queue->items[(queue->first + queue->count++) % QUEUE_MAX] = items[i];
    }
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* One producer less; with the last one the queue ends. */
static inline void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->producers--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* Takes up to `count` once more than `keep` are there (or the producers ended); 0: the end. */
static inline size_t queue_take(struct queue *queue, void **items, size_t count, size_t keep)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count <= keep && queue->producers != 0) {
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    size_t taken = queue->count < count ? queue->count : count;
    for (size_t i = 0; i < taken; i++) {
        items[i] = queue->items[(queue->first + i) % QUEUE_MAX];
    }
    queue->first += taken;
    queue->count -= taken;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

static inline void queue_destroy(struct queue *queue)
{
    munmap(queue, sizeof *queue);
}

/* A block that knows its size and carries a pattern, for whoever frees it. */
struct parcel {
    size_t size;
    uint64_t seed;
    char bytes[];
};

static inline struct parcel *parcel_create(size_t size, uint64_t seed)
{
    size = size < sizeof(struct parcel) ? sizeof(struct parcel) : size;
    struct parcel *parcel = hak_malloc(size);
    REQUIRE(parcel != NULL);
    parcel->size = size;
    parcel->seed = seed;
    pattern_fill(parcel->bytes, size - sizeof *parcel, seed);
    return parcel;
}

static inline struct parcel *parcel_resize(struct parcel *parcel, size_t size)
{
    size = size < sizeof(struct parcel) ? sizeof(struct parcel) : size;
    struct parcel *resized = hak_realloc(parcel, size);
    REQUIRE(resized != NULL);
    size_t kept = (resized->size < size ? resized->size : size) - sizeof *resized;
    REQUIRE(pattern_mismatch(resized->bytes, kept & ~(size_t)7, resized->seed) == SIZE_MAX);
    resized->size = size;
    pattern_fill(resized->bytes, size - sizeof *resized, resized->seed);
    return resized;
}

static inline void parcel_free(struct parcel *parcel)
{
    if (parcel == NULL) {
        return;
    }
    size_t at = pattern_mismatch(parcel->bytes, parcel->size - sizeof *parcel, parcel->seed);
    if (at != SIZE_MAX) {
        support_fail("parcel %p of %zu bytes: contents differ at offset %zu\n", (void *)parcel,
                     parcel->size, at);
    }
    hak_free(parcel);
}

#endif
