/* SPDX-License-Identifier: MIT */
/* refill.c: a thread's empty cache is filled by the thread itself or by a background worker.
 *
 * Imitates: thread caches in front of a pool that a lock guards. A thread allocates BURST objects
 * and frees them, over and over. A cache of 256 absorbs small bursts; larger ones take batches of
 * 64 from the pool and give them back. The variants:
 *
 *   demand  the thread takes the lock and a batch when its cache is empty
 *   push    a worker keeps a batch ready for each thread: it looks every 50 microseconds
 *   pull    the worker sleeps until a thread asks for a batch, which it does at each refill
 *
 * Where no batch is ready, push and pull do what demand does. The line of JSON says how many
 * batches came from the pool (`refills_own`) and from the worker (`refills_ready`).
 *
 * Does not show: what else the worker of a real allocator would do, such as mapping memory.
 *
 * Concurrency: the lock guards the pool. `shared_ready` goes from worker to thread by release and
 * acquire; only the worker makes it non-NULL, only the thread makes it NULL. `shared_asked` keeps
 * a thread from waking the worker twice for one batch.
 */
#include "replication.h"

#include <sched.h>
#include <semaphore.h>

enum { ITER, BURST, THREADS, SEED, VARIANT, ARGUMENT_COUNT };
enum { DEMAND, PUSH, PULL };

#define OBJECT_SIZE 64
#define BATCH 64
#define CACHE_MAX 256
#define PUSH_PAUSE_NS 50000 /* shorter takes a processor for itself, longer misses more refills */

/* With --check so many refills of a thread wait for the worker, each so many yields: less may see
 * no batch of the worker's, more takes longer. */
#define CHECKED_REFILLS 100
#define CHECKED_YIELDS 500

static const char *const variants[] = {"demand", "push", "pull", NULL};
static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [ITER] = REPLICATION_ITER(5000, 100),
    [BURST] = {.name = "BURST",
               .meaning = "objects allocated, then freed, in each step",
               .value = 2000,
               .value_smoke = 2000,
               .min = 1,
               .max = 100000},
    [THREADS] = REPLICATION_THREADS,
    [SEED] = REPLICATION_SEED,
    [VARIANT] = REPLICATION_VARIANT_OF(variants),
};
REPLICATION_WORKLOAD(
    "refill", "Allocates and frees bursts of objects; the thread or a worker refills its cache.");

struct cache {
    struct object *free;
    uint64_t count;
    struct object **burst;
    uint64_t refills_own;
    uint64_t refills_ready;
    struct memory memory;
    struct object *_Atomic shared_ready __attribute__((aligned(BENCH_LINE))); /* a batch */
    _Atomic bool shared_asked;
} __attribute__((aligned(BENCH_LINE)));

/* A stack of batches: the first object of each holds, in `home`, the first of the next batch. */
static struct object *pool;
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static struct cache caches[64];
static sem_t worker_wake;
static _Atomic bool shared_stop;

static struct object *pool_take(void)
{
    struct object *batch;
    (void)pthread_mutex_lock(&pool_lock);
    batch = pool;
    if (batch != NULL) {
        pool = batch->home;
    }
    (void)pthread_mutex_unlock(&pool_lock);
    return batch;
}

static void pool_give(struct object *batch)
{
    (void)pthread_mutex_lock(&pool_lock);
    batch->home = pool;
    pool = batch;
    (void)pthread_mutex_unlock(&pool_lock);
}

