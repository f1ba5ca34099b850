/* SPDX-License-Identifier: MIT */
/* test_lend.c: free objects of other arenas before the process grows: when it would, who lends
 * what, and whom a thread asks. tests/threads/test_lending.c is what it is for. */
#include "../threads/threads.h"
#include "arenas.h"

enum { SIZE = 1200, OBJECTS = 64, FREE = 3 };

static uint32_t lent_class(void)
{
    return size_class_of(SIZE);
}

/* All objects of a new slab of the set, in use; how many. */
static uint32_t slab_in_use(struct slab_set *set, void **objects)
{
    uint32_t capacity = hak__size_classes[lent_class()].objects_per_slab, count = 0;
    REQUIRE_SIZE(capacity, <=, OBJECTS);
    while (count < capacity) {
        struct object_list list = unit_slab_refill(set, lent_class(), UINT32_MAX);
        for (struct object *object = list.head; object != NULL; object = object->next) {
            objects[count++] = object;
        }
    }
    return count;
}

/* A slab notified after a look at the stack, whose objects a refill took before the next one, is
 * listed then with nothing. */
TEST(a_slab_with_nothing_is_passed_over)
{
    void *objects[2][OBJECTS];
    struct slab_set *set = unit_set_create();
    uint32_t count = slab_in_use(set, objects[0]);
    slab_in_use(set, objects[1]);
    struct slab *empty = unit_slab_of(objects[0][0]);
    unit_return(objects[0], 1);
    unit_return_remote(objects[0] + 1, 1);
    uint32_t notified = set->shared_notified;
    set->shared_notified = 0;
    assert_ptr_equal(unit_slab_refill(set, lent_class(), 1).head, objects[0][0]);
    assert_ptr_equal(unit_slab_refill(set, lent_class(), 1).head, objects[0][1]);
    assert_false(empty->listed);
    unit_return(objects[1], 1);
    set->shared_notified = notified;
    assert_ptr_equal(hak__slab_lend(set, lent_class(), UINT32_MAX).head, objects[1][0]);
    assert_false(empty->listed);
    unit_return(objects[0], count);
    unit_return(objects[1], count);
    unit_set_destroy(set);
}

/* Each round is handed from thread to thread, which takes long where others want the processors: a
 * busy machine does fewer. */
enum { RACES = SUPPORT_SLOW ? 5000 : 200000, RACES_SECONDS_MAX = 20, RACES_OVER = RACES + 1 };

struct race {
    struct slab_set *set;
    void *objects[OBJECTS];
    uint32_t count;
    uint32_t shared_round, shared_freed;
};

/* Waits for that round or the end; the round that came. */
static uint32_t race_wait(const uint32_t *shared, uint32_t round)
{
    uint32_t now;
    while ((now = __atomic_load_n(shared, __ATOMIC_ACQUIRE)) < round) {
        sched_yield();
    }
    return now;
}

static void race_spin(uint64_t *random)
{
    for (size_t left = random_below(random, 200); left != 0; left--) {
        __asm__ volatile("");
    }
}

static void *free_all_but_one(void *argument)
{
    struct race *race = argument;
    uint64_t random = 1;
    for (uint32_t round = 1; race_wait(&race->shared_round, round) != RACES_OVER; round++) {
        race_spin(&random);
        unit_return_remote(race->objects + 1, race->count - 1);
        __atomic_store_n(&race->shared_freed, round, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* The last objects of the slab that lends are freed by another thread meanwhile: what is lent is
 * always a list, of objects of that slab. */
TEST(lent_while_it_is_freed)
{
    struct race race = {.set = unit_set_create()};
    uint64_t random = 2;
    pthread_t thread = thread_start(free_all_but_one, &race);
    time_t end = time(NULL) + RACES_SECONDS_MAX;
    for (uint32_t round = 1; round <= RACES && time(NULL) <= end; round++) {
        race.count = slab_in_use(race.set, race.objects);
        for (uint32_t i = 0; i < race.count; i++) {
            memset(race.objects[i], 0x5b, sizeof(void *)); /* the program's, not links */
        }
        unit_return(race.objects, 1);
        __atomic_store_n(&race.shared_round, round, __ATOMIC_RELEASE);
        race_spin(&random);
        struct object_list list = hak__slab_lend(race.set, lent_class(), UINT32_MAX);
        struct object *tail = unit_list_tail(list);
        race_wait(&race.shared_freed, round);
        if (list.count != 0) {
            hak__slab_return_remote(unit_slab_of(list.head), list, tail);
        }
        hak__slab_drain(race.set);
        REQUIRE(unit_set_is_empty(race.set));
    }
    __atomic_store_n(&race.shared_round, RACES_OVER, __ATOMIC_RELEASE);
    thread_join(thread);
    unit_set_destroy(race.set);
}

/* No memory is left, but another arena has objects to lend: malloc does not fail. */
TEST(a_failing_allocation_asks)
{
    SKIP_IF(HAK_TINY_LIMITS);
    static void *objects[OBJECTS];
    struct thread *lender = adopt();
    uint32_t count = slab_in_use(&lender->arena->slabs, objects);
    hak_free(hak_malloc(SIZE));
    struct arena *own = hak__thread->arena;
    REQUIRE(own != lender->arena);
    hak__os_set_limit(hak__os_mapped_bytes()); /* none to be had */
    static void *mine[1 << 16];
    size_t taken = 0;
    while ((mine[taken] = hak_malloc(SIZE)) != NULL) {
        REQUIRE(++taken < COUNT_OF(mine));
    }
    /* Until here all was asked for and nothing found. Now another arena's thread frees some. */
    unit_return(objects, FREE);
    int failed = 0;
    void *object;
    while ((object = hak_malloc(SIZE)) == NULL && failed < 100) {
        failed++;
    }
    hak__os_set_limit(UINT64_MAX);
    hak_free(object);
    while (taken != 0) {
        hak_free(mine[--taken]);
    }
    unit_return(objects + FREE, count - FREE);
    assert_int_equal(failed, 0);
}

TESTS(start_with_many_arenas)
