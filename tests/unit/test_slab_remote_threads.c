/* SPDX-License-Identifier: MIT */
/* test_slab_remote_threads.c: slab/slab_remote under fire: many freers against one owner; each
 * object comes back exactly once and each slab is given back in the end. */
#include "../threads/threads.h"
#include "unit.h"

#include "core/lock.h"

enum { FREERS = 4, BATCH = 32, ROUNDS = SUPPORT_SLOW ? 3000 : 20000 };

static struct lock set_lock = LOCK_INITIAL(LOCK_RANK_HEAP);
static struct slab_set *set;
static struct ledger ledger;
static struct queue *queue;
static size_t shared_helped;
static bool shared_stop;

static size_t size_of(const void *object)
{
    return size_class_bytes(unit_slab_of(object)->class_index);
}

static void drain(void)
{
    lock_acquire(&set_lock);
    hak__slab_drain(set);
    lock_release(&set_lock);
}

/* Sends each run of objects of one slab as one batch; helps an owner that lags. */
static void return_remote(void **objects, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ledger_give(&ledger, objects[i], size_of(objects[i]));
    }
    for (uint32_t first = 0, end; first < count; first = end) {
        const struct slab *slab = unit_slab_of(objects[first]);
        for (end = first + 1; end < count && unit_slab_of(objects[end]) == slab;) {
            end++;
        }
        struct slab_set *lagging = unit_return_remote(objects + first, end - first);
        REQUIRE(lagging == NULL || lagging == set);
        if (lagging != NULL && lock_try(&set_lock)) {
            hak__slab_drain(set);
            lock_release(&set_lock);
            __atomic_fetch_add(&shared_helped, 1, __ATOMIC_RELAXED);
        }
    }
}

static void *free_remotely(void *argument)
{
    void *objects[BATCH];
    size_t count;
    while ((count = queue_take(queue, objects, BATCH, 0)) != 0) {
        return_remote(objects, (uint32_t)count);
    }
    return NULL;
}

/* The purge pass of another thread. */
static void *collect(void *argument)
{
    while (!__atomic_load_n(&shared_stop, __ATOMIC_RELAXED)) {
        drain();
        usleep(500);
    }
    return NULL;
}

static void return_own(void **objects, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ledger_give(&ledger, objects[i], size_of(objects[i]));
    }
    lock_acquire(&set_lock);
    unit_return(objects, count);
    lock_release(&set_lock);
}

/* Refills, hands most objects to the freers and returns some itself. */
static void own(void)
{
    static const size_t sizes[] = {
        16, 64, 1024, SLICE_SIZE / 8, SLICE_SIZE / 8, SLICE_SIZE / 2, MID_SIZE_MAX};
    uint64_t random = 8;
    for (size_t round = 0; round < ROUNDS; round++) {
        void *objects[BATCH];
        uint32_t count = 0,
                 class_index = size_class_of(sizes[random_below(&random, COUNT_OF(sizes))]);
        uint32_t most = 1 + (uint32_t)random_size(&random, 10);
        lock_acquire(&set_lock);
        struct object_list list = unit_slab_refill(set, class_index, most);
        lock_release(&set_lock);
        REQUIRE(list.count != 0 && list.count <= most);
        unit_list_tail(list);
        for (struct object *object = list.head, *next; object != NULL; object = next) {
            next = object->next;
            REQUIRE(unit_slab_of(object)->class_index == class_index);
            ledger_take(&ledger, object, size_class_bytes(class_index));
            memset(object, (int)round, 16);
            objects[count++] = object;
            if (count < BATCH && next != NULL) {
                continue;
            }
            if (random_below(&random, 5) == 0) {
                return_own(objects, count);
            } else {
                queue_put(queue, objects, count);
            }
            count = 0;
        }
    }
}

static void *own_and_close(void *argument)
{
    own();
    queue_close(queue);
    return argument;
}

TEST(many_freers_one_owner)
{
    pthread_t freers[FREERS], owner, collector;
    size_t taken = unit_region_bytes_taken();
    ledger = ledger_create();
    set = unit_set_create();
    queue = queue_create(4096, 1);
    __atomic_store_n(&shared_stop, false, __ATOMIC_RELAXED);
    owner = thread_start(own_and_close, NULL);
    collector = thread_start(collect, NULL);
    for (size_t i = 0; i < FREERS; i++) {
        freers[i] = thread_start(free_remotely, NULL);
    }
    thread_join(owner);
    JOIN_ALL(freers, FREERS);
    __atomic_store_n(&shared_stop, true, __ATOMIC_RELAXED);
    thread_join(collector);
    hak__slab_drain(set);
    hak__slab_set_check(set);
    ledger_destroy(&ledger);
    unit_set_destroy(set);
    queue_destroy(queue);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

/* One object of a two-object world back and forth: the narrowest races of A1, A2 and the owner. */
static void *bounce(void *argument)
{
    void **shared_slot = argument;
    for (;;) {
        void *object = __atomic_exchange_n(shared_slot, NULL, __ATOMIC_ACQUIRE);
        if (object == NULL) {
            sched_yield();
        } else if (object == (void *)shared_slot) {
            return NULL;
        } else {
            return_remote(&object, 1);
        }
    }
}

TEST(few_objects)
{
    static void *shared_slots[FREERS];
    pthread_t freers[FREERS];
    size_t taken = unit_region_bytes_taken();
    ledger = ledger_create();
    set = unit_set_create();
    for (size_t i = 0; i < FREERS; i++) {
        freers[i] = thread_start(bounce, &shared_slots[i]);
    }
    for (size_t given = 0; given < 10 * ROUNDS;) {
        lock_acquire(&set_lock);
        struct object_list list =
            unit_slab_refill(set, size_class_of(MID_SIZE_MAX), 1 + (uint32_t)given % 3);
        lock_release(&set_lock);
        for (struct object *object = list.head, *next; object != NULL; object = next) {
            void *empty = NULL;
            next = object->next;
            ledger_take(&ledger, object, MID_SIZE_MAX);
            while (!__atomic_compare_exchange_n(&shared_slots[given % FREERS], &empty,
                                                (void *)object, false, __ATOMIC_RELEASE,
                                                __ATOMIC_RELAXED)) {
                empty = NULL;
                given++;
                sched_yield();
            }
            given++;
        }
    }
    for (size_t i = 0; i < FREERS; i++) {
        while (__atomic_load_n(&shared_slots[i], __ATOMIC_ACQUIRE) != NULL) {
            sched_yield();
        }
        __atomic_store_n(&shared_slots[i], (void *)&shared_slots[i], __ATOMIC_RELEASE);
        thread_join(freers[i]);
    }
    ledger_destroy(&ledger);
    unit_set_destroy(set);
    assert_int_equal(unit_region_bytes_taken(), taken);
}

TESTS(unit_start)
