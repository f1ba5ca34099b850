/* SPDX-License-Identifier: MIT */
/* paths_remote.c: objects that one thread allocates and another frees. See paths.h.
 *
 * One worker does a job when it is told to and sleeps otherwise, so that each step of the protocol
 * between owner and freer happens at a known place. Batches have 128 objects, four a slab.
 */
#include "paths.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

#include "hakmem/stats.h"

enum {
    REMOTE_BATCH = 128,
    REMOTE_SENT_AT_ONCE = 65536, /* bytes: an object that fills a batch by itself */
    REMOTE_SLAB_OBJECTS = 8,     /* of that size */
    TICK_SLICE_OBJECTS = 32,     /* of TICK_OBJECT bytes in a slice, and in a slab */
    TICK_OBJECT = 1024,          /* a larger one might stay in the bin of whoever frees it */
    TICK_OPERATIONS = 64,        /* slow operations from one tick to the next */
    TICK_TRIES = 16,             /* of one that comes by operations: the clock may bring it, too */
    TICK_SIZE = 131072           /* of a span: malloc and free are a slow operation each */
};

static sem_t worker_go, worker_done;
static void (*worker_job)(void);
static size_t owned_count, owned_size; /* objects the worker is to allocate */

static void *worker_main(void *argument)
{
    for (;;) {
        while (sem_wait(&worker_go) != 0) { /* a signal */
        }
        worker_job();
        (void)sem_post(&worker_done);
    }
    return argument;
}

void paths_worker_do(void (*job)(void))
{
    worker_job = job;
    (void)sem_post(&worker_go);
    while (sem_wait(&worker_done) != 0) {
    }
}

/* Moves the calling thread to the processor `skipped` places after the first it may run on. */
static bool thread_move(unsigned skipped)
{
    cpu_set_t allowed, chosen;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        (unsigned)CPU_COUNT(&allowed) <= skipped) {
        return false;
    }
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || skipped-- != 0) {
        cpu++;
    }
    CPU_ZERO(&chosen);
    CPU_SET(cpu, &chosen);
    return sched_setaffinity(0, sizeof chosen, &chosen) == 0;
}

static bool worker_is_apart;

static void job_move(void)
{
    worker_is_apart = thread_move(1);
}

bool paths_worker_start(void)
{
    pthread_t worker;
    if (sem_init(&worker_go, 0, 0) != 0 || sem_init(&worker_done, 0, 0) != 0 ||
        pthread_create(&worker, NULL, worker_main, NULL) != 0) {
        paths_fail(PATHS_STATUS_FAILED, "no second thread can be had.");
    }
    paths_worker_do(job_move);
    return worker_is_apart && thread_move(0);
}

static void job_allocate(void)
{
    paths_hold(0, owned_count, owned_size);
}

/* Each object of this size is carved by itself, so each allocation refills, and every refill takes
 * notice of what others have freed. */
static void job_drain(void)
{
    paths_keep(REMOTE_SENT_AT_ONCE);
}

static void job_free(void)
{
    free(paths_pointers[0]);
}

/* The worker owns as many objects as the rounds need. */
static void owned_start(size_t count, size_t size)
{
    (void)paths_worker_start();
    owned_count = count;
    owned_size = size;
    if (owned_count > PATHS_HELD_MAX) {
        paths_fail(PATHS_STATUS_USAGE, "too many rounds for this path.");
    }
    paths_worker_do(job_allocate);
    paths_next = 0;
}

static void remote_free(size_t count)
{
    paths_release(paths_next, count);
    paths_next += count;
}

/* ---- Into the buffer. ---- */

static void push_start(const struct path *path, unsigned rounds)
{
    owned_start((size_t)rounds * REMOTE_BATCH, PATHS_OBJECT);
}

/* The buffer has no entry of the slab: the round before has sent it. */
static void first_prepare(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < path->count; i++) {
        paths_pointers[i] = paths_held[paths_next++];
    }
}

static void push_prepare(const struct path *path, unsigned round)
{
    remote_free(1); /* makes the entry */
    first_prepare(path, round);
}

static void push_finish(const struct path *path, unsigned round)
{
    remote_free(REMOTE_BATCH - paths_next % REMOTE_BATCH); /* the last of these sends */
}

/* ---- Out of it. ---- */

enum { SENDS_A_SLAB = PATHS_SLAB / REMOTE_BATCH };

static void send_start(const struct path *path, unsigned rounds)
{
    size_t slabs = rounds / (SENDS_A_SLAB - 1) + 1;
    owned_start(slabs * PATHS_SLAB, PATHS_OBJECT);
}