static void *worker_run(void *unused)
{
    static const struct timespec pause = {.tv_nsec = PUSH_PAUSE_NS};
    (void)unused;
    while (!atomic_load_explicit(&shared_stop, memory_order_acquire)) {
        for (unsigned i = 0; i < bench_thread_count(); i++) {
            atomic_store_explicit(&caches[i].shared_asked, false, memory_order_relaxed);
            if (atomic_load_explicit(&caches[i].shared_ready, memory_order_acquire) == NULL) {
                struct object *batch = pool_take();
                atomic_store_explicit(&caches[i].shared_ready, batch, memory_order_release);
            }
        }
        if (arguments[VARIANT].value == PULL) {
            (void)sem_wait(&worker_wake);
        } else {
            (void)nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

/* The batch that is ready, or NULL. */
static struct object *ready_look(struct cache *cache)
{
    struct object *batch = atomic_load_explicit(&cache->shared_ready, memory_order_acquire);
    bool waits = flags[0].is_set && cache->refills_own + cache->refills_ready < CHECKED_REFILLS;
    for (size_t i = 0; waits && batch == NULL && i < CHECKED_YIELDS; i++) {
        (void)sched_yield();
        batch = atomic_load_explicit(&cache->shared_ready, memory_order_acquire);
    }
    return batch;
}

/* One batch from the worker, the pool or fresh memory. */
static __attribute__((noinline)) void cache_refill(struct cache *cache, uint64_t variant)
{
    struct object *batch = NULL;
    if (variant != DEMAND) {
        batch = ready_look(cache);
    }
    if (batch != NULL) {
        atomic_store_explicit(&cache->shared_ready, NULL, memory_order_release);
        cache->refills_ready++;
    } else {
        batch = pool_take();
        cache->refills_own++;
    }
    if (variant == PULL &&
        !atomic_exchange_explicit(&cache->shared_asked, true, memory_order_relaxed)) {
        (void)sem_post(&worker_wake);
    }
    for (size_t i = 0; batch == NULL && i < BATCH; i++) {
        struct object *object = replication_carve(&cache->memory, OBJECT_SIZE);
        object->next = cache->free;
        cache->free = object;
    }
    cache->free = batch != NULL ? batch : cache->free;
    cache->count = BATCH;
}

/* Gives the first 64 objects back to the pool. */
static __attribute__((noinline)) void cache_flush(struct cache *cache)
{
    struct object *batch = cache->free;
    struct object *last = batch;
    for (size_t i = 1; i < BATCH; i++) {
        last = last->next;
    }
    cache->free = last->next;
    cache->count -= BATCH;
    last->next = NULL;
    pool_give(batch);
}

BENCH_INLINE void bursts_run(struct bench_thread *thread, bool is_checked)
{
    struct cache *cache = thread->data;
    uint64_t burst_count = arguments[BURST].value;
    uint64_t variant = arguments[VARIANT].value;
    for (uint64_t step = 0; step < arguments[ITER].value; step++) {
        for (uint64_t i = 0; i < burst_count; i++) {
            struct object *object;
            if (cache->free == NULL) {
                cache_refill(cache, variant);
            }
            object = cache->free;
            cache->free = object->next;
            cache->count--;
            replication_taken(is_checked, object);
            cache->burst[i] = object;
        }
        for (uint64_t i = 0; i < burst_count; i++) {
            struct object *object = cache->burst[i];
            replication_freed(is_checked, object);
            object->next = cache->free;
            cache->free = object;
            if (++cache->count > CACHE_MAX) {
                cache_flush(cache);
            }
        }
    }
    thread->operations = 2 * burst_count * arguments[ITER].value;
}

static void bursts_prepare(struct bench_thread *thread)
{
    struct cache *cache = &caches[thread->index];
    cache->burst = bench_map(arguments[BURST].value * sizeof(struct object *));
    thread->data = cache;
}

static void bursts_measure(struct bench_thread *thread)
{
    if (flags[0].is_set) {
        bursts_run(thread, true);
    } else {
        bursts_run(thread, false);
    }
}

/* After the worker's end: every object is in a cache, ready, or in the pool. */
static void bursts_check(void)
{
    uint64_t found = 0;
    uint64_t carved = 0;
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        found += replication_length(caches[i].free, CACHE_MAX);
        found += replication_length(atomic_load(&caches[i].shared_ready), BATCH);
        carved += caches[i].memory.carved;
    }
    for (struct object *batch = pool; batch != NULL && found <= carved; batch = batch->home) {
        found += replication_length(batch, BATCH);
    }
    replication_expect_all(flags[0].is_set, found, carved);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {bursts_prepare, bursts_measure, NULL};
    uint64_t refills_own = 0;
    uint64_t refills_ready = 0;
    pthread_t worker = 0;
    replication_start(&workload, &arguments[VARIANT], argc, argv);
    (void)sem_init(&worker_wake, 0, 0);
    if (arguments[VARIANT].value != DEMAND) {
        worker = bench_thread_create(worker_run, NULL);
    }
    bench_run(&phases);
    if (arguments[VARIANT].value != DEMAND) {
        atomic_store_explicit(&shared_stop, true, memory_order_release);
        (void)sem_post(&worker_wake);
        (void)pthread_join(worker, NULL);
    }
    bursts_check();
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        refills_own += caches[i].refills_own;
        refills_ready += caches[i].refills_ready;
    }
    bench_note("refills_own", NULL, refills_own);
    bench_note("refills_ready", NULL, refills_ready);
    bench_report();
    return 0;
}