static void batch_but_one(void)
{
    remote_free(REMOTE_BATCH - 1);
    paths_pointers[0] = paths_held[paths_next++];
}

/* The first batch of a slab tells its owner, the others find that it has been told. */
static void send_prepare(const struct path *path, unsigned round)
{
    if (round % (SENDS_A_SLAB - 1) == 0) {
        paths_worker_do(job_drain);
        remote_free(REMOTE_BATCH);
    }
    batch_but_one();
}

static void notify_prepare(const struct path *path, unsigned round)
{
    batch_but_one();
}

static void notify_finish(const struct path *path, unsigned round)
{
    paths_worker_do(job_drain);
}

/* ---- Out of it because it is time. ---- */

static uint64_t batches_sent(void)
{
    uint64_t count;
    if (!hak_stats_value("counters.remote_batches", &count)) {
        paths_fail(PATHS_STATUS_FAILED, "the library does not count remote_batches.");
    }
    return count;
}

/* A tick sends what is buffered: slow operations, until that is seen. */
static void tick_find(const struct path *path)
{
    remote_free(1);
    uint64_t before = batches_sent();
    for (unsigned i = 0; batches_sent() == before; i++) {
        if (i == TICK_OPERATIONS) {
            paths_fail(PATHS_STATUS_FAILED, "%u slow operations and no tick.", i);
        }
        paths_keep(path->size);
    }
}

/* All but the last of the slow operations from the tick before to the next. */
static void tick_approach(const struct path *path, unsigned round)
{
    for (unsigned i = 0; i < TICK_OPERATIONS / 2 - 1; i++) {
        free(paths_allocate(path->size));
    }
    paths_prepare_allocate(path, round);
}

static void tick_start(const struct path *path, unsigned rounds)
{
    /* some to spare for what is tried again */
    owned_start(rounds + 2 * REMOTE_BATCH, PATHS_OBJECT);
    tick_find(path);
}

/* A tick that finds nothing counts nothing, so one that sends is seen to be where it should. */
static void tick_prepare(const struct path *path, unsigned round)
{
    for (unsigned tries = 1;; tries++) {
        remote_free(1);
        tick_approach(path, round);
        uint64_t before = batches_sent();
        free(paths_pointers[0]);
        if (batches_sent() == before + 1) {
            break;
        }
        if (tries == TICK_TRIES) {
            paths_fail(PATHS_STATUS_FAILED, "the tick came at another operation.");
        }
        tick_find(path);
    }
    tick_approach(path, round);
}

static void tick_send_start(const struct path *path, unsigned rounds)
{
    owned_start((rounds + 1) * TICK_SLICE_OBJECTS, TICK_OBJECT);
    tick_find(path);
}

/* Each round an object of another slice, so that the entries are met anywhere in the buffer; its
 * owner has taken notice of the one before. A tick comes first: the next would be early if the wait
 * for the owner took long. */
static void tick_send_prepare(const struct path *path, unsigned round)
{
    paths_worker_do(job_drain);
    tick_find(path);
    paths_next = (round + 1) * TICK_SLICE_OBJECTS;
    remote_free(1);
    tick_approach(path, round);
}

/* ---- And back to the owner, who is the main thread this time. ---- */

static void refill_start(const struct path *path, unsigned rounds)
{
    (void)paths_worker_start();
    paths_hold(0, REMOTE_SLAB_OBJECTS, path->size);
    paths_pointers[0] = paths_held[0];
}

static void refill_prepare(const struct path *path, unsigned round)
{
    paths_worker_do(job_free);
}

const struct path paths_remote[] = {
    {"remote_push", PATH_FREE, 64, PATHS_OBJECT, 0, push_start, push_prepare, push_finish},
    {"remote_start", PATH_FREE, 1, PATHS_OBJECT, 0, push_start, first_prepare, push_finish},
    {"remote_send", PATH_FREE, 1, PATHS_OBJECT, 0, send_start, send_prepare, NULL},
    {"remote_send_notify", PATH_FREE, 1, PATHS_OBJECT, 0, push_start, notify_prepare,
     notify_finish},
    {"tick", PATH_FREE, 1, TICK_SIZE, 0, tick_start, tick_prepare, NULL},
    {"tick_send", PATH_FREE, 1, TICK_SIZE, 0, tick_send_start, tick_send_prepare, NULL},
    {"refill_remote", PATH_MALLOC, 1, REMOTE_SENT_AT_ONCE, 0, refill_start, refill_prepare, NULL},
    {.name = NULL},
};
